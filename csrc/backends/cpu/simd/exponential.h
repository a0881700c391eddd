// Exponentials, logarithms and powers, and the activations made of them.
//
// Method: Cody and Waite 1980, chapters 6 and 7 (argument reduction, then a polynomial). The
// polynomials are minimax fits by the Remez exchange on the stated interval. Functions of float
// either work in float (`exp`, `log`, `tanh`, ...) or, where float would lose digits, in double
// with about 32 correct bits (`..._wide`) and round once. Functions of double call libm.
#pragma once

#include "backends/cpu/simd/vector.h"

namespace lucid::cpu::LUCID_ISA {

/// e^x = (expm1 + 1) * 2^exponent, where expm1 = e^r - 1 of the reduced argument r = x - exponent
/// ln 2, |r| <= 0.347: a factor can be applied before the result underflows.
struct ReducedExp {
  float expm1;
  int32_t exponent;
};

/// e^r - 1 by a fit of (e^r - 1 - r) / r^2, relative error 2^-26.
LUCID_INLINE float expm1_reduced(float r) {
  constexpr float kExp[] = {0.500000006249438f, 0.16666542325506906f, 0.04166627978840967f,
                            0.00836667350538811f, 0.001394661484418519f};
  return fma(r * r, polynomial(r, kExp), r);
}

/// For -120 <= x <= 120 or nan; `low` is a correction to x, |low| < 2^-18.
LUCID_INLINE ReducedExp reduce_exp(float x, float low) {
  constexpr float kRound = 0x1.8p23f;  // adding it rounds to an integer in the low bits
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.62e430p-1f;
  constexpr float kLn2Low = -0x1.05c610p-29f;
  const float shifted = fma(x, kLog2E, kRound);
  const float k = shifted - kRound;
  float r = fma(-k, kLn2High, x);
  r = fma(-k, kLn2Low, r) + low;
  return {expm1_reduced(r), static_cast<int32_t>(bits(shifted) - bits(kRound))};
}

/// The same of a double, for arguments known to more digits than a float has.
LUCID_INLINE ReducedExp reduce_exp(double x) {
  constexpr double kRound = 0x1.8p52;
  const double shifted = fma(x, 0x1.71547652b82fep+0, kRound);
  const double r = fma(kRound - shifted, 0x1.62e42fefa39efp-1, x);
  return {expm1_reduced(static_cast<float>(r)),
          static_cast<int32_t>(static_cast<uint32_t>(bits(shifted)))};
}

/// 2^n for -126 <= n <= 127.
LUCID_INLINE float power_of_two(int32_t n) {
  return from_bits((static_cast<uint32_t>(n) + 127u) << 23);
}

/// fraction * 2^exponent for |exponent| <= 252; in two steps, so that it rounds once.
LUCID_INLINE float unscale(float fraction, int32_t exponent) {
  const int32_t half = exponent >> 1;
  return fraction * power_of_two(half) * power_of_two(exponent - half);
}

LUCID_INLINE float exp(float x) {
  const ReducedExp e = reduce_exp(at_least(at_most(x, 89.0f), -105.0f), 0.0f);
  return unscale(e.expm1 + 1.0f, e.exponent);
}

LUCID_INLINE double exp(double x) { return __builtin_exp(x); }

/// e^r - 1 and 2^k of x = r + k ln 2, |r| <= 0.347 and |x| <= 700.
struct WideExp {
  double expm1;
  double scale;
};

LUCID_INLINE WideExp reduce_exp_wide(double x) {
  constexpr double kRound = 0x1.8p52;
  // (e^r - 1 - r) / r^2, error 2^-32 |r|
  constexpr double kExp[] = {0.50000000467894923,   0.16666666818323189,   0.041666352982138236,
                             0.0083332727204989115, 0.0013941148642584063, 0.00019914368159388329};
  const double shifted = fma(x, 0x1.71547652b82fep+0, kRound);
  const double r = fma(kRound - shifted, 0x1.62e42fefa39efp-1, x);
  return {fma(r * r, polynomial(r, kExp), r), from_bits((bits(shifted) + 1023u) << 52)};
}

/// e^x with a relative error of 2^-32, saturating at e^+-700.
LUCID_INLINE double exp_wide(double x) {
  const WideExp e = reduce_exp_wide(at_least(at_most(x, 700.0), -700.0));
  return fma(e.scale, e.expm1, e.scale);
}

/// e^x - 1 with a relative error of 2^-32, saturating at e^700.
LUCID_INLINE double expm1_wide(double x) {
  const WideExp e = reduce_exp_wide(at_least(at_most(x, 700.0), -50.0));
  return fma(e.scale, e.expm1, e.scale - 1.0);
}

/// ln x for finite x > 0 that is a normal double; of others the value has no meaning.
LUCID_INLINE double log_normal_wide(double x) {
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdu;
  constexpr uint64_t kOne = 0x3ff0000000000000u;
  // (ln m - 2 s) / s^3 in s^2, s = (m - 1) / (m + 1), m in [sqrt(1/2), sqrt(2)]; error 2^-37
  constexpr double kLog[] = {0.66666666667421515, 0.39999998737113257, 0.28571766403778559,
                             0.22190667664988767, 0.19376587773030438};
  const uint64_t biased = (bits(x) + (kOne - kSqrtHalf)) >> 52;
  // The exponent becomes a double by placing it in the low bits of 2^52.
  const double exponent = from_bits(biased | 0x4330000000000000u) - (0x1p52 + 1023.0);
  const double m = from_bits(bits(x) - (biased << 52) + kOne);
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  const double tail = s * z * polynomial(z, kLog);
  return fma(exponent, 0x1.62e42fefa39efp-1, fma(2.0, s, tail));
}

/// ln x with a relative error of 2^-40, for doubles that came from floats.
LUCID_INLINE double log_wide(double x) {
  const double inf = __builtin_inf();
  double y = log_normal_wide(x);
  y = x < inf ? y : x;  // inf and nan stay
  y = x > 0.0 ? y : (x == 0.0 ? -inf : __builtin_nan(""));
  return x != x ? x : y;
}

/// ln(1 + x) for doubles that came from floats.
LUCID_INLINE double log1p_wide(double x) {
  const double sum = 1.0 + x;
  // What the sum lost; beyond |x| = 1 it no longer matters.
  const double lost = absolute(x) < 1.0 ? x - (sum - 1.0) : 0.0;
  return log_wide(sum) + lost;
}

LUCID_INLINE float log(float x) {
  constexpr uint32_t kSqrtHalf = 0x3f3504f3u;
  constexpr uint32_t kOne = 0x3f800000u;
  // (ln(1 + f) - f + f^2 / 2) / f^3 on [sqrt(1/2) - 1, sqrt(2) - 1], error 2^-30 / f^2
  constexpr float kLog[] = {0.3333331017129013f,   -0.24999985815413853f, 0.20002247591810887f,
                            -0.16669309823983205f, 0.1421822916312994f,   -0.12383002307714025f,
                            0.11875102852914662f,  -0.11799135018164544f, 0.06921672939866737f};
  constexpr float kLn2High = 0.693359375f;  // few bits: exponent * high is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  const bool subnormal = x < 0x1p-126f;
  const uint32_t b = bits(subnormal ? x * 0x1p23f : x);
  const uint32_t biased = (b + (kOne - kSqrtHalf)) >> 23;
  const float exponent =
      static_cast<float>(static_cast<int32_t>(biased)) - (subnormal ? 150.0f : 127.0f);
  const float f = from_bits(b - (biased << 23) + kOne) - 1.0f;
  const float z = f * f;
  float y = f * z * polynomial(f, kLog);
  y = fma(exponent, kLn2Low, y);
  y = fma(-0.5f, z, y);
  y = fma(exponent, kLn2High, f + y);
  y = x < kInfinity ? y : x;
  y = x > 0.0f ? y : (x == 0.0f ? -kInfinity : __builtin_nanf(""));
  return x != x ? x : y;
}

LUCID_INLINE double log(double x) { return __builtin_log(x); }

LUCID_INLINE float expm1(float x) {
  const float y = static_cast<float>(expm1_wide(static_cast<double>(x)));
  return x == 0.0f ? x : y;
}
LUCID_INLINE double expm1(double x) { return __builtin_expm1(x); }

LUCID_INLINE float log1p(float x) {
  const float y = static_cast<float>(log1p_wide(static_cast<double>(x)));
  return x == 0.0f ? x : y;
}
LUCID_INLINE double log1p(double x) { return __builtin_log1p(x); }

LUCID_INLINE float log2(float x) {
  return static_cast<float>(log_wide(static_cast<double>(x)) * 0x1.71547652b82fep+0);
}
LUCID_INLINE double log2(double x) { return __builtin_log2(x); }

LUCID_INLINE float log10(float x) {
  return static_cast<float>(log_wide(static_cast<double>(x)) * 0x1.bcb7b1526e50ep-2);
}
LUCID_INLINE double log10(double x) { return __builtin_log10(x); }

/// tanh |x| = E / (E + 2) with E = e^(2 |x|) - 1; it is 1 from |x| = 10 on.
LUCID_INLINE float tanh(float x) {
  const ReducedExp e = reduce_exp(at_most(2.0f * absolute(x), 20.0f), 0.0f);
  const float scale = power_of_two(e.exponent);
  const float expm1 = fma(scale, e.expm1, scale - 1.0f);
  return with_sign(expm1 / (expm1 + 2.0f), x);
}
LUCID_INLINE double tanh(double x) { return __builtin_tanh(x); }

/// sinh |x| = (E + E / (E + 1)) / 2 with E = e^|x| - 1.
LUCID_INLINE float sinh(float x) {
  const double e = expm1_wide(static_cast<double>(absolute(x)));
  return with_sign(static_cast<float>(0.5 * (e + e / (e + 1.0))), x);
}
LUCID_INLINE double sinh(double x) { return __builtin_sinh(x); }

LUCID_INLINE float cosh(float x) {
  const double e = exp_wide(static_cast<double>(absolute(x)));
  return static_cast<float>(0.5 * (e + 1.0 / e));
}
LUCID_INLINE double cosh(double x) { return __builtin_cosh(x); }

/// asinh |x| = log1p(|x| + x^2 / (1 + sqrt(1 + x^2))).
LUCID_INLINE float asinh(float x) {
  const double a = static_cast<double>(absolute(x));
  const double square = a * a;
  const double small = a + square / (1.0 + __builtin_sqrt(1.0 + square));
  const double y = log1p_wide(a < static_cast<double>(kInfinity) ? small : a);
  return with_sign(static_cast<float>(y), x);
}
LUCID_INLINE double asinh(double x) { return __builtin_asinh(x); }

/// acosh x = log1p(t + sqrt(2 t + t^2)) with t = x - 1; nan below 1.
LUCID_INLINE float acosh(float x) {
  const double t = static_cast<double>(x) - 1.0;
  const double y = log1p_wide(t + __builtin_sqrt(t * (t + 2.0)));
  return static_cast<float>(t < 0.0 ? __builtin_nan("") : y);
}
LUCID_INLINE double acosh(double x) { return __builtin_acosh(x); }

/// atanh |x| = log1p(2 |x| / (1 - |x|)) / 2.
LUCID_INLINE float atanh(float x) {
  const double a = static_cast<double>(absolute(x));
  const double y = 0.5 * log1p_wide(2.0 * a / (1.0 - a));
  return with_sign(static_cast<float>(y), x);
}
LUCID_INLINE double atanh(double x) { return __builtin_atanh(x); }

/// e^(y ln |x|) with the special values of C's pow.
LUCID_INLINE float pow(float x, float y) {
  const double magnitude = static_cast<double>(absolute(x));
  const double exponent = static_cast<double>(y);
  double power = exponent * log_wide(magnitude);
  power = (magnitude == 1.0 && exponent == exponent) || x == 1.0f || y == 0.0f ? 0.0 : power;
  const float result = static_cast<float>(exp_wide(power));
  // Floats from 2^24 on are even; the clamp keeps the conversion defined.
  const double bounded = at_most(absolute(exponent), 0x1p25);
  const int32_t whole = static_cast<int32_t>(bounded == bounded ? bounded : 0.0);
  const bool integer = static_cast<double>(whole) == bounded;
  const bool odd = integer && (whole & 1) != 0;
  const bool negative = (bits(x) >> 31) != 0;
  const bool undefined = x < 0.0f && x > -kInfinity && !integer && y == y;
  const float signed_result = negative && odd ? -result : result;
  return undefined ? __builtin_nanf("") : signed_result;
}
LUCID_INLINE double pow(double x, double y) { return __builtin_pow(x, y); }

/// 1 / (1 + e^-x), from e^-|x| so that nothing overflows.
LUCID_INLINE float sigmoid(float x) {
  const ReducedExp reduced = reduce_exp(at_least(-absolute(x), -105.0f), 0.0f);
  const float e = unscale(reduced.expm1 + 1.0f, reduced.exponent);
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
LUCID_INLINE double sigmoid(double x) {
  const double e = __builtin_exp(-absolute(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

/// y, or nan at x = -inf: there the activations x g(x) with g(-inf) = 0 have no value.
template <class T>
LUCID_INLINE T unless_lowest(T x, T y) {
  return x == -static_cast<T>(kInfinity) ? static_cast<T>(__builtin_nanf("")) : y;
}

/// x / (1 + e^-|z|) for x >= 0 and x e^-|z| / (1 + e^-|z|) for x < 0, given e^-|z|: x sigmoid(z)
/// for a z with the sign of x; nan at -inf. Below 3 ULP.
LUCID_INLINE float gate(float x, ReducedExp reduced) {
  const float bounded = at_least(x, -110.0f);
  const float e = unscale(reduced.expm1 + 1.0f, reduced.exponent);
  const float scaled = unscale(fma(bounded, reduced.expm1, bounded), reduced.exponent);
  return unless_lowest(x, (x < 0.0f ? scaled : x) / (1.0f + e));
}

/// x sigmoid(x); nan at -inf.
LUCID_INLINE float silu(float x) {
  return gate(x, reduce_exp(at_least(-absolute(x), -115.0f), 0.0f));
}
LUCID_INLINE double silu(double x) {
  const double bounded = at_least(x, -800.0);
  const double e = __builtin_exp(-absolute(bounded));
  return unless_lowest(x, (x < 0.0 ? bounded * e : x) / (1.0 + e));
}

/// ln(1 + e^(beta x)) / beta; x itself where beta x > threshold.
LUCID_INLINE float softplus(float x, float beta, float threshold) {
  const double z = static_cast<double>(x) * static_cast<double>(beta);
  const double y = log1p_wide(exp_wide(z)) / static_cast<double>(beta);
  return z > static_cast<double>(threshold) ? x : static_cast<float>(y);
}
LUCID_INLINE double softplus(double x, double beta, double threshold) {
  const double z = x * beta;
  const double y = __builtin_log1p(__builtin_exp(-absolute(z))) + (z > 0.0 ? z : 0.0);
  return z > threshold ? x : y / beta;
}

/// x / (1 + e^(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3): equal to x (1 + tanh u) / 2 without its
/// cancellation; nan at -inf. Hendrycks and Gimpel 2016, arXiv:1606.08415.
LUCID_INLINE float gelu_tanh(float x) {
  constexpr double kSlope = 1.5957691216057308;  // 2 sqrt(2 / pi)
  constexpr double kCubic = 1.5957691216057308 * 0.044715;
  const double wide = static_cast<double>(x);
  const double twice_u = wide * fma(kCubic, wide * wide, kSlope);
  return gate(x, reduce_exp(at_least(-absolute(twice_u), -115.0)));
}
LUCID_INLINE double gelu_tanh(double x) {
  const double bounded = at_least(x, -200.0);
  const double twice_u = 1.5957691216057308 * (bounded + 0.044715 * bounded * bounded * bounded);
  return unless_lowest(x, bounded / (1.0 + __builtin_exp(-twice_u)));
}

/// d gelu_tanh(x) / dx = s + x 2 u' s (1 - s) with s = sigmoid(2 u) and e = e^(-|2 u|): for x < 0
/// it is e / (1 + e) (1 - |x| 2 u' / (1 + e)), and for x >= 0 that less than 1. It is nan at -inf.
LUCID_INLINE float gelu_tanh_slope(float x) {
  constexpr double kSlope = 1.5957691216057308;  // 2 sqrt(2 / pi)
  constexpr double kCubic = 1.5957691216057308 * 0.044715;
  const float t = at_most(absolute(x), 12.0f);
  const double wide = static_cast<double>(t);
  const double twice_u = wide * fma(kCubic, wide * wide, kSlope);
  const ReducedExp reduced = reduce_exp(at_least(-twice_u, -115.0));
  const float e = unscale(reduced.expm1 + 1.0f, reduced.exponent);
  const float share = 1.0f / (1.0f + e);
  const float rise = t * fma(3.0f * static_cast<float>(kCubic), t * t, static_cast<float>(kSlope));
  const float factor = share * fma(-rise, share, 1.0f);
  const float low = unscale(fma(reduced.expm1, factor, factor), reduced.exponent);
  return unless_lowest(x, x < 0.0f ? low : 1.0f - low);
}
LUCID_INLINE double gelu_tanh_slope(double x) {
  constexpr double kSlope = 1.5957691216057308;
  const double t = at_most(absolute(x), 40.0);
  const double e = __builtin_exp(-kSlope * (t + 0.044715 * t * t * t));
  const double share = 1.0 / (1.0 + e);
  const double low = e * share * (1.0 - kSlope * (t + 3.0 * 0.044715 * t * t * t) * share);
  return unless_lowest(x, x < 0.0 ? low : 1.0 - low);
}

}  // namespace lucid::cpu::LUCID_ISA

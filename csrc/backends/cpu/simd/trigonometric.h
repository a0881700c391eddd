// Trigonometric functions and their inverses. Functions of float are computed in double, with
// about 36 correct bits, and round once; functions of double call libm.
#pragma once

#include "backends/cpu/simd/vector.h"

namespace lucid::cpu::LUCID_ISA {

/// x = quadrant * pi / 2 + r with |r| <= pi / 4 (1 + 2^-20); quadrant modulo 4 in the low bits.
struct Angle {
  double r;
  uint64_t quadrant;
};

/// Cody and Waite's reduction, exact enough for floats up to this bound.
inline constexpr float kDirectAngle = 0x1p40f;

LUCID_INLINE Angle reduce_angle(double x) {
  constexpr double kRound = 0x1.8p52;
  constexpr double kHalfPiHigh = 0x1.921fb54442d18p+0;
  constexpr double kHalfPiLow = 0x1.1a62633145c07p-54;
  const double shifted = fma(x, 0x1.45f306dc9c883p-1, kRound);
  const double k = shifted - kRound;
  const double r = fma(-k, kHalfPiLow, fma(-k, kHalfPiHigh, x));
  return {r, bits(shifted)};
}

/// Reduction of finite |x| > 2^40 by Payne and Hanek (1983): x = m 2^e with an integer m, and of
/// the binary digits of 2 / pi only those matter that 2^e does not turn into multiples of 4.
inline Angle reduce_large_angle(float x) {
  __extension__ typedef unsigned __int128 Wide;
  __extension__ typedef __int128 SignedWide;
  constexpr uint64_t kTwoOverPi[] = {0xa2f9836e4e441529u, 0xfc2757d1f534ddc0u, 0xdb6295993c439041u,
                                     0xfe5163abdebbc561u};
  const uint32_t exponent = (bits(x) >> 23) & 0xffu;
  const uint32_t mantissa = (bits(x) & 0x7fffffu) | 0x800000u;
  const uint32_t skipped = exponent - 150u - 2u;  // digits of weight 4 and more
  const uint32_t word = skipped / 64u;
  const uint32_t shift = skipped % 64u;
  Wide digits = (Wide{kTwoOverPi[word]} << 64) | kTwoOverPi[word + 1];
  if (shift > 0) digits = (digits << shift) | (kTwoOverPi[word + 2] >> (64u - shift));
  const Wide turns = digits * mantissa;  // |x| / (2 pi) modulo 1, in units of 2^-128
  const uint64_t quadrant = static_cast<uint64_t>((turns + (Wide{1} << 125)) >> 126);
  const SignedWide rest = static_cast<SignedWide>(turns - (Wide{quadrant} << 126));
  const double r = static_cast<double>(rest) * 0x1p-126 * 0x1.921fb54442d18p+0;
  if (x < 0.0f) return {-r, 0u - quadrant};
  return {r, quadrant};
}

/// sin r on the reduced interval, relative error 2^-45.
LUCID_INLINE double sin_reduced(double r) {
  constexpr double kSin[] = {-0.16666666666663887, 0.0083333333310795423, -0.00019841266916952998,
                             2.7555990845314391e-06, -2.4805623279000916e-08};
  const double z = r * r;
  return fma(r * z, polynomial(z, kSin), r);
}

/// cos r on the reduced interval, error 2^-48.
LUCID_INLINE double cos_reduced(double r) {
  constexpr double kCos[] = {0.04166666666666468, -0.0013888888887277381, 2.4801585210813048e-05,
                             -2.7556369595415686e-07, 2.0700587979179225e-09};
  const double z = r * r;
  return fma(z * z, polynomial(z, kCos), fma(-0.5, z, 1.0));
}

/// sin of the angle that is `quarter_turns` quarter turns ahead.
LUCID_INLINE double sin_of(Angle angle, uint64_t quarter_turns) {
  const uint64_t quadrant = angle.quadrant + quarter_turns;
  const double s = sin_reduced(angle.r);
  const double c = cos_reduced(angle.r);
  const uint64_t sign = (quadrant & 2u) << 62;
  return from_bits(bits((quadrant & 1u) != 0 ? c : s) ^ sign);
}

LUCID_INLINE double tan_of(Angle angle) {
  const double s = sin_reduced(angle.r);
  const double c = cos_reduced(angle.r);
  const bool odd = (angle.quadrant & 1u) != 0;
  return (odd ? -c : s) / (odd ? s : c);
}

struct Sin {
  LUCID_INLINE static double of(Angle angle) { return sin_of(angle, 0); }
  LUCID_INLINE static double of(double x) { return __builtin_sin(x); }
};
struct Cos {
  LUCID_INLINE static double of(Angle angle) { return sin_of(angle, 1); }
  LUCID_INLINE static double of(double x) { return __builtin_cos(x); }
};
struct Tan {
  LUCID_INLINE static double of(Angle angle) { return tan_of(angle); }
  LUCID_INLINE static double of(double x) { return __builtin_tan(x); }
};

/// F of |x| <= kDirectAngle, inf or nan; -0 stays.
template <class F>
LUCID_INLINE float direct_angle(float x, bool odd) {
  const float y = static_cast<float>(F::of(reduce_angle(static_cast<double>(x))));
  return odd && x == 0.0f ? x : y;
}

/// atan t for 0 <= t <= inf. Reduced to |t| <= tan(pi / 8), error 2^-35 there.
LUCID_INLINE double atan_positive(double t) {
  constexpr double kAtan[] = {-0.33333333331556758, 0.19999998964809254,   -0.14285615669937521,
                              0.11107571970155422,  -0.090298286366313235, 0.071396102509781179,
                              -0.040513722538828095};
  constexpr double kQuarterPi = 0x1.921fb54442d18p-1;
  const bool large = t > 2.414213562373095;    // tan(3 pi / 8)
  const bool middle = t > 0.4142135623730951;  // tan(pi / 8)
  const double numerator = large ? -1.0 : (middle ? t - 1.0 : t);
  const double denominator = large ? t : (middle ? t + 1.0 : 1.0);
  const double offset = large ? 2.0 * kQuarterPi : (middle ? kQuarterPi : 0.0);
  const double s = numerator / denominator;
  const double z = s * s;
  return offset + fma(s * z, polynomial(z, kAtan), s);
}

LUCID_INLINE float atan(float x) {
  return with_sign(static_cast<float>(atan_positive(static_cast<double>(absolute(x)))), x);
}
LUCID_INLINE double atan(double x) { return __builtin_atan(x); }

LUCID_INLINE float atan2(float y, float x) {
  constexpr double kPi = 0x1.921fb54442d18p+1;
  const double rise = static_cast<double>(absolute(y));
  const double run = static_cast<double>(absolute(x));
  double slope = rise / run;
  slope = rise == run ? 1.0 : slope;  // also inf / inf
  slope = rise == 0.0 && run == run ? 0.0 : slope;
  const double angle = atan_positive(slope);
  const bool left = (bits(x) >> 31) != 0 && x == x;
  return with_sign(static_cast<float>(left ? kPi - angle : angle), y);
}
LUCID_INLINE double atan2(double y, double x) { return __builtin_atan2(y, x); }

/// asin of t <= 1/2, or of sqrt((1 - t) / 2) for larger t.
LUCID_INLINE double asin_reduced(double t) {
  constexpr double kAsin[] = {0.16666666666748858,  0.074999999481348112,   0.044642910961489903,
                              0.030379800511445291, 0.022414707553861307,   0.016883017908489534,
                              0.016957614347165462, 0.00083599669118701624, 0.02857948943416173};
  const bool large = t > 0.5;
  const double z = large ? 0.5 * (1.0 - t) : t * t;
  const double s = large ? __builtin_sqrt(z) : t;
  return fma(s * z, polynomial(z, kAsin), s);
}

LUCID_INLINE float asin(float x) {
  const double t = static_cast<double>(absolute(x));
  const double p = asin_reduced(t);
  const double y = t > 0.5 ? 0x1.921fb54442d18p+0 - 2.0 * p : p;
  return with_sign(static_cast<float>(y), x);
}
LUCID_INLINE double asin(double x) { return __builtin_asin(x); }

LUCID_INLINE float acos(float x) {
  constexpr double kHalfPi = 0x1.921fb54442d18p+0;
  const double t = static_cast<double>(absolute(x));
  const double p = asin_reduced(t);
  const double near = kHalfPi - with_sign(p, static_cast<double>(x));
  const double far = x > 0.0f ? 2.0 * p : 2.0 * (kHalfPi - p);
  return static_cast<float>(t > 0.5 ? far : near);
}
LUCID_INLINE double acos(double x) { return __builtin_acos(x); }

}  // namespace lucid::cpu::LUCID_ISA

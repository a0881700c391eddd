// The error functions and the exact gelu.
#pragma once

#include "backends/cpu/simd/exponential.h"

namespace lucid::cpu::LUCID_ISA {

/// x + x P(x^2) for |x| < 1, else 1 - e^q(|x|); it is 1 from |x| = 4 on. Minimax fits: P with a
/// relative error of 2^-29, q to ln erfc on [1, 4] with an error of 2^-29 in erf.
LUCID_INLINE float erf(float x) {
  constexpr float kSmall[] = {
      0.1283791657267974f,   -0.376126258246751f,     0.11283585151233505f,  -0.026853811990321785f,
      0.005188327729379839f, -0.0008010193658509674f, 7.853860631578005e-05f};
  constexpr float kLarge[] = {-0.00035374075491507924f, -1.1270399479845643f,
                              -0.6382258260836012f,     -0.10303723737190135f,
                              0.02180525450713652f,     -0.002939591130534492f,
                              0.00018557233865887664f};
  const float t = at_most(absolute(x), 4.0f);
  const float small = fma(t, polynomial(t * t, kSmall), t);
  const ReducedExp e = reduce_exp(polynomial(t, kLarge), 0.0f);
  const float scale = power_of_two(e.exponent);
  const float large = fma(-scale, e.expm1, 1.0f - scale);
  return with_sign(t < 1.0f ? small : large, x);
}
LUCID_INLINE double erf(double x) { return __builtin_erf(x); }

/// (p0 + ... + p4 t^4) / (q0 + ... + q5 t^5), square = t^2. In powers of the square fewer rounding
/// errors add up than in Horner's rule, and that of the square itself cancels in the quotient.
LUCID_INLINE float rational(float t, float square, const float (&p)[5], const float (&q)[6]) {
  const float p_mid = fma(t, p[3], p[2]);
  const float p_sum = fma(square, fma(square, p[4], p_mid), fma(t, p[1], p[0]));
  const float q_high = fma(square, fma(t, q[5], q[4]), fma(t, q[3], q[2]));
  return p_sum / fma(square, q_high, fma(t, q[1], q[0]));
}

/// e^(-t^2) R(t) with t = |x|, reflected for x < 0. R is a minimax rational fit of e^(t^2) erfc(t)
/// on [0, 10.6], relative error 2^-25; all coefficients are positive, so nothing cancels. In all
/// below 5 ULP.
LUCID_INLINE float erfc(float x) {
  constexpr float kP[] = {1.0f, 1.2424306f, 0.7358232f, 0.23123316f, 0.033220474f};
  constexpr float kQ[] = {1.0f, 2.3708103f, 2.4109862f, 1.3332458f, 0.40987456f, 0.058881126f};
  const float t = at_most(absolute(x), 10.25f);
  const float square = t * t;
  const ReducedExp e = reduce_exp(-square, -fma(t, t, -square));
  const float ratio = rational(t, square, kP, kQ);
  const float y = unscale(fma(e.expm1, ratio, ratio), e.exponent);
  return x < 0.0f ? 2.0f - y : y;
}
LUCID_INLINE double erfc(double x) { return __builtin_erfc(x); }

/// x Phi(x) = max(x, 0) - |x| Phi(-|x|), Phi(-t) = e^(-t^2 / 2) M(t) and M(t) = R(t / sqrt(2)) / 2.
/// It is nan at -inf.
LUCID_INLINE float gelu(float x) {
  constexpr float kP[] = {0.5f, 0.43928346f, 0.18396915f, 0.040881153f, 0.0041532326f};
  constexpr float kQ[] = {1.0f, 1.6764519f, 1.2055484f, 0.4714088f, 0.10247995f, 0.0104105f};
  const float t = at_most(absolute(x), 15.0f);
  const float square = t * t;
  const ReducedExp e = reduce_exp(-0.5f * square, -0.5f * fma(t, t, -square));
  const float slope = t * rational(t, square, kP, kQ);
  const float tail = unscale(fma(e.expm1, slope, slope), e.exponent);
  return unless_lowest(x, with_sign(x > 0.0f ? x - tail : tail, x));
}
LUCID_INLINE double gelu(double x) {
  const double bounded = at_least(x, -40.0);
  return unless_lowest(x, 0.5 * bounded * __builtin_erfc(-bounded * 0x1.6a09e667f3bcdp-1));
}

/// d gelu(x) / dx = Phi(x) + x phi(x): for x < 0 it is e^(-t^2 / 2) (M(t) - t / sqrt(2 pi)) with t
/// = |x| and the M of gelu, and for x >= 0 that less than 1. It is nan at -inf.
LUCID_INLINE float gelu_slope(float x) {
  constexpr float kP[] = {0.5f, 0.43928346f, 0.18396915f, 0.040881153f, 0.0041532326f};
  constexpr float kQ[] = {1.0f, 1.6764519f, 1.2055484f, 0.4714088f, 0.10247995f, 0.0104105f};
  constexpr float kPeak = 0.3989422804f;  // 1 / sqrt(2 pi)
  const float t = at_most(absolute(x), 15.0f);
  const float square = t * t;
  const ReducedExp e = reduce_exp(-0.5f * square, -0.5f * fma(t, t, -square));
  const float factor = fma(-kPeak, t, rational(t, square, kP, kQ));
  const float low = unscale(fma(e.expm1, factor, factor), e.exponent);
  return unless_lowest(x, x < 0.0f ? low : 1.0f - low);
}
LUCID_INLINE double gelu_slope(double x) {
  const double bounded = at_most(at_least(x, -40.0), 40.0);
  const double bell = __builtin_exp(-0.5 * bounded * bounded) * 0x1.9884533d43651p-2;
  return unless_lowest(x,
                       fma(bounded, bell, 0.5 * __builtin_erfc(-bounded * 0x1.6a09e667f3bcdp-1)));
}

}  // namespace lucid::cpu::LUCID_ISA

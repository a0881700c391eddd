// Building blocks of vectorised code: plain scalar functions that the compiler vectorises in
// loops. Only *.isa.cpp files include this and the headers built on it.
//
// Everything is always inlined into namespace LUCID_ISA and nothing of <cmath> is used: an inline
// function of a shared namespace, emitted from a file compiled for AVX-512, could be the one that
// the linker keeps for all files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "support/half.h"

#ifndef LUCID_ISA
#define LUCID_ISA baseline
#endif

#define LUCID_INLINE [[gnu::always_inline]] inline

/// Stands before a loop whose output may be exactly an input: no iteration reads what another
/// writes, so it may be vectorised without overlap checks.
#if defined(__clang__)
// Loops of scalar functions (libm, integer division) are not vectorised; that is no fault.
#pragma clang diagnostic ignored "-Wpass-failed"
#define LUCID_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define LUCID_LOOP _Pragma("GCC ivdep")
#endif

namespace lucid::cpu::LUCID_ISA {

LUCID_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
LUCID_INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }

LUCID_INLINE uint32_t bits(float x) { return __builtin_bit_cast(uint32_t, x); }
LUCID_INLINE uint64_t bits(double x) { return __builtin_bit_cast(uint64_t, x); }
LUCID_INLINE float from_bits(uint32_t x) { return __builtin_bit_cast(float, x); }
LUCID_INLINE double from_bits(uint64_t x) { return __builtin_bit_cast(double, x); }

inline constexpr float kInfinity = __builtin_inff();

/// Upper and lower bound that keep a nan.
template <class T>
LUCID_INLINE T at_most(T x, T high) {
  return x > high ? high : x;
}
template <class T>
LUCID_INLINE T at_least(T x, T low) {
  return x < low ? low : x;
}

LUCID_INLINE float absolute(float x) { return from_bits(bits(x) & 0x7fffffffu); }
LUCID_INLINE double absolute(double x) { return from_bits(bits(x) & 0x7fffffffffffffffu); }

/// |x| with the sign of `sign`.
LUCID_INLINE float with_sign(float x, float sign) {
  return from_bits((bits(x) & 0x7fffffffu) | (bits(sign) & 0x80000000u));
}
LUCID_INLINE double with_sign(double x, double sign) {
  return from_bits((bits(x) & 0x7fffffffffffffffu) | (bits(sign) & 0x8000000000000000u));
}

/// c[0] + c[1] x + c[2] x^2 + ... by Horner's rule in fma.
template <class T, size_t N>
LUCID_INLINE T polynomial(T x, const T (&c)[N]) {
  T sum = c[N - 1];
#pragma GCC unroll 16
  for (size_t i = N - 1; i > 0; --i) sum = fma(sum, x, c[i - 1]);
  return sum;
}

/// Same conversions as support/half.h, free of branches.
LUCID_INLINE float widen(BFloat16 x) { return from_bits(static_cast<uint32_t>(x.bits) << 16); }

LUCID_INLINE float widen(Float16 x) {
  const uint32_t half = x.bits;
  const float scaled = from_bits((half & 0x7fffu) << 13) * 0x1p112f;
  const uint32_t special = (half & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  return from_bits(((half & 0x8000u) << 16) | special | bits(scaled));
}

template <class Half>
Half narrow(float x);

template <>
LUCID_INLINE BFloat16 narrow<BFloat16>(float x) {
  const uint32_t b = bits(x);
  const uint32_t nan = (b >> 16) | 0x40u;
  const uint32_t rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
  return {static_cast<uint16_t>((b & 0x7fffffffu) > 0x7f800000u ? nan : rounded)};
}

template <>
LUCID_INLINE Float16 narrow<Float16>(float x) {
  const uint32_t sign = (bits(x) >> 16) & 0x8000u;
  const uint32_t magnitude = bits(x) & 0x7fffffffu;
  const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  // Below 2^-14 the adder rounds at 2^-24.
  const uint32_t subnormal = bits(from_bits(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;
  half = magnitude > 0x7f800000u ? 0x7e00u : half;
  return {static_cast<uint16_t>(sign | half)};
}

}  // namespace lucid::cpu::LUCID_ISA

// Divisions with remainder, and powers.
#include <array>

#include "backends/cpu/simd/exponential.h"
#include "backends/cpu/simd/loops.h"
#include "backends/cpu/simd/tables.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

// fmod of floats is exact, so libm's bits are the same everywhere.
LUCID_INLINE float float_fmod(float a, float b) { return __builtin_fmodf(a, b); }
LUCID_INLINE double float_fmod(double a, double b) { return __builtin_fmod(a, b); }
LUCID_INLINE float round_down(float x) { return __builtin_floorf(x); }
LUCID_INLINE double round_down(double x) { return __builtin_floor(x); }

/// True if the quotient of integers would trap: by 0, or the least value by -1.
template <class T>
LUCID_INLINE bool divides(T b) {
  return b != T{0} && (std::is_unsigned_v<T> || b != static_cast<T>(-1));
}

/// Remainder with the sign of the dividend.
struct Fmod {
  template <class T>
  LUCID_INLINE T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return float_fmod(a, b);
    } else {
      return divides(b) ? static_cast<T>(a % b) : T{0};
    }
  }
};

/// Remainder with the sign of the divisor.
struct Remainder {
  template <class T>
  LUCID_INLINE T operator()(T a, T b) const {
    const T rest = Fmod{}(a, b);
    const bool other_sign = rest != T{0} && (rest < T{0}) != (b < T{0});
    if constexpr (std::is_floating_point_v<T>) {
      return rest == T{0} ? with_sign(T{0}, b) : (other_sign ? rest + b : rest);
    } else {
      return other_sign ? static_cast<T>(rest + b) : rest;
    }
  }
};

/// Floor of the quotient. Of floats as Python defines it: (a - remainder) / b, made whole.
struct FloorDivide {
  template <class T>
  LUCID_INLINE T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      const T rest = float_fmod(a, b);
      const bool other_sign = rest != T{0} && (rest < T{0}) != (b < T{0});
      const T quotient = (a - rest) / b - (other_sign ? T{1} : T{0});
      const T down = round_down(quotient);
      const T whole = quotient - down > T(0.5) ? down + T{1} : down;
      const T plain = a / b;
      return b == T{0} ? plain : (quotient == T{0} ? with_sign(T{0}, plain) : whole);
    } else {
      if (b == T{0}) return T{0};
      if (!divides(b)) return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(a));
      const T quotient = static_cast<T>(a / b);
      const T rest = static_cast<T>(a % b);
      const bool down = rest != T{0} && (rest < T{0}) != (b < T{0});
      return static_cast<T>(quotient - (down ? 1 : 0));
    }
  }
};

/// Of integers by squaring, wrapping around; a negative exponent gives 0 unless the base is 1 or
/// -1.
struct Pow {
  LUCID_INLINE float operator()(float a, float b) const { return pow(a, b); }
  LUCID_INLINE double operator()(double a, double b) const { return pow(a, b); }
  template <class T>
  LUCID_INLINE T operator()(T a, T b) const {
    if (b < T{0}) {
      if (a == T{1}) return a;
      return static_cast<T>(a == static_cast<T>(-1) ? (b % 2 != 0 ? -1 : 1) : 0);
    }
    uint64_t power = static_cast<uint64_t>(a);
    uint64_t result = 1;
    for (uint64_t rest = static_cast<uint64_t>(b); rest != 0; rest >>= 1) {
      if ((rest & 1u) != 0) result *= power;
      power *= power;
    }
    return static_cast<T>(result);
  }
};

constexpr std::array kRows = {
    number_row<Fmod, 2>("fmod"),
    number_row<Remainder, 2>("remainder"),
    number_row<FloorDivide, 2>("floor_divide"),
    number_row<Pow, 2>("pow"),
};

}  // namespace

std::span<const TileRow> division_tiles() { return kRows; }

}  // namespace lucid::cpu::LUCID_ISA

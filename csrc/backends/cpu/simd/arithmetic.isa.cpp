// Sums, products, extrema, rounding, selection and the other operations of one or two instructions.
#include <array>

#include "backends/cpu/simd/loops.h"
#include "backends/cpu/simd/tables.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

template <class T>
inline constexpr bool kIsFloating = std::is_floating_point_v<T>;

/// Type in which integers wrap around without undefined overflow.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

struct Add {
  template <class T>
  LUCID_INLINE T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>)
      return a || b;
    else if constexpr (kIsFloating<T>)
      return a + b;
    else
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};

struct Sub {
  template <class T>
  LUCID_INLINE T operator()(T a, T b) const {
    if constexpr (kIsFloating<T>)
      return a - b;
    else
      return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
  }
};

struct Mul {
  template <class T>
  LUCID_INLINE T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>)
      return a && b;
    else if constexpr (kIsFloating<T>)
      return a * b;
    else
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};

struct Neg {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    if constexpr (kIsFloating<T>)
      return -x;
    else
      return static_cast<T>(Wrapping<T>{0} - static_cast<Wrapping<T>>(x));
  }
};

struct Square {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return Mul{}(x, x);
  }
};

struct Abs {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    if constexpr (kIsFloating<T>)
      return absolute(x);
    else if constexpr (std::is_unsigned_v<T>)
      return x;
    else
      return x < 0 ? Neg{}(x) : x;
  }
};

/// -1, 0 or 1; a nan stays.
struct Sign {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    const T nonzero = x > T{0} ? T{1} : static_cast<T>(x < T{0} ? -1 : 0);
    if constexpr (kIsFloating<T>)
      return x == x ? nonzero : x;
    else
      return nonzero;
  }
};

/// A nan of either side is the result.
struct Maximum {
  template <class T>
  LUCID_INLINE T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>)
      return a || b;
    else
      return ((a > b) | (a != a)) ? a : b;
  }
};
struct Minimum {
  template <class T>
  LUCID_INLINE T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>)
      return a && b;
    else
      return ((a < b) | (a != a)) ? a : b;
  }
};

/// A nan stays.
struct Relu {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return x < T{0} ? T{0} : x;
  }
};

/// min(max(x, low), high); a nan of any input is the result.
struct Clamp {
  template <class T>
  LUCID_INLINE T operator()(T x, T low, T high) const {
    T y = at_most(at_least(x, low), high);
    if constexpr (kIsFloating<T>) {
      y = low == low ? y : low;
      y = high == high ? y : high;
    }
    return y;
  }
};

struct LeakyRelu {
  explicit LeakyRelu(const double* parameters) : slope(parameters[0]) {}
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return x < T{0} ? x * static_cast<T>(slope) : x;
  }
  double slope;
};

struct Floor {
  LUCID_INLINE float operator()(float x) const { return __builtin_floorf(x); }
  LUCID_INLINE double operator()(double x) const { return __builtin_floor(x); }
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return x;
  }
};
struct Ceil {
  LUCID_INLINE float operator()(float x) const { return __builtin_ceilf(x); }
  LUCID_INLINE double operator()(double x) const { return __builtin_ceil(x); }
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return x;
  }
};
struct Trunc {
  LUCID_INLINE float operator()(float x) const { return __builtin_truncf(x); }
  LUCID_INLINE double operator()(double x) const { return __builtin_trunc(x); }
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return x;
  }
};
/// Half to even, which is the rounding mode of the process.
struct Round {
  LUCID_INLINE float operator()(float x) const { return __builtin_rintf(x); }
  LUCID_INLINE double operator()(double x) const { return __builtin_rint(x); }
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return x;
  }
};

LUCID_INLINE float square_root(float x) { return __builtin_sqrtf(x); }
LUCID_INLINE double square_root(double x) { return __builtin_sqrt(x); }

struct Sqrt {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return square_root(x);
  }
};
struct Rsqrt {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return T{1} / square_root(x);
  }
};
struct Reciprocal {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return T{1} / x;
  }
};
struct Div {
  template <class T>
  LUCID_INLINE T operator()(T a, T b) const {
    return a / b;
  }
};

/// where: moves bits, so dtypes of one size share a loop.
template <class T>
void select_tile(const void* const* inputs, void* output, int64_t count, const double*) {
  const uint8_t* condition = static_cast<const uint8_t*>(inputs[0]);
  const T* a = static_cast<const T*>(inputs[1]);
  const T* b = static_cast<const T*>(inputs[2]);
  T* y = static_cast<T*>(output);
  LUCID_LOOP
  for (int64_t i = 0; i < count; ++i) {
    const T chosen = a[i];
    const T other = b[i];
    y[i] = condition[i] != 0 ? chosen : other;
  }
}

constexpr TileFn select_of(int64_t item_bytes) {
  switch (item_bytes) {
    case 1:
      return select_tile<uint8_t>;
    case 2:
      return select_tile<uint16_t>;
    case 4:
      return select_tile<uint32_t>;
    default:
      return select_tile<uint64_t>;
  }
}

constexpr TileRow where_row() {
  TileRow row{"where"};
  for (size_t i = 0; i < kNumDTypes; ++i) {
    row.by_dtype[i] = select_of(size_bytes(static_cast<DType>(i)));
  }
  return row;
}

constexpr std::array kRows = {
    any_row<Add, 2>("add"),
    number_row<Sub, 2>("sub"),
    any_row<Mul, 2>("mul"),
    floating_row<Div, 2>("div"),
    number_row<Neg, 1>("neg"),
    number_row<Square, 1>("square"),
    number_row<Abs, 1>("abs"),
    number_row<Sign, 1>("sign"),
    any_row<Maximum, 2>("maximum"),
    any_row<Minimum, 2>("minimum"),
    number_row<Relu, 1>("relu"),
    floating_row<LeakyRelu, 1>("leaky_relu"),
    number_row<Clamp, 3>("clamp"),
    where_row(),
    number_row<Floor, 1>("floor"),
    number_row<Ceil, 1>("ceil"),
    number_row<Round, 1>("round"),
    number_row<Trunc, 1>("trunc"),
    floating_row<Sqrt, 1>("sqrt"),
    floating_row<Rsqrt, 1>("rsqrt"),
    floating_row<Reciprocal, 1>("reciprocal"),
};

}  // namespace

std::span<const TileRow> arithmetic_tiles() { return kRows; }

}  // namespace lucid::cpu::LUCID_ISA

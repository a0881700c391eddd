// Conversions between dtypes.
#include <array>

#include "backends/cpu/simd/loops.h"
#include "backends/cpu/simd/tables.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

/// x rounded to odd: rounding the result again to a half is the same as rounding x once
/// (Boldo and Melquiond 2008).
LUCID_INLINE float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  const uint32_t toward_zero = absolute(back) > absolute(x) ? bits(nearest) - 1u : bits(nearest);
  return back == x || x != x ? nearest : from_bits(toward_zero | 1u);
}

/// Integer of a float: 0 of nan; saturates at the bounds of Int.
template <class Int, class T>
LUCID_INLINE Int saturate(T x) {
  constexpr T kBound = sizeof(Int) == 8 ? T(0x1p63) : T(0x1p31);
  constexpr Int kMost = static_cast<Int>(sizeof(Int) == 8 ? INT64_MAX : INT32_MAX);
  const bool high = x >= kBound;
  const bool low = x < -kBound;
  const Int whole = static_cast<Int>(high || low || x != x ? T{0} : x);
  return high ? kMost : (low ? static_cast<Int>(-kMost - 1) : whole);
}

template <class To, class From>
LUCID_INLINE To convert(From x) {
  if constexpr (kIsHalf<From>) {
    return convert<To>(widen(x));
  } else if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From{0};
  } else if constexpr (kIsHalf<To>) {
    if constexpr (std::is_same_v<From, float> || sizeof(From) <= 2) {
      return narrow<To>(static_cast<float>(x));
    } else {
      return narrow<To>(round_to_odd(static_cast<double>(x)));
    }
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    using Wide = std::conditional_t<sizeof(To) == 8, int64_t, int32_t>;
    return static_cast<To>(saturate<Wide>(x));
  } else {
    return static_cast<To>(x);
  }
}

template <class From, class To>
void convert_tile(const void* const* inputs, void* output, int64_t count, const double*) {
  const From* x = static_cast<const From*>(inputs[0]);
  To* y = static_cast<To*>(output);
  LUCID_LOOP
  for (int64_t i = 0; i < count; ++i) y[i] = convert<To>(x[i]);
}

template <class From>
constexpr std::array<TileFn, kNumDTypes> row() {
  return {convert_tile<From, bool>,    convert_tile<From, uint8_t>,  convert_tile<From, int8_t>,
          convert_tile<From, int16_t>, convert_tile<From, int32_t>,  convert_tile<From, int64_t>,
          convert_tile<From, Float16>, convert_tile<From, BFloat16>, convert_tile<From, float>,
          convert_tile<From, double>};
}

/// A bool is read as its byte, 0 or 1.
constexpr std::array<std::array<TileFn, kNumDTypes>, kNumDTypes> kTable = {
    row<uint8_t>(), row<uint8_t>(), row<int8_t>(),   row<int16_t>(), row<int32_t>(),
    row<int64_t>(), row<Float16>(), row<BFloat16>(), row<float>(),   row<double>()};

}  // namespace

TileFn cast_tile(DType from, DType to) { return kTable[place(from)][place(to)]; }

}  // namespace lucid::cpu::LUCID_ISA

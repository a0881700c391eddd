// Trigonometric functions and their inverses.
#include "backends/cpu/simd/trigonometric.h"

#include <array>

#include "backends/cpu/simd/loops.h"
#include "backends/cpu/simd/tables.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

struct Asin {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return asin(x);
  }
};
struct Acos {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return acos(x);
  }
};
struct Atan {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return atan(x);
  }
};
struct Atan2 {
  template <class T>
  LUCID_INLINE T operator()(T a, T b) const {
    return atan2(a, b);
  }
};

/// Function F of a circle on doubles.
template <class F>
struct OfDouble {
  LUCID_INLINE double operator()(double x) const { return F::of(x); }
};

LUCID_INLINE bool is_large(float x) {
  return (bits(x) & 0x7fffffffu) > bits(kDirectAngle) && absolute(x) < kInfinity;
}

/// F of any float; kOdd keeps -0.
template <class F, bool kOdd>
float any_angle(float x) {
  if (is_large(x)) return static_cast<float>(F::of(reduce_large_angle(x)));
  return direct_angle<F>(x, kOdd);
}

/// Blocks that hold a large angle take the slow loop, whose other elements have the same bits.
template <class F, bool kOdd>
void angle_tile(const void* const* inputs, void* output, int64_t count, const double*) {
  constexpr int64_t kBlock = 256;
  const float* x = static_cast<const float*>(inputs[0]);
  float* y = static_cast<float*>(output);
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = count - begin < kBlock ? count : begin + kBlock;
    uint32_t any_large = 0;
    for (int64_t i = begin; i < end; ++i) any_large |= is_large(x[i]) ? 1u : 0u;
    if (any_large != 0) {
      for (int64_t i = begin; i < end; ++i) y[i] = any_angle<F, kOdd>(x[i]);
      continue;
    }
    LUCID_LOOP
    for (int64_t i = begin; i < end; ++i) y[i] = direct_angle<F>(x[i], kOdd);
  }
}

template <class F, bool kOdd>
constexpr TileRow angle_row(std::string_view op) {
  TileRow row{op};
  constexpr TileFn kFloat = angle_tile<F, kOdd>;
  row.by_dtype[place(DType::kFloat16)] = half_tile<Float16, kFloat, 1, false>;
  row.by_dtype[place(DType::kBFloat16)] = half_tile<BFloat16, kFloat, 1, false>;
  row.by_dtype[place(DType::kFloat32)] = kFloat;
  row.by_dtype[place(DType::kFloat64)] = unary<OfDouble<F>, double, double>;
  return row;
}

constexpr std::array kRows = {
    angle_row<Sin, true>("sin"),     angle_row<Cos, false>("cos"),  angle_row<Tan, true>("tan"),
    floating_row<Asin, 1>("asin"),   floating_row<Acos, 1>("acos"), floating_row<Atan, 1>("atan"),
    floating_row<Atan2, 2>("atan2"),
};

}  // namespace

std::span<const TileRow> trigonometric_tiles() { return kRows; }

}  // namespace lucid::cpu::LUCID_ISA

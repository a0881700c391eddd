// Shapes, dtypes and the conversions of half formats.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/dtype.h"
#include "support/errors.h"
#include "support/half.h"
#include "support/shape.h"
#include "testing.h"

namespace lucid {
namespace {

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }

// The value of a binary16 by its definition: IEEE 754-2019, 3.4.
double float16_value(uint16_t bits) {
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  if (exponent == 31 && fraction != 0) return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 31) return sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

// Rounds a finite, not negative x to binary16 by the definition of nearest-even.
uint16_t rounded_to_float16(double x) {
  uint16_t low = 0;  // the largest float16 <= x, by bisection over the ordered patterns
  uint16_t high = 0x7c00;
  while (high - low > 1) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    (float16_value(middle) <= x ? low : high) = middle;
  }
  const double next = high == 0x7c00 ? 65536.0 : float16_value(high);
  const double below = x - float16_value(low);
  const double above = next - x;
  if (below != above) return below < above ? low : high;
  return (low & 1) == 0 ? low : high;
}

}  // namespace

TEST(shape_of_no_axes_is_one_element) {
  const Shape scalar;
  CHECK_EQ(scalar.rank(), 0);
  CHECK_EQ(scalar.num_elements(), 1);
  CHECK_EQ(to_string(scalar), "()");
}

TEST(shape_text_and_strides) {
  const Shape shape{2, 3, 4};
  CHECK_EQ(to_string(shape), "(2, 3, 4)");
  CHECK_EQ(to_string(Shape{4}), "(4,)");
  CHECK_EQ(shape.num_elements(), 24);
  CHECK_EQ(shape.strides()[0], 12);
  CHECK_EQ(shape.strides()[2], 1);
  CHECK(shape.with(1, 5) == Shape{2, 5, 4});
  CHECK(!(Shape{1} == Shape{}));
}

TEST(shape_limits) {
  CHECK_EQ((Shape{1, 1, 1, 1, 1, 1, 1, 1}).rank(), 8);
  CHECK_THROWS((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), Error,
               "tensor of 9 axes: at most 8 are supported; merge axes with reshape");
  CHECK_THROWS((Shape{2, -3}), Error, "negative size -3 in a shape");
  constexpr int64_t kHuge = int64_t{1} << 59;
  CHECK_EQ(Shape{kHuge}.num_elements(), kHuge);
  CHECK_THROWS((Shape{2 * kHuge}), Error, "has 2^60 elements or more");
  CHECK_THROWS((Shape{kHuge, 2}), Error, "shape (576460752303423488, 2) has 2^60 elements or more");
  CHECK_THROWS((Shape{1 << 30, 1 << 30, 1 << 30}), Error, "has 2^60 elements or more");
  // An empty one may have any sizes beside the zero.
  CHECK_EQ((Shape{kHuge, kHuge, 0}).num_elements(), 0);
}

TEST(dtype_names_go_both_ways) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    CHECK(dtype_from_name(name(dtype)) == dtype);
  }
  CHECK(!dtype_from_name("float8"));
  CHECK_EQ(size_bytes(DType::kBFloat16), 2);
}

TEST(dtype_promotion) {
  CHECK_EQ(promote(DType::kBool, DType::kBool), DType::kBool);
  CHECK_EQ(promote(DType::kBool, DType::kUInt8), DType::kUInt8);
  CHECK_EQ(promote(DType::kUInt8, DType::kInt8), DType::kInt16);
  CHECK_EQ(promote(DType::kInt8, DType::kUInt8), DType::kInt16);
  CHECK_EQ(promote(DType::kUInt8, DType::kInt32), DType::kInt32);
  CHECK_EQ(promote(DType::kInt64, DType::kFloat16), DType::kFloat16);
  CHECK_EQ(promote(DType::kBFloat16, DType::kFloat16), DType::kFloat32);
  CHECK_EQ(promote(DType::kBFloat16, DType::kFloat32), DType::kFloat32);
  CHECK_EQ(promote(DType::kFloat32, DType::kFloat64), DType::kFloat64);
  for (int i = 0; i < kNumDTypes; ++i) {
    for (int j = 0; j < kNumDTypes; ++j) {
      const auto lhs = static_cast<DType>(i);
      const auto rhs = static_cast<DType>(j);
      CHECK_EQ(promote(lhs, rhs), promote(rhs, lhs));
    }
  }
}

TEST(float16_reads_every_pattern) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const Float16 half{static_cast<uint16_t>(bits)};
    const float read = to_float(half);
    const double wanted = float16_value(half.bits);
    if (std::isnan(wanted)) {
      CHECK(std::isnan(read));
      continue;
    }
    CHECK_EQ(bits_of(read), bits_of(static_cast<float>(wanted)));
    CHECK_EQ(to_float16(read).bits, half.bits);
  }
}

TEST(float16_rounds_to_nearest_even) {
  // Around every finite pattern: the halfway point to the next, and its neighbours.
  for (uint16_t bits = 0; bits < 0x7c00; ++bits) {
    const double here = float16_value(bits);
    const double next = bits == 0x7bff ? 65536.0 : float16_value(static_cast<uint16_t>(bits + 1));
    const auto halfway = static_cast<float>((here + next) / 2);  // exact in binary32
    for (const float x : {std::nextafter(halfway, 0.0f), halfway, std::nextafter(halfway, 1e9f)}) {
      CHECK_EQ(to_float16(x).bits, rounded_to_float16(x));
      CHECK_EQ(to_float16(-x).bits, rounded_to_float16(x) | 0x8000u);
    }
  }
}

TEST(float16_special_values) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  CHECK_EQ(to_float16(kInf).bits, 0x7c00);
  CHECK_EQ(to_float16(-kInf).bits, 0xfc00);
  CHECK_EQ(to_float16(65519.996f).bits, 0x7bff);
  CHECK_EQ(to_float16(65520.0f).bits, 0x7c00);
  CHECK_EQ(to_float16(std::numeric_limits<float>::max()).bits, 0x7c00);
  CHECK_EQ(to_float16(-0.0f).bits, 0x8000);
  CHECK_EQ(to_float16(0x1p-25f).bits, 0);  // halfway to the smallest: even is zero
  CHECK_EQ(to_float16(0x1.8p-25f).bits, 1);
  CHECK_EQ(to_float16(std::numeric_limits<float>::denorm_min()).bits, 0);
  CHECK(std::isnan(to_float(to_float16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(bfloat16_rounds_to_nearest_even) {
  // By the upper half u of a binary32 and the lower half: below, at and above halfway.
  for (uint32_t upper = 0; upper < 0x7f80u; ++upper) {
    const auto make = [&](uint32_t lower) { return std::bit_cast<float>(upper << 16 | lower); };
    CHECK_EQ(to_bfloat16(make(0)).bits, upper);
    CHECK_EQ(to_bfloat16(make(0x7fffu)).bits, upper);
    CHECK_EQ(to_bfloat16(make(0x8000u)).bits, upper + (upper & 1u));
    CHECK_EQ(to_bfloat16(make(0x8001u)).bits, upper + 1);
    CHECK_EQ(to_bfloat16(-make(0x8001u)).bits, (upper + 1) | 0x8000u);
  }
  CHECK_EQ(to_bfloat16(std::numeric_limits<float>::infinity()).bits, 0x7f80);
  CHECK_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

TEST(bfloat16_keeps_nan) {
  for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0x7fc00000u}) {
    const BFloat16 half = to_bfloat16(std::bit_cast<float>(bits));
    CHECK(std::isnan(to_float(half)));
    CHECK_EQ(half.bits >> 15, bits >> 31);
  }
}

}  // namespace lucid

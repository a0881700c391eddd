// Element-wise tiles and the kernels made of them: accuracy in ULP, special values, equal bits for
// body, tail, alignment and instruction set, integers, half types and conversions.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "backends/cpu/simd/tables.h"
#include "backends/cpu/simd/tile.h"
#include "support/half.h"
#include "testing.h"

namespace {

using namespace lucid;
using namespace lucid::cpu;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class T>
std::vector<T> run(TileFn tile, const std::vector<const void*>& inputs, size_t count,
                   const double* parameters = nullptr) {
  std::vector<T> output(count);
  tile(inputs.data(), output.data(), static_cast<int64_t>(count), parameters);
  return output;
}

template <class T>
T run_one(std::string_view op, DType dtype, T x, const double* parameters = nullptr) {
  return run<T>(find_tile(op, dtype), {&x}, 1, parameters)[0];
}

template <class T>
T run_one(std::string_view op, DType dtype, T a, T b, const double* parameters = nullptr) {
  return run<T>(find_tile(op, dtype), {&a, &b}, 1, parameters)[0];
}

/// Distance in units of the last place of the wanted value's binade.
double ulp_error(float got, long double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0.0 : 1e9;
  const float nearest = static_cast<float>(want);
  if (got == nearest)
    return std::isinf(got)
               ? 0.0
               : static_cast<double>(std::fabs(
                     (static_cast<long double>(got) - want) /
                     std::ldexp(1.0L, std::max(std::ilogb(want == 0 ? 1.0L : want) - 23, -149))));
  if (std::isnan(got) || (std::isinf(got) && std::isinf(nearest))) return 1e9;
  const long double finite = std::isinf(got)
                                 ? std::copysign(0x1p128L, static_cast<long double>(got))
                                 : static_cast<long double>(got);
  const int exponent = std::max(std::min(std::ilogb(want), 127) - 23, -149);
  return static_cast<double>(std::fabs(finite - want) / std::ldexp(1.0L, exponent));
}

/// Floats of all exponents and both signs, denser around 1, and the special ones.
std::vector<float> sample_floats() {
  std::vector<float> x = {0.0f,
                          -0.0f,
                          kInf,
                          -kInf,
                          kNan,
                          1.0f,
                          -1.0f,
                          0x1p-149f,
                          -0x1p-149f,
                          0x1p-126f,
                          -0x1p-126f,
                          std::numeric_limits<float>::max(),
                          std::numeric_limits<float>::lowest(),
                          88.72284f,
                          -103.97f,
                          0.5f};
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 40961) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  std::mt19937 generator(7);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  for (int i = 0; i < 60000; ++i) x.push_back(normal(generator));
  for (int i = 0; i < 30000; ++i) x.push_back(1.0f + 0.1f * normal(generator));
  for (int i = 0; i < 20000; ++i) x.push_back(30.0f * normal(generator));
  return x;
}

using Reference = long double (*)(long double);

long double sigmoid(long double x) { return 1.0L / (1.0L + std::exp(-x)); }
long double silu(long double x) { return x * sigmoid(x); }
long double gelu(long double x) { return x * 0.5L * std::erfc(-x * std::sqrt(0.5L)); }
long double gelu_tanh(long double x) {
  const long double u = std::sqrt(2.0L / 3.14159265358979323846L) * (x + 0.044715L * x * x * x);
  return x * sigmoid(2.0L * u);
}
long double softplus(long double x) {
  return x > 10.0L ? x : std::log1p(std::exp(2.0L * x)) / 2.0L;
}

struct AccuracyRow {
  std::string_view op;
  Reference reference;
  double bound;  // ULP
  double parameters[2] = {};
};

const AccuracyRow kAccuracy[] = {
    {"exp", [](long double x) { return std::exp(x); }, 1.1},
    {"expm1", [](long double x) { return std::expm1(x); }, 0.52},
    {"log", [](long double x) { return std::log(x); }, 0.9},
    {"log1p", [](long double x) { return std::log1p(x); }, 0.51},
    {"log2", [](long double x) { return std::log2(x); }, 0.51},
    {"log10", [](long double x) { return std::log10(x); }, 0.51},
    {"sin", [](long double x) { return std::sin(x); }, 0.51},
    {"cos", [](long double x) { return std::cos(x); }, 0.51},
    {"tan", [](long double x) { return std::tan(x); }, 0.51},
    {"asin", [](long double x) { return std::asin(x); }, 0.51},
    {"acos", [](long double x) { return std::acos(x); }, 0.51},
    {"atan", [](long double x) { return std::atan(x); }, 0.51},
    {"sinh", [](long double x) { return std::sinh(x); }, 0.52},
    {"cosh", [](long double x) { return std::cosh(x); }, 0.52},
    {"tanh", [](long double x) { return std::tanh(x); }, 2.5},
    {"asinh", [](long double x) { return std::asinh(x); }, 0.51},
    {"acosh", [](long double x) { return std::acosh(x); }, 0.51},
    {"atanh", [](long double x) { return std::atanh(x); }, 0.51},
    {"erf", [](long double x) { return std::erf(x); }, 1.0},
    {"erfc", [](long double x) { return std::erfc(x); }, 5.0},
    {"sigmoid", sigmoid, 2.5},
    {"silu", silu, 2.7},
    {"gelu", gelu, 5.0, {0.0}},
    {"gelu", gelu_tanh, 2.7, {1.0}},
    {"softplus", softplus, 0.52, {2.0, 20.0}},
    {"sqrt", [](long double x) { return std::sqrt(x); }, 0.5},
    {"rsqrt", [](long double x) { return 1.0L / std::sqrt(x); }, 1.5},
    {"reciprocal", [](long double x) { return 1.0L / x; }, 0.5},
    {"floor", [](long double x) { return std::floor(x); }, 0.0},
    {"ceil", [](long double x) { return std::ceil(x); }, 0.0},
    {"trunc", [](long double x) { return std::trunc(x); }, 0.0},
    {"round", [](long double x) { return std::nearbyint(x); }, 0.0},
};

TEST(accuracy_in_ulp) {
  const std::vector<float> x = sample_floats();
  for (const AccuracyRow& row : kAccuracy) {
    const std::vector<float> y =
        run<float>(find_tile(row.op, DType::kFloat32), {x.data()}, x.size(), row.parameters);
    double worst = 0.0;
    float worst_at = 0.0f;
    for (size_t i = 0; i < x.size(); ++i) {
      const double error = ulp_error(y[i], row.reference(static_cast<long double>(x[i])));
      if (error > worst) {
        worst = error;
        worst_at = x[i];
      }
    }
    if (worst <= row.bound) continue;
    std::cerr << row.op << ": " << worst << " ulp at " << worst_at << '\n';
    CHECK(worst <= row.bound);
  }
}

// The slope passes through 0 near -0.75, where only its distance from the true one means something.
TEST(gelu_slopes) {
  const auto exact = [](long double x) {
    return 0.5L * std::erfc(-x * std::sqrt(0.5L)) +
           x * std::exp(-0.5L * x * x) / std::sqrt(2.0L * 3.14159265358979323846L);
  };
  const auto by_tanh = [](long double x) {
    const long double scale = 2.0L * std::sqrt(2.0L / 3.14159265358979323846L);
    const long double s = sigmoid(scale * (x + 0.044715L * x * x * x));
    return s + x * s * (1.0L - s) * scale * (1.0L + 3.0L * 0.044715L * x * x);
  };
  for (const double form : {0.0, 1.0}) {
    const double parameters[2] = {form, 0.0};
    for (float x = -16.0f; x <= 16.0f; x += 0.00390625f) {
      const long double wide = static_cast<long double>(x);
      const long double want = form == 1.0 ? by_tanh(wide) : exact(wide);
      const float got = run_one("gelu_grad", DType::kFloat32, 1.0f, x, parameters);
      CHECK(std::abs(static_cast<long double>(got) - want) < 2e-7L);
    }
    CHECK_EQ(run_one("gelu_grad", DType::kFloat32, 1.0f, kInf, parameters), 1.0f);
    CHECK(std::isnan(run_one("gelu_grad", DType::kFloat32, 1.0f, -kInf, parameters)));
    CHECK(std::isnan(run_one("gelu_grad", DType::kFloat32, 1.0f, kNan, parameters)));
  }
}

TEST(large_angles) {
  // Values of sin and cos of the floats' exact values, from the libm of long double.
  for (const float x : {0x1.8p40f, 1e15f, -1e22f, 3.4e38f, 0x1.921fb6p+60f, -0x1.fffffep127f}) {
    const long double wide = static_cast<long double>(x);
    CHECK(ulp_error(run_one("sin", DType::kFloat32, x), std::sin(wide)) <= 0.51);
    CHECK(ulp_error(run_one("cos", DType::kFloat32, x), std::cos(wide)) <= 0.51);
    CHECK(ulp_error(run_one("tan", DType::kFloat32, x), std::tan(wide)) <= 0.51);
  }
}

TEST(signed_zeros_stay) {
  constexpr double kNone[2] = {0.0, 0.0};
  for (const std::string_view op : {"sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh",
                                    "erf", "expm1", "log1p", "gelu", "silu", "relu", "round"}) {
    CHECK_EQ(std::bit_cast<uint32_t>(run_one("abs", DType::kFloat32, -0.0f)), 0u);
    CHECK_EQ(std::bit_cast<uint32_t>(run_one(op, DType::kFloat32, -0.0f, kNone)), 0x80000000u);
    CHECK_EQ(std::bit_cast<uint32_t>(run_one(op, DType::kFloat32, 0.0f, kNone)), 0u);
  }
}

TEST(pow_has_the_special_values_of_c) {
  std::vector<float> values = {0.0f,    -0.0f,   1.0f,         -1.0f,  0.5f,    -0.5f,
                               2.0f,    -2.0f,   3.0f,         -3.0f,  2.5f,    -2.5f,
                               0x1p24f, 0x1p25f, -16777215.0f, 1e30f,  -1e30f,  kInf,
                               -kInf,   kNan,    0x1p-149f,    127.0f, -149.0f, -150.0f};
  std::mt19937 generator(3);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  for (int i = 0; i < 200; ++i) values.push_back(normal(generator));
  for (const float a : values) {
    for (const float b : values) {
      const float got = run_one("pow", DType::kFloat32, a, b);
      const long double want = std::pow(static_cast<long double>(a), static_cast<long double>(b));
      CHECK(ulp_error(got, want) <= 0.52);
      if (!std::isnan(want)) CHECK_EQ(std::signbit(got), std::signbit(want));
      if (ulp_error(got, want) > 0.52) std::cerr << a << " to " << b << " is " << got << '\n';
    }
  }
}

TEST(atan2_of_all_quadrants) {
  const float values[] = {0.0f, -0.0f, 1.0f, -1.0f, 0.1f, -7.0f, 1e30f, 1e-40f, kInf, -kInf, kNan};
  for (const float y : values) {
    for (const float x : values) {
      const float got = run_one("atan2", DType::kFloat32, y, x);
      const long double want = std::atan2(static_cast<long double>(y), static_cast<long double>(x));
      CHECK(ulp_error(got, want) <= 0.51);
      if (!std::isnan(want)) CHECK_EQ(std::signbit(got), std::signbit(want));
    }
  }
}

TEST(nans_and_extrema) {
  CHECK(std::isnan(run_one("maximum", DType::kFloat32, 1.0f, kNan)));
  CHECK(std::isnan(run_one("maximum", DType::kFloat32, kNan, 1.0f)));
  CHECK(std::isnan(run_one("minimum", DType::kFloat32, 1.0f, kNan)));
  CHECK(std::isnan(run_one("minimum", DType::kFloat64, std::nan(""), 1.0)));
  CHECK(std::isnan(run_one("relu", DType::kFloat32, kNan)));
  CHECK(std::isnan(run_one("sign", DType::kFloat32, kNan)));
  const float x[] = {kNan, -2.0f, 0.5f, 9.0f, kInf};
  const float low[] = {-1.0f, -1.0f, -1.0f, -1.0f, -1.0f};
  const float high[] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f};
  const std::vector<float> y = run<float>(find_tile("clamp", DType::kFloat32), {x, low, high}, 5);
  CHECK(std::isnan(y[0]));
  CHECK_EQ(std::vector<float>(y.begin() + 1, y.end()),
           (std::vector<float>{-1.0f, 0.5f, 1.0f, 1.0f}));
}

TEST(divisions_of_floats_follow_python) {
  CHECK_EQ(run_one("remainder", DType::kFloat32, -7.0f, 3.0f), 2.0f);
  CHECK_EQ(run_one("remainder", DType::kFloat32, 7.0f, -3.0f), -2.0f);
  CHECK_EQ(run_one("fmod", DType::kFloat32, -7.0f, 3.0f), -1.0f);
  CHECK_EQ(run_one("floor_divide", DType::kFloat32, -7.0f, 3.0f), -3.0f);
  CHECK_EQ(run_one("floor_divide", DType::kFloat64, 1.0, 0.1), 9.0);
  CHECK_EQ(run_one("floor_divide", DType::kFloat32, 1.0f, 0.0f), kInf);
  CHECK(std::isnan(run_one("remainder", DType::kFloat32, 1.0f, 0.0f)));
}

TEST(integers_wrap_and_never_trap) {
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
  constexpr int64_t kLeast64 = std::numeric_limits<int64_t>::min();
  CHECK_EQ(run_one("add", DType::kInt32, std::numeric_limits<int32_t>::max(), 1), kLeast);
  CHECK_EQ(run_one("mul", DType::kInt64, int64_t{1} << 62, int64_t{4}), 0);
  CHECK_EQ(run_one("neg", DType::kInt32, kLeast), kLeast);
  CHECK_EQ(run_one("mul", DType::kUInt8, uint8_t{200}, uint8_t{2}), 144);
  CHECK_EQ(run_one("floor_divide", DType::kInt32, -7, 2), -4);
  CHECK_EQ(run_one("floor_divide", DType::kInt32, 7, 0), 0);
  CHECK_EQ(run_one("floor_divide", DType::kInt32, kLeast, -1), kLeast);
  CHECK_EQ(run_one("floor_divide", DType::kInt64, kLeast64, int64_t{-1}), kLeast64);
  CHECK_EQ(run_one("remainder", DType::kInt32, -7, 3), 2);
  CHECK_EQ(run_one("remainder", DType::kInt32, 7, -3), -2);
  CHECK_EQ(run_one("remainder", DType::kInt64, kLeast64, int64_t{-1}), 0);
  CHECK_EQ(run_one("fmod", DType::kInt32, -7, 3), -1);
  CHECK_EQ(run_one("fmod", DType::kInt32, -7, 0), 0);
  CHECK_EQ(run_one("pow", DType::kInt32, -3, 3), -27);
  CHECK_EQ(run_one("pow", DType::kInt32, 0, 0), 1);
  CHECK_EQ(run_one("pow", DType::kInt32, 2, -1), 0);
  CHECK_EQ(run_one("pow", DType::kInt32, -1, -3), -1);
  CHECK_EQ(run_one("pow", DType::kInt32, 1, kLeast), 1);
  CHECK_EQ(run_one("sign", DType::kInt8, int8_t{-5}), -1);
}

TEST(half_conversions_are_those_of_the_scalar_code) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  const auto wide = run<float>(find_cast(DType::kFloat16, DType::kFloat32), {halves.data()}, 65536);
  const auto wide_b =
      run<float>(find_cast(DType::kBFloat16, DType::kFloat32), {halves.data()}, 65536);
  int differ = 0;
  for (size_t i = 0; i < halves.size(); ++i) {
    const uint32_t want = std::bit_cast<uint32_t>(to_float(Float16{halves[i]}));
    const uint32_t want_b = std::bit_cast<uint32_t>(to_float(BFloat16{halves[i]}));
    differ += std::bit_cast<uint32_t>(wide[i]) != want && !std::isnan(wide[i]);
    differ += std::bit_cast<uint32_t>(wide_b[i]) != want_b && !std::isnan(wide_b[i]);
  }
  const std::vector<float> x = sample_floats();
  const auto half =
      run<uint16_t>(find_cast(DType::kFloat32, DType::kFloat16), {x.data()}, x.size());
  const auto half_b =
      run<uint16_t>(find_cast(DType::kFloat32, DType::kBFloat16), {x.data()}, x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    differ += half[i] != to_float16(x[i]).bits;
    differ += half_b[i] != to_bfloat16(x[i]).bits;
  }
  CHECK_EQ(differ, 0);
}

template <class To, class From>
To cast_one(DType from, DType to, From x) {
  return run<To>(find_cast(from, to), {&x}, 1)[0];
}

TEST(casts_at_the_bounds) {
  CHECK_EQ(cast_one<int32_t>(DType::kFloat32, DType::kInt32, kNan), 0);
  CHECK_EQ(cast_one<int32_t>(DType::kFloat32, DType::kInt32, 3e9f), 2147483647);
  CHECK_EQ(cast_one<int32_t>(DType::kFloat32, DType::kInt32, -kInf), -2147483647 - 1);
  CHECK_EQ(cast_one<int64_t>(DType::kFloat64, DType::kInt64, 1e300), 9223372036854775807);
  CHECK_EQ(cast_one<int32_t>(DType::kFloat32, DType::kInt32, -2.9f), -2);
  CHECK_EQ(cast_one<uint8_t>(DType::kFloat32, DType::kUInt8, 300.0f), 44);
  CHECK_EQ(cast_one<uint8_t>(DType::kFloat32, DType::kUInt8, -1.0f), 255);
  CHECK_EQ(cast_one<uint8_t>(DType::kFloat32, DType::kBool, kNan), 1);
  CHECK_EQ(cast_one<uint8_t>(DType::kFloat32, DType::kBool, -0.0f), 0);
  // 1 + 2^-11 + 2^-40 rounds up in one step; by way of float32 it would be a tie and round down.
  CHECK_EQ(cast_one<uint16_t>(DType::kFloat64, DType::kFloat16, 1.0 + 0x1p-11 + 0x1p-40), 0x3c01);
  CHECK_EQ(cast_one<uint16_t>(DType::kFloat64, DType::kFloat16, 1.0 + 0x1p-11), 0x3c00);
  CHECK_EQ(cast_one<float>(DType::kInt64, DType::kFloat32, int64_t{16777217}), 16777216.0f);
}

/// Random elements; of floats every bit pattern may come, and many of moderate size.
std::vector<char> random_elements(DType dtype, size_t count, uint32_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal(0.0, 3.0);
  const size_t size = static_cast<size_t>(size_bytes(dtype));
  std::vector<char> bytes(count * size);
  for (size_t i = 0; i < count; ++i) {
    uint64_t value = generator();
    if (dtype == DType::kBool) value &= 1u;
    std::memcpy(bytes.data() + i * size, &value, size);
    if (!is_floating(dtype) || i % 3 == 0) continue;
    const double moderate = normal(generator);
    const void* source = &moderate;
    find_cast(DType::kFloat64, dtype, Isa::kBaseline)(&source, bytes.data() + i * size, 1, nullptr);
  }
  return bytes;
}

/// Equal bytes, or both nan.
bool same_element(DType dtype, const char* a, const char* b) {
  if (std::memcmp(a, b, static_cast<size_t>(size_bytes(dtype))) == 0) return true;
  if (!is_floating(dtype)) return false;
  double wide[2];
  const void* sources[2] = {a, b};
  for (int k = 0; k < 2; ++k) {
    find_cast(dtype, DType::kFloat64, Isa::kBaseline)(&sources[k], &wide[k], 1, nullptr);
  }
  return std::isnan(wide[0]) && std::isnan(wide[1]);
}

struct Case {
  DType in;
  DType out;
  bool select = false;  // the first input is bool
};

/// Compares the tile of every instruction set, in one call and in pieces at odd places, with the
/// baseline. Returns the number of elements that differ.
int count_differences(TileFn (*find)(std::string_view, Case, Isa), std::string_view op,
                      Case types) {
  constexpr size_t kCount = 611;
  const double parameters[2] = {1.0, 20.0};
  const size_t in_size = static_cast<size_t>(size_bytes(types.in));
  const size_t out_size = static_cast<size_t>(size_bytes(types.out));
  std::vector<std::vector<char>> data;
  for (uint32_t k = 0; k < 3; ++k) data.push_back(random_elements(types.in, kCount, k));
  if (types.select) data[0] = random_elements(DType::kBool, kCount, 9);
  const auto at = [&](size_t i) {
    const size_t first_size = types.select ? 1 : in_size;
    return std::vector<const void*>{data[0].data() + i * first_size, data[1].data() + i * in_size,
                                    data[2].data() + i * in_size};
  };
  std::vector<char> want(kCount * out_size);
  find(op, types, Isa::kBaseline)(at(0).data(), want.data(), kCount, parameters);
  int differ = 0;
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (!supports(isa)) continue;
    const TileFn tile = find(op, types, isa);
    std::vector<char> whole(kCount * out_size);
    std::vector<char> pieces(kCount * out_size);
    tile(at(0).data(), whole.data(), kCount, parameters);
    for (size_t i = 0, size = 1; i < kCount; i += size, size = size % 37 + 3) {
      const size_t length = std::min(size, kCount - i);
      tile(at(i).data(), pieces.data() + i * out_size, static_cast<int64_t>(length), parameters);
      size = length;
    }
    for (size_t i = 0; i < kCount; ++i) {
      differ += !same_element(types.out, want.data() + i * out_size, whole.data() + i * out_size);
      differ += !same_element(types.out, want.data() + i * out_size, pieces.data() + i * out_size);
    }
  }
  return differ;
}

TEST(bits_depend_on_the_element_alone) {
  int num_tiles = 0;
  for (const auto table :
       {baseline::arithmetic_tiles, baseline::division_tiles, baseline::comparison_tiles,
        baseline::exponential_tiles, baseline::trigonometric_tiles, baseline::activation_tiles}) {
    const bool predicate = table == baseline::comparison_tiles;
    for (const TileRow& row : table()) {
      for (size_t i = 0; i < kNumDTypes; ++i) {
        if (row.by_dtype[i] == nullptr) continue;
        const DType in = static_cast<DType>(i);
        const bool bits = row.op.starts_with("bitwise");
        const Case types{in, predicate && !bits ? DType::kBool : in, row.op == "where"};
        const auto find = [](std::string_view op, Case c, Isa isa) {
          return find_tile(op, c.in, isa);
        };
        const int differ = count_differences(find, row.op, types);
        if (differ != 0) std::cerr << row.op << " of " << name(in) << " differs\n";
        CHECK_EQ(differ, 0);
        ++num_tiles;
      }
    }
  }
  CHECK(num_tiles > 400);
}

TEST(bits_of_casts_depend_on_the_element_alone) {
  for (size_t from = 0; from < kNumDTypes; ++from) {
    for (size_t to = 0; to < kNumDTypes; ++to) {
      const auto find = [](std::string_view, Case c, Isa isa) {
        return find_cast(c.in, c.out, isa);
      };
      CHECK_EQ(count_differences(find, "cast", {static_cast<DType>(from), static_cast<DType>(to)}),
               0);
    }
  }
}

TEST(output_may_be_an_input) {
  const std::vector<float> x = sample_floats();
  for (const std::string_view op : {"exp", "sin", "erf", "log1p", "add", "maximum"}) {
    const TileFn tile = find_tile(op, DType::kFloat32);
    const std::vector<float> want = run<float>(tile, {x.data(), x.data()}, x.size());
    std::vector<float> y = x;
    const void* inputs[2] = {y.data(), y.data()};
    tile(inputs, y.data(), static_cast<int64_t>(y.size()), nullptr);
    CHECK_EQ(std::memcmp(y.data(), want.data(), y.size() * sizeof(float)), 0);
  }
}

}  // namespace

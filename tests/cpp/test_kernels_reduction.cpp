// Kernels of reductions against loops in double.
#include <algorithm>

#include "kernel_testing.h"

namespace lucid::testing {
namespace {

using ir::Attrs;
using ir::Ints;

/// Position in the reduced tensor (kept axes only) of each element of x.
std::vector<size_t> output_places(const Shape& shape, const Ints& dims, size_t* count) {
  std::vector<size_t> places;
  size_t kept = 1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (std::ranges::find(dims, axis) == dims.end()) kept *= static_cast<size_t>(shape[axis]);
  }
  *count = kept;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    int64_t rest = i;
    size_t place = 0;
    size_t stride = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      const auto at = static_cast<size_t>(rest % shape[axis]);
      rest /= shape[axis];
      if (std::ranges::find(dims, axis) != dims.end()) continue;
      place += at * stride;
      stride *= static_cast<size_t>(shape[axis]);
    }
    places.push_back(place);
  }
  return places;
}

double combine(std::string_view op, double total, double x) {
  if (op == "sum") return total + x;
  if (op == "prod") return total * x;
  if (op == "any") return total != 0 || x != 0 ? 1 : 0;
  if (op == "all") return total != 0 && x != 0 ? 1 : 0;
  if (std::isnan(total) || std::isnan(x)) return NAN;
  return op == "amax" ? std::max(total, x) : std::min(total, x);
}

double start(std::string_view op) {
  if (op == "amax") return -INFINITY;
  if (op == "amin") return INFINITY;
  return op == "prod" || op == "all" ? 1 : 0;
}

std::vector<double> reference(std::string_view op, const Value& x, const Ints& dims) {
  size_t count = 0;
  const std::vector<size_t> places = output_places(x.shape(), dims, &count);
  std::vector<double> totals(count, start(op));
  for (size_t i = 0; i < places.size(); ++i) {
    double& total = totals[places[i]];
    total = combine(op, total, x.at(static_cast<int64_t>(i)));
  }
  return totals;
}

struct Case {
  Shape shape;
  Ints dims;
};

const Case kCases[] = {
    {{}, {}},
    {{7}, {0}},
    {{1, 5, 1}, {0, 2}},
    {{3, 4}, {}},
    {{40, 33}, {1}},
    {{40, 33}, {0}},
    {{64, 256}, {0}},
    {{3000, 10}, {0}},
    {{2, 2500, 70}, {1}},
    {{4, 6, 5, 7}, {0, 2, 3}},
    {{4, 6, 5, 7}, {1, 3}},
    {{4, 6, 5, 7}, {0, 1, 2, 3}},
    {{200001}, {0}},
    {{3, 70000}, {1}},
    {{2, 0, 3}, {1}},
};

TEST(sums_match_double) {
  for (const DType dtype : kFloatingTypes) {
    for (const Case& c : kCases) {
      const Value x = normal(dtype, c.shape);
      const auto out = run("sum", {x}, Attrs{c.dims, false});
      // The error of a sum grows with the terms, not with the result: normal numbers sum to
      // about sqrt(n).
      const double scale = std::sqrt(static_cast<double>(std::max<int64_t>(1, x.size())));
      CHECK(distance(out[0].elements(), reference("sum", x, c.dims)) < tolerance(dtype) * scale);
    }
  }
}

TEST(other_folds_match_double) {
  for (const std::string_view op : {"prod", "amax", "amin", "any", "all"}) {
    for (const Case& c : kCases) {
      if (c.shape.num_elements() == 0 || c.shape.num_elements() > 10000) continue;
      Value x = normal(DType::kFloat32, c.shape, 5);
      if (op == "any" || op == "all") {
        x = integers(DType::kInt32, c.shape, 0, op == "any" ? 2 : 30);
      }
      const auto out = run(op, {x}, Attrs{c.dims, true});
      CHECK(distance(out[0].elements(), reference(op, x, c.dims)) < 1e-4);
    }
  }
}

TEST(extremes_of_every_dtype) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const int64_t low = dtype == DType::kBool || dtype == DType::kUInt8 ? 0 : -100;
    const Value x = integers(dtype, {9, 37}, low, dtype == DType::kBool ? 2 : 100);
    for (const int64_t dim : {0, 1}) {
      const Ints dims = {dim};
      for (const std::string_view op : {"amax", "amin", "any", "all"}) {
        const auto out = run(op, {x}, Attrs{dims, false});
        CHECK_EQ(out[0].elements(), reference(op, x, dims));
      }
    }
  }
}

TEST(integer_sums_wrap) {
  const Value x(DType::kInt32, {2}, {2147483647.0, 1.0});
  CHECK_EQ(run("sum", {x}, Attrs{Ints{0}, false})[0].at(0), -2147483648.0);
}

TEST(nan_propagates) {
  for (const int64_t place : {0, 5, 16, 36}) {
    Value x = normal(DType::kFloat32, {37});
    x.set(place, NAN);
    CHECK(std::isnan(run("amax", {x}, Attrs{Ints{0}, false})[0].at(0)));
    CHECK(std::isnan(run("amin", {x}, Attrs{Ints{0}, false})[0].at(0)));
  }
}

TEST(empty_reductions) {
  const Value x(DType::kFloat32, {0, 3}, {});
  CHECK_EQ(run("sum", {x}, Attrs{Ints{0}, false})[0].elements(), std::vector<double>({0, 0, 0}));
  CHECK_EQ(run("prod", {x}, Attrs{Ints{0}, false})[0].elements(), std::vector<double>({1, 1, 1}));
  CHECK_EQ(run("any", {x}, Attrs{Ints{0}, false})[0].elements(), std::vector<double>({0, 0, 0}));
  CHECK_EQ(run("all", {x}, Attrs{Ints{0}, false})[0].elements(), std::vector<double>({1, 1, 1}));
  CHECK_THROWS(run("amax", {x}, Attrs{Ints{0}, false}), Error, "amax: ");
}

// The order of a long sum is written down here: 16 lanes over chunks of 4096, then the tree.
TEST(lanes_and_tree_are_fixed) {
  const Value x = normal(DType::kFloat32, {5003});
  const auto* data = static_cast<const float*>(x.data());
  float total[16];
  std::fill_n(total, 16, -0.0f);
  for (int begin = 0; begin + 16 <= 5003; begin += 4096) {
    float chunk[16];
    std::fill_n(chunk, 16, -0.0f);
    for (int i = begin; i < std::min(begin + 4096, 5003 / 16 * 16); ++i) chunk[i % 16] += data[i];
    for (int lane = 0; lane < 16; ++lane) total[lane] += chunk[lane];
  }
  for (int i = 5003 / 16 * 16; i < 5003; ++i) total[i % 16] += data[i];
  for (int width = 8; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) total[lane] += total[lane + width];
  }
  CHECK_EQ(run("sum", {x}, Attrs{Ints{0}, false})[0].at(0), static_cast<double>(total[0]));
}

}  // namespace
}  // namespace lucid::testing

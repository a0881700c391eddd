// Kernels of indexing, sorting and running sums against plain loops.
#include <algorithm>
#include <numeric>

#include "kernel_testing.h"

namespace lucid::testing {
namespace {

using ir::Attrs;

constexpr int64_t kOuter = 3;
constexpr int64_t kSize = 11;

Attrs dim(int64_t value) { return Attrs{value}; }

TEST(take_and_index_add_around_an_axis) {
  for (const int64_t inner : {1, 5, 300}) {
    for (const DType index_dtype : {DType::kInt32, DType::kInt64}) {
      const Value x = normal(DType::kFloat32, {kOuter, kSize, inner});
      const Value index = integers(index_dtype, {4, 10}, -kSize, kSize);
      const Value src = normal(DType::kFloat32, {kOuter, 4, 10, inner}, 2);
      const auto taken = run("take", {x, index}, dim(1))[0];
      const auto added = run("index_add", {x, index, src}, dim(1))[0];
      std::vector<float> expected;
      for (const double element : x.elements()) expected.push_back(static_cast<float>(element));
      bool is_equal = true;
      for (int64_t o = 0; o < kOuter; ++o) {
        for (int64_t k = 0; k < 40; ++k) {
          const auto at = static_cast<int64_t>(index.at(k));
          const int64_t place = at < 0 ? at + kSize : at;
          for (int64_t j = 0; j < inner; ++j) {
            const int64_t i = (o * 40 + k) * inner + j;
            const int64_t xi = (o * kSize + place) * inner + j;
            is_equal = is_equal && taken.at(i) == x.at(xi);
            expected[static_cast<size_t>(xi)] += static_cast<float>(src.at(i));
          }
        }
      }
      CHECK(is_equal);
      CHECK_EQ(added.elements(), std::vector<double>(expected.begin(), expected.end()));
    }
  }
}

TEST(index_add_rounds_halves_once) {
  const Value x(DType::kFloat16, {1}, {2048});
  const Value index(DType::kInt64, {4}, {0, 0, 0, 0});
  const Value src(DType::kFloat16, {4}, {1, 1, 1, 1});
  CHECK_EQ(run("index_add", {x, index, src}, dim(0))[0].at(0), 2052.0);
}

TEST(integer_index_add_wraps) {
  const Value x(DType::kInt8, {2}, {127, 1});
  const Value index(DType::kInt32, {2}, {0, -1});
  const Value src(DType::kInt8, {2}, {1, 1});
  CHECK_EQ(run("index_add", {x, index, src}, dim(0))[0].elements(), std::vector<double>({-128, 2}));
}

TEST(out_of_range_is_refused) {
  const Value x = normal(DType::kFloat32, {5});
  const Value index(DType::kInt64, {2}, {0, 7});
  CHECK_THROWS(run("take", {x, index}, dim(0)), Error, "take: index out of range: 7 for size 5");
  const Value negative(DType::kInt64, {2}, {0, -6});
  CHECK_THROWS(run("gather", {x, negative}, dim(0)), Error,
               "gather: index out of range: -6 for size 5");
}

/// Calls body(place in x, place in index) for x (4, 6, 5) and an index of that rank.
template <class Body>
void for_gather(const Shape& x, const Value& index, int axis, Body body) {
  const Shape& shape = index.shape();
  int64_t i = 0;
  for (int64_t a = 0; a < shape[0]; ++a) {
    for (int64_t b = 0; b < shape[1]; ++b) {
      for (int64_t c = 0; c < shape[2]; ++c, ++i) {
        int64_t place[] = {a, b, c};
        const auto at = static_cast<int64_t>(index.at(i));
        place[axis] = at < 0 ? at + x[axis] : at;
        body((place[0] * x[1] + place[1]) * x[2] + place[2], i);
      }
    }
  }
}

TEST(gather_and_scatter_along_each_axis) {
  const Shape shape{4, 6, 5};
  const Shape index_shapes[] = {{4, 6, 5}, {3, 4, 2}, {2, 6, 5}};
  for (const Shape& index_shape : index_shapes) {
    for (int axis = 0; axis < 3; ++axis) {
      const Value x = normal(DType::kFloat64, shape);
      const Value index = integers(DType::kInt64, index_shape, -shape[axis], shape[axis]);
      const Value src = normal(DType::kFloat64, index_shape, 3);
      std::vector<double> gathered(static_cast<size_t>(index.size()));
      std::vector<double> scattered = x.elements();
      std::vector<double> added = x.elements();
      for_gather(shape, index, axis, [&](int64_t place, int64_t i) {
        gathered[static_cast<size_t>(i)] = x.at(place);
        scattered[static_cast<size_t>(place)] = src.at(i);
        added[static_cast<size_t>(place)] += src.at(i);
      });
      CHECK_EQ(run("gather", {x, index}, dim(axis))[0].elements(), gathered);
      CHECK_EQ(run("scatter", {x, index, src}, dim(axis))[0].elements(), scattered);
      CHECK_EQ(run("scatter_add", {x, index, src}, dim(axis))[0].elements(), added);
    }
  }
}

TEST(arg_extremes) {
  const Value x(DType::kFloat32, {2, 4}, {1, 3, 3, 2, NAN, 5, NAN, 7});
  CHECK_EQ(run("argmax", {x}, Attrs{int64_t{1}, false})[0].elements(), std::vector<double>({1, 0}));
  CHECK_EQ(run("argmin", {x}, Attrs{int64_t{1}, true})[0].elements(), std::vector<double>({0, 0}));
  CHECK_EQ(run("argmax", {x}, Attrs{int64_t{0}, false})[0].elements(),
           std::vector<double>({1, 1, 1, 1}));
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const Value y(dtype, {1, 3}, {0, 1, 1});
    CHECK_EQ(run("argmax", {y}, Attrs{int64_t{1}, false})[0].at(0), 1.0);
    CHECK_EQ(run("argmin", {y}, Attrs{int64_t{1}, false})[0].at(0), 0.0);
  }
}

TEST(cumsum_along_each_axis) {
  const Value x = integers(DType::kInt32, {3, 100, 70}, -9, 9);
  for (int axis = 0; axis < 3; ++axis) {
    std::vector<double> expected = x.elements();
    const int64_t stride = axis == 0 ? 7000 : axis == 1 ? 70 : 1;
    for (int64_t i = 0; i < x.size(); ++i) {
      const bool is_first = i / stride % x.shape()[axis] == 0;
      if (!is_first) expected[static_cast<size_t>(i)] += expected[static_cast<size_t>(i - stride)];
    }
    CHECK_EQ(run("cumsum", {x}, dim(axis))[0].elements(), expected);
  }
  const Value halves(DType::kBFloat16, {3}, {1, 2, 4});
  CHECK_EQ(run("cumsum", {halves}, dim(0))[0].elements(), std::vector<double>({1, 3, 7}));
}

TEST(sort_is_stable_with_nan_last) {
  const Value x(DType::kFloat32, {6}, {3, NAN, 1, 3, -2, NAN});
  const auto up = run("sort", {x}, Attrs{int64_t{0}, false});
  CHECK_EQ(up[1].elements(), std::vector<double>({4, 2, 0, 3, 1, 5}));
  CHECK_EQ(up[0].at(0), -2.0);
  CHECK(std::isnan(up[0].at(5)));
  const auto down = run("sort", {x}, Attrs{int64_t{0}, true});
  CHECK_EQ(down[1].elements(), std::vector<double>({1, 5, 0, 3, 2, 4}));
}

TEST(sort_of_columns) {
  const Value x = integers(DType::kInt16, {2, 50, 3}, -20, 20);
  const auto out = run("sort", {x}, Attrs{int64_t{1}, false});
  for (int64_t o = 0; o < 2; ++o) {
    for (int64_t j = 0; j < 3; ++j) {
      std::vector<int64_t> order(50);
      std::iota(order.begin(), order.end(), int64_t{0});
      const auto value = [&](int64_t i) { return x.at((o * 50 + i) * 3 + j); };
      std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return value(a) < value(b); });
      for (int64_t i = 0; i < 50; ++i) {
        const int64_t from = order[static_cast<size_t>(i)];
        CHECK_EQ(out[0].at((o * 50 + i) * 3 + j), value(from));
        CHECK_EQ(out[1].at((o * 50 + i) * 3 + j), static_cast<double>(from));
      }
    }
  }
}

}  // namespace
}  // namespace lucid::testing

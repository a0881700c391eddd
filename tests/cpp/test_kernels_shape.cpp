// Kernels that move elements, against index arithmetic.
#include "kernel_testing.h"

namespace lucid::testing {
namespace {

using ir::Attrs;
using ir::Ints;

constexpr DType kSizes[] = {DType::kInt8, DType::kInt16, DType::kFloat32, DType::kFloat64};

using Place = std::array<int64_t, kMaxRank>;

Place place_of(const Shape& shape, int64_t i) {
  Place place{};
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    place[static_cast<size_t>(axis)] = i % shape[axis];
    i /= shape[axis];
  }
  return place;
}

int64_t flat(const Shape& shape, const Place& place) {
  int64_t result = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    result = result * shape[axis] + place[static_cast<size_t>(axis)];
  }
  return result;
}

/// Checks that out[i] is x[source(place of i)] for every i.
template <class Source>
void check_elements(const Value& out, const Value& x, Source source) {
  for (int64_t i = 0; i < out.size(); ++i) {
    const Place place = source(place_of(out.shape(), i));
    if (out.at(i) == x.at(flat(x.shape(), place))) continue;
    fail(__FILE__, __LINE__, "element " + std::to_string(i) + " of " + ir::to_string(out.type()));
    return;
  }
}

TEST(permute_moves_every_element) {
  struct Case {
    Shape shape;
    Ints dims;
  };
  const Case cases[] = {
      {{70, 45}, {1, 0}},
      {{64, 64}, {1, 0}},
      {{3, 2}, {1, 0}},
      {{4, 33, 50}, {0, 2, 1}},
      {{4, 33, 50}, {2, 1, 0}},
      {{4, 33, 50}, {1, 0, 2}},
      {{2, 5, 3, 4}, {0, 2, 1, 3}},
      {{2, 20, 3, 17}, {3, 1, 0, 2}},
      {{2, 3, 4}, {0, 1, 2}},
      {{1, 6, 1, 5}, {3, 2, 1, 0}},
      {{0, 3}, {1, 0}},
      {{}, {}},
  };
  for (const DType dtype : kSizes) {
    for (const Case& c : cases) {
      const Value x = integers(dtype, c.shape, -100, 100);
      const auto out = run("permute", {x}, Attrs{c.dims});
      check_elements(out[0], x, [&](const Place& place) {
        Place source{};
        for (size_t i = 0; i < c.dims.size(); ++i) {
          source[static_cast<size_t>(c.dims[i])] = place[i];
        }
        return source;
      });
    }
  }
}

TEST(broadcast_to_repeats) {
  struct Case {
    Shape from, to;
  };
  const Case cases[] = {{{}, {3, 4}},           {{5}, {3, 5}},        {{3, 1}, {3, 5}},
                        {{2, 1, 4}, {2, 3, 4}}, {{1, 7}, {2, 30, 7}}, {{1}, {40000}}};
  for (const DType dtype : kSizes) {
    for (const Case& c : cases) {
      const Value x = integers(dtype, c.from, -100, 100);
      const Ints shape(c.to.sizes().begin(), c.to.sizes().end());
      const auto out = run("broadcast_to", {x}, Attrs{shape});
      check_elements(out[0], x, [&](const Place& place) {
        Place source{};
        for (int axis = 0; axis < c.from.rank(); ++axis) {
          const auto target = static_cast<size_t>(c.to.rank() - c.from.rank() + axis);
          source[static_cast<size_t>(axis)] = c.from[axis] == 1 ? 0 : place[target];
        }
        return source;
      });
    }
  }
}

TEST(reshape_and_detach_copy) {
  const Value x = normal(DType::kFloat32, {300, 100});
  CHECK_EQ(run("reshape", {x}, Attrs{Ints{100, 300}})[0].elements(), x.elements());
  CHECK_EQ(run("detach", {x}, Attrs{})[0].elements(), x.elements());
}

TEST(concat_joins) {
  const Value a(DType::kInt32, {2, 2}, {1, 2, 3, 4});
  const Value b(DType::kInt32, {2, 1}, {5, 6});
  const Value none(DType::kInt32, {2, 0}, {});
  CHECK_EQ(run("concat", {a, b, none, a}, Attrs{int64_t{1}})[0].elements(),
           std::vector<double>({1, 2, 5, 1, 2, 3, 4, 6, 3, 4}));
  CHECK_EQ(run("concat", {a, a}, Attrs{int64_t{0}})[0].elements(),
           std::vector<double>({1, 2, 3, 4, 1, 2, 3, 4}));
}

TEST(pad_surrounds) {
  const Value x(DType::kFloat32, {2, 2}, {1, 2, 3, 4});
  CHECK_EQ(run("pad", {x}, Attrs{Ints{1, 0}, Ints{0, 2}, 0.5})[0].elements(),
           std::vector<double>({.5, .5, .5, .5, 1, 2, .5, .5, 3, 4, .5, .5}));
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kInt8, DType::kInt64}) {
    const Value row = integers(dtype, {1}, 5, 6);
    CHECK_EQ(run("pad", {row}, Attrs{Ints{1}, Ints{1}, int64_t{-3}})[0].elements(),
             std::vector<double>({-3, 5, -3}));
  }
}

TEST(slice_steps_both_ways) {
  const Value x = integers(DType::kInt32, {6, 7}, -100, 100);
  const auto out = run("slice", {x}, Attrs{Ints{4, 1}, Ints{2, 3}, Ints{-3, 2}});
  check_elements(out[0], x, [](const Place& place) {
    return Place{4 - 3 * place[0], 1 + 2 * place[1]};
  });
  const auto rows = run("slice", {x}, Attrs{Ints{2, 0}, Ints{3, 7}, Ints{1, 1}});
  check_elements(rows[0], x, [](const Place& place) { return Place{place[0] + 2, place[1]}; });
}

TEST(slice_update_writes_the_slice) {
  const Value x(DType::kFloat32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Value src(DType::kFloat32, {2, 2}, {10, 20, 30, 40});
  CHECK_EQ(run("slice_update", {x, src}, Attrs{Ints{0, 2}, Ints{1, -2}})[0].elements(),
           std::vector<double>({20, 2, 10, 40, 5, 30}));
}

}  // namespace
}  // namespace lucid::testing

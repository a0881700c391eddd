// Kernels of pooling against loops over windows.
#include "kernel_testing.h"

namespace lucid::testing {
namespace {

using ir::Attrs;
using ir::Ints;
using Doubles = std::vector<double>;

struct Case {
  Shape shape;
  Ints kernel, stride, padding, dilation;
  bool ceil_mode;
};

const Case kCases[] = {
    {{2, 3, 8, 10}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false},
    {{2, 3, 7, 9}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false},
    {{2, 3, 7, 9}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, true},
    {{2, 2, 28, 28}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false},
    {{2, 2, 6, 38}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false},
    {{1, 2, 24, 48}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false},
    {{2, 2, 11, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, true},
    {{2, 2, 11, 20}, {3, 2}, {1, 1}, {1, 1}, {1, 1}, false},
    {{2, 2, 13, 12}, {3, 2}, {1, 3}, {1, 0}, {2, 3}, false},
    {{3, 2, 40}, {5}, {3}, {2}, {1}, false},
    {{2, 2, 5, 6, 7}, {2, 3, 2}, {2, 1, 2}, {1, 1, 0}, {1, 1, 1}, false},
    {{1, 1, 600}, {4}, {1}, {0}, {1}, false},
};

/// Spatial sizes with ones in front, to three.
std::array<int64_t, 3> three(std::span<const int64_t> values, int64_t missing) {
  std::array<int64_t, 3> result{missing, missing, missing};
  std::ranges::copy(values, result.end() - static_cast<int64_t>(values.size()));
  return result;
}

/// Calls body(output, input, is_inside) for every output and tap of every plane, in order.
template <class Body>
void for_taps(const Case& c, const Shape& out_shape, Body body) {
  const auto size = three(c.shape.sizes().subspan(2), 1);
  const auto out = three(out_shape.sizes().subspan(2), 1);
  const auto kernel = three(c.kernel, 1);
  const auto stride = three(c.stride, 1);
  const auto padding = three(c.padding, 0);
  const auto dilation = three(c.dilation, 1);
  const int64_t planes = c.shape[0] * c.shape[1];
  for (int64_t o = 0; o < planes * product(out); ++o) {
    const int64_t place[] = {o / (out[1] * out[2]) % out[0], o / out[2] % out[1], o % out[2]};
    for (int64_t k = 0; k < product(kernel); ++k) {
      const int64_t tap[] = {k / (kernel[1] * kernel[2]), k / kernel[2] % kernel[1], k % kernel[2]};
      int64_t input = 0;
      bool inside = true;
      bool padded = true;
      for (size_t a = 0; a < 3; ++a) {
        const int64_t at = place[a] * stride[a] - padding[a] + tap[a] * dilation[a];
        inside = inside && at >= 0 && at < size[a];
        padded = padded && at < size[a] + padding[a];
        input = input * size[a] + at;
      }
      body(o, o / product(out), input, inside, padded);
    }
  }
}

TEST(max_pool_and_gradient) {
  for (const DType dtype : kFloatingTypes) {
    for (const Case& c : kCases) {
      // Few values, so that windows hold equal ones.
      const Value x = integers(dtype, c.shape, -3, 3);
      const auto out =
          run("max_pool", {x}, Attrs{c.kernel, c.stride, c.padding, c.dilation, c.ceil_mode});
      const int64_t plane = product(c.shape.sizes().subspan(2));
      Doubles best(static_cast<size_t>(out[0].size()), -INFINITY);
      Doubles places(best.size(), -1);
      const Value grad = integers(dtype, out[0].shape(), -9, 9, 2);
      for_taps(c, out[0].shape(), [&](int64_t o, int64_t p, int64_t input, bool inside, bool) {
        if (!inside || x.at(p * plane + input) <= best[static_cast<size_t>(o)]) return;
        best[static_cast<size_t>(o)] = x.at(p * plane + input);
        places[static_cast<size_t>(o)] = static_cast<double>(input);
      });
      CHECK_EQ(out[0].elements(), best);
      CHECK_EQ(out[1].elements(), places);
      Doubles dx(static_cast<size_t>(x.size()));
      const int64_t out_plane = product(out[0].shape().sizes().subspan(2));
      for (int64_t o = 0; o < grad.size(); ++o) {
        dx[static_cast<size_t>(o / out_plane * plane + static_cast<int64_t>(out[1].at(o)))] +=
            grad.at(o);
      }
      const Ints input_shape(c.shape.sizes().begin(), c.shape.sizes().end());
      CHECK_EQ(run("max_pool_grad", {grad, out[1]}, Attrs{input_shape})[0].elements(), dx);
    }
  }
}

TEST(max_pool_of_nan_and_infinity) {
  const Value x(DType::kFloat32, {1, 1, 2, 4},
                {-INFINITY, -INFINITY, NAN, 5, -INFINITY, -INFINITY, 9, 7});
  const auto out =
      run("max_pool", {x}, Attrs{Ints{2, 2}, Ints{2, 2}, Ints{0, 0}, Ints{1, 1}, false});
  CHECK_EQ(out[0].at(0), -INFINITY);
  CHECK(std::isnan(out[0].at(1)));
  CHECK_EQ(out[1].elements(), Doubles({0, 2}));
  const auto wide =
      run("max_pool", {x}, Attrs{Ints{2, 2}, Ints{1, 1}, Ints{0, 0}, Ints{1, 1}, false});
  CHECK_EQ(wide[1].elements(), Doubles({0, 2, 2}));
}

// Sizes as of 2 x 2 windows, but places of no such window: the gradient goes where they say.
TEST(max_pool_grad_follows_the_indices) {
  for (const int64_t width : {4, 7, 10, 20, 40}) {
    const Shape pooled{1, 2, 3, width / 2};
    Doubles places;
    for (int64_t i = 0; i < 2 * 3 * (width / 2); ++i) {
      places.push_back(static_cast<double>(i * 5 % (6 * width)));
    }
    const Value grad = integers(DType::kFloat32, pooled, -9, 9);
    Doubles dx(static_cast<size_t>(2 * 6 * width));
    for (int64_t o = 0; o < grad.size(); ++o) {
      const int64_t plane = o / (3 * (width / 2));
      dx[static_cast<size_t>(plane * 6 * width) +
         static_cast<size_t>(places[static_cast<size_t>(o)])] += grad.at(o);
    }
    const Value indices(DType::kInt32, pooled, places);
    const Attrs attrs{Ints{1, 2, 6, width}};
    CHECK_EQ(run("max_pool_grad", {grad, indices}, attrs)[0].elements(), dx);
  }
}

TEST(max_pool_grad_refuses_bad_indices) {
  const Value grad = normal(DType::kFloat32, {1, 1, 1});
  const Value index(DType::kInt32, {1, 1, 1}, {4});
  CHECK_THROWS(run("max_pool_grad", {grad, index}, Attrs{Ints{1, 1, 4}}), Error,
               "max_pool_grad: index out of range: 4 for size 4");
  const Value grads = normal(DType::kFloat32, {1, 1, 2, 2});
  const Value bad(DType::kInt32, {1, 1, 2, 2}, {0, 2, 8, -1});
  CHECK_THROWS(run("max_pool_grad", {grads, bad}, Attrs{Ints{1, 1, 4, 4}}), Error,
               "max_pool_grad: index out of range: -1 for size 16");
}

TEST(avg_pool_and_gradient) {
  for (const DType dtype : kFloatingTypes) {
    for (const Case& c : kCases) {
      if (std::ranges::any_of(c.dilation, [](int64_t d) { return d != 1; })) continue;
      for (const auto& [include_pad, divisor] :
           {std::pair<bool, int64_t>{false, 0}, {true, 0}, {true, 5}}) {
        const Attrs attrs{c.kernel, c.stride, c.padding, c.ceil_mode, include_pad, divisor};
        const Value x = normal(dtype, c.shape);
        const Value y = run("avg_pool", {x}, attrs)[0];
        const int64_t plane = product(c.shape.sizes().subspan(2));
        Doubles sums(static_cast<size_t>(y.size()));
        Doubles counts(sums.size());
        for_taps(c, y.shape(), [&](int64_t o, int64_t p, int64_t input, bool inside, bool padded) {
          if (inside) sums[static_cast<size_t>(o)] += x.at(p * plane + input);
          counts[static_cast<size_t>(o)] += (include_pad ? padded : inside) ? 1 : 0;
        });
        if (divisor != 0) std::ranges::fill(counts, static_cast<double>(divisor));
        for (size_t i = 0; i < sums.size(); ++i) sums[i] /= counts[i];
        CHECK(distance(y.elements(), sums) < tolerance(dtype));

        const Value grad = normal(dtype, y.shape(), 2);
        Doubles dx(static_cast<size_t>(x.size()));
        for_taps(c, y.shape(), [&](int64_t o, int64_t p, int64_t input, bool inside, bool) {
          if (!inside) return;
          dx[static_cast<size_t>(p * plane + input)] += grad.at(o) / counts[static_cast<size_t>(o)];
        });
        Attrs grad_attrs = attrs;
        grad_attrs.insert(grad_attrs.begin(), Ints(c.shape.sizes().begin(), c.shape.sizes().end()));
        CHECK(distance(run("avg_pool_grad", {grad}, grad_attrs)[0].elements(), dx) <
              3 * tolerance(dtype));
      }
    }
  }
}

}  // namespace
}  // namespace lucid::testing

// Kernels of softmax and the normalisations against loops in double.
#include <functional>

#include "kernel_testing.h"

namespace lucid::testing {
namespace {

using ir::Attrs;

using Doubles = std::vector<double>;

/// Calls body(offset, stride) for each line of a shape along an axis.
void for_lines(const Shape& shape, int axis, const std::function<void(size_t, size_t)>& body) {
  const int64_t inner = product(shape.sizes().subspan(static_cast<size_t>(axis) + 1));
  const int64_t slice = inner * shape[axis];
  for (int64_t i = 0; i < shape.num_elements(); i += slice) {
    for (int64_t j = 0; j < inner; ++j) {
      body(static_cast<size_t>(i + j), static_cast<size_t>(inner));
    }
  }
}

struct Case {
  Shape shape;
  int axis;
};

const Case kCases[] = {{{1}, 0},       {{4, 10}, 1},    {{300, 10}, 1},   {{70, 130}, 1},
                       {{3, 5003}, 1}, {{5, 40, 3}, 1}, {{2, 7, 300}, 1}, {{9, 17}, 0}};

Doubles softmax_of(const Value& x, int axis, bool log) {
  Doubles y = x.elements();
  const auto length = static_cast<size_t>(x.shape()[axis]);
  for_lines(x.shape(), axis, [&](size_t at, size_t stride) {
    double top = -INFINITY;
    for (size_t i = 0; i < length; ++i) top = std::max(top, y[at + i * stride]);
    double sum = 0;
    for (size_t i = 0; i < length; ++i) sum += std::exp(y[at + i * stride] - top);
    for (size_t i = 0; i < length; ++i) {
      double& element = y[at + i * stride];
      element = log ? element - top - std::log(sum) : std::exp(element - top) / sum;
    }
  });
  return y;
}

Doubles softmax_grad_of(const Doubles& grad, const Doubles& y, const Shape& shape, int axis,
                        bool log) {
  Doubles dx = grad;
  const auto length = static_cast<size_t>(shape[axis]);
  for_lines(shape, axis, [&](size_t at, size_t stride) {
    double sum = 0;
    for (size_t i = 0; i < length; ++i) {
      sum += grad[at + i * stride] * (log ? 1.0 : y[at + i * stride]);
    }
    for (size_t i = 0; i < length; ++i) {
      const size_t k = at + i * stride;
      dx[k] = log ? grad[k] - std::exp(y[k]) * sum : y[k] * (grad[k] - sum);
    }
  });
  return dx;
}

TEST(softmax_and_gradient) {
  for (const DType dtype : kFloatingTypes) {
    for (const Case& c : kCases) {
      for (const bool log : {false, true}) {
        const Value x = normal(dtype, c.shape);
        const Attrs attrs{int64_t{c.axis}};
        const Value y = run(log ? "log_softmax" : "softmax", {x}, attrs)[0];
        CHECK(distance(y.elements(), softmax_of(x, c.axis, log)) < tolerance(dtype));
        const Value grad = normal(dtype, c.shape, 2);
        const Value dx = run(log ? "log_softmax_grad" : "softmax_grad", {grad, y}, attrs)[0];
        const Doubles expected =
            softmax_grad_of(grad.elements(), y.elements(), c.shape, c.axis, log);
        CHECK(distance(dx.elements(), expected) < 30 * tolerance(dtype));
      }
    }
  }
}

TEST(softmax_of_infinities) {
  const Value x(DType::kFloat32, {3, 2}, {-INFINITY, -INFINITY, -INFINITY, 1, INFINITY, 1});
  const Doubles y = run("softmax", {x}, Attrs{int64_t{1}})[0].elements();
  CHECK(std::isnan(y[0]) && std::isnan(y[1]));
  CHECK_EQ(y[2], 0.0);
  CHECK_EQ(y[3], 1.0);
  CHECK(std::isnan(y[4]));
}

struct NormResult {
  Doubles y, mean, variance, rstd, dx, dweight, dbias;
};

/// Normalises groups of elements: `group` and `parameter` name the statistics and the weight of
/// each element.
NormResult normalise(const Doubles& x, const Doubles& grad, const Doubles& weight,
                     const Doubles& bias, double eps, size_t groups,
                     const std::function<size_t(size_t)>& group,
                     const std::function<size_t(size_t)>& parameter) {
  NormResult r;
  Doubles count(groups), sum(groups), product(groups);
  r.y = r.dx = x;
  r.mean = r.variance = r.rstd = Doubles(groups);
  r.dweight = r.dbias = Doubles(weight.size());
  for (size_t i = 0; i < x.size(); ++i) {
    r.mean[group(i)] += x[i];
    count[group(i)] += 1;
  }
  for (size_t g = 0; g < groups; ++g) r.mean[g] /= count[g];
  for (size_t i = 0; i < x.size(); ++i) {
    r.variance[group(i)] += std::pow(x[i] - r.mean[group(i)], 2) / count[group(i)];
  }
  for (size_t g = 0; g < groups; ++g) r.rstd[g] = 1 / std::sqrt(r.variance[g] + eps);
  const auto xhat = [&](size_t i) { return (x[i] - r.mean[group(i)]) * r.rstd[group(i)]; };
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t p = parameter(i);
    r.y[i] = xhat(i) * weight[p] + bias[p];
    r.dweight[p] += grad[i] * xhat(i);
    r.dbias[p] += grad[i];
    sum[group(i)] += grad[i] * weight[p];
    product[group(i)] += grad[i] * weight[p] * xhat(i);
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t g = group(i);
    r.dx[i] = r.rstd[g] * (grad[i] * weight[parameter(i)] - sum[g] / count[g] -
                           xhat(i) * product[g] / count[g]);
  }
  return r;
}

TEST(layer_norm_and_gradient) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    for (const auto& [rows, length] :
         {std::pair<int64_t, int64_t>{1, 5}, {37, 48}, {600, 20}, {3, 4500}}) {
      for (const bool affine : {false, true}) {
        const Value x = normal(dtype, {rows, length});
        const Value grad = normal(dtype, {rows, length}, 2);
        const std::optional<Value> weight =
            affine ? std::optional(normal(dtype, {length}, 3)) : std::nullopt;
        const std::optional<Value> bias =
            affine ? std::optional(normal(dtype, {length}, 4)) : std::nullopt;
        const auto width = static_cast<size_t>(length);
        const NormResult expected = normalise(
            x.elements(), grad.elements(), affine ? weight->elements() : Doubles(width, 1),
            affine ? bias->elements() : Doubles(width, 0), 1e-5, static_cast<size_t>(rows),
            [&](size_t i) { return i / width; }, [&](size_t i) { return i % width; });
        const auto out = run("layer_norm", {x, weight, bias}, Attrs{int64_t{1}, 1e-5});
        CHECK(distance(out[0].elements(), expected.y) < 3 * tolerance(dtype));
        CHECK(distance(out[1].elements(), expected.mean) < 1e-5);
        CHECK(distance(out[2].elements(), expected.rstd) < 1e-5);
        const auto grads =
            run("layer_norm_grad", {grad, x, out[1], out[2], weight}, Attrs{int64_t{1}});
        CHECK(distance(grads[0].elements(), expected.dx) < 10 * tolerance(dtype));
        CHECK(distance(grads[1].elements(), expected.dweight) < 10 * tolerance(dtype));
        CHECK(distance(grads[2].elements(), expected.dbias) < 10 * tolerance(dtype));
      }
    }
  }
}

TEST(batch_norm_and_gradient) {
  const Shape shapes[] = {{5, 3}, {40, 130}, {4, 3, 6, 7}, {6, 5, 2}, {2, 1, 5000}};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
    for (const Shape& shape : shapes) {
      for (const bool affine : {false, true}) {
        const Value x = normal(dtype, shape);
        const Value grad = normal(dtype, shape, 2);
        const auto channels = static_cast<size_t>(shape[1]);
        const std::optional<Value> weight =
            affine ? std::optional(normal(dtype, {shape[1]}, 3)) : std::nullopt;
        const std::optional<Value> bias =
            affine ? std::optional(normal(dtype, {shape[1]}, 4)) : std::nullopt;
        const auto spatial = static_cast<size_t>(product(shape.sizes().subspan(2)));
        const auto channel = [&](size_t i) { return i / spatial % channels; };
        const NormResult expected = normalise(
            x.elements(), grad.elements(), affine ? weight->elements() : Doubles(channels, 1),
            affine ? bias->elements() : Doubles(channels, 0), 1e-5, channels, channel, channel);
        const auto out = run("batch_norm", {x, weight, bias}, Attrs{1e-5});
        CHECK(distance(out[0].elements(), expected.y) < 3 * tolerance(dtype));
        CHECK(distance(out[1].elements(), expected.mean) < 1e-5);
        CHECK(distance(out[2].elements(), expected.variance) < 1e-5);
        CHECK(distance(out[3].elements(), expected.rstd) < 1e-5);
        const auto grads = run("batch_norm_grad", {grad, x, out[1], out[3], weight}, Attrs{});
        CHECK(distance(grads[0].elements(), expected.dx) < 10 * tolerance(dtype));
        CHECK(distance(grads[1].elements(), expected.dweight) < 10 * tolerance(dtype));
        CHECK(distance(grads[2].elements(), expected.dbias) < 10 * tolerance(dtype));
      }
    }
  }
}

TEST(softmaxes_write_over_what_they_read) {
  for (const Case& c : kCases) {
    const Value x = normal(DType::kFloat32, c.shape, 1);
    const Value grad = normal(DType::kFloat32, c.shape, 2);
    const Attrs dim{int64_t{c.axis}};
    for (const std::string op : {"softmax", "log_softmax"}) {
      check_in_place(op, {x}, dim);
      check_in_place(op + "_grad", {grad, run(op, {x}, dim)[0]}, dim);
    }
  }
}

TEST(norms_write_over_what_they_read) {
  for (const DType dtype : {DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
    for (const Shape& shape : {Shape{1, 3, 1}, Shape{70, 67}, Shape{9, 5, 33}, Shape{3, 4, 5003}}) {
      const Value x = normal(dtype, shape, 1);
      const Value grad = normal(dtype, shape, 2);
      const Value row = normal(dtype, {shape[shape.rank() - 1]}, 3);
      const Value channel = normal(dtype, {shape[1]}, 4);
      const Attrs rows{int64_t{1}, 1e-5};
      check_in_place("layer_norm", {x, row, row}, rows);
      const auto normal_rows = run("layer_norm", {x, row, row}, rows);
      check_in_place("layer_norm_grad", {grad, x, normal_rows[1], normal_rows[2], row},
                     Attrs{int64_t{1}});
      check_in_place("batch_norm", {x, channel, channel}, Attrs{1e-5});
      const auto channels = run("batch_norm", {x, channel, channel}, Attrs{1e-5});
      check_in_place("batch_norm_grad", {grad, x, channels[1], channels[3], channel}, Attrs{});
    }
  }
}

// E[x^2] - E[x]^2 would lose everything here.
TEST(variance_of_a_large_mean) {
  const Value x(DType::kFloat32, {1, 4}, {100000, 100001, 100002, 100003});
  const auto out = run("layer_norm", {x, std::nullopt, std::nullopt}, Attrs{int64_t{1}, 0.0});
  CHECK(std::abs(out[2].at(0) - 1 / std::sqrt(1.25)) < 1e-6);
}

}  // namespace
}  // namespace lucid::testing

// Kernels of cross_entropy against PyTorch's definition in double, and central differences.
#include <string>

#include "kernel_testing.h"

namespace lucid::testing {
namespace {

using ir::Attrs;
using Doubles = std::vector<double>;

constexpr int64_t kIgnored = -100;

struct Case {
  Value logits;
  Value target;
  std::optional<Value> weight;
  double smoothing;
  std::string reduction;

  Attrs attrs() const { return {kIgnored, smoothing, reduction}; }
};

/// Losses of the rows, or their mean or sum.
Doubles loss_of(const Case& c, const Doubles& logits) {
  const int64_t rows = c.logits.shape()[0];
  const int64_t classes = c.logits.shape()[1];
  Doubles losses;
  double total = 0;
  double total_weight = 0;
  for (int64_t r = 0; r < rows; ++r) {
    losses.push_back(0);
    const auto target = static_cast<int64_t>(c.target.at(r));
    if (target == kIgnored) continue;
    const double* x = &logits[static_cast<size_t>(r * classes)];
    double sum = 0;
    for (int64_t k = 0; k < classes; ++k) sum += std::exp(x[k]);
    double smooth = 0;
    for (int64_t k = 0; k < classes; ++k) {
      smooth += (c.weight ? c.weight->at(k) : 1) * (std::log(sum) - x[k]);
    }
    const double weight = c.weight ? c.weight->at(target) : 1;
    losses.back() = (1 - c.smoothing) * weight * (std::log(sum) - x[target]) +
                    c.smoothing / static_cast<double>(classes) * smooth;
    total += losses.back();
    total_weight += weight;
  }
  if (c.reduction == "none") return losses;
  return {c.reduction == "mean" ? total / total_weight : total};
}

TEST(cross_entropy_and_gradient) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
    for (const auto& [rows, classes] :
         {std::pair<int64_t, int64_t>{1, 1}, {33, 10}, {500, 7}, {3, 6000}}) {
      for (const double smoothing : {0.0, 0.1}) {
        for (const bool weighted : {false, true}) {
          for (const std::string reduction : {"none", "mean", "sum"}) {
            Case c{normal(dtype, {rows, classes}), integers(DType::kInt64, {rows}, 0, classes),
                   std::nullopt, smoothing, reduction};
            if (rows > 2) c.target.set(1, kIgnored);
            if (weighted) c.weight = integers(dtype, {classes}, 1, 5, 3);
            const auto out = run("cross_entropy", {c.logits, c.target, c.weight}, c.attrs());
            const Doubles expected = loss_of(c, c.logits.elements());
            CHECK(distance(out[0].elements(), expected) < 5 * tolerance(dtype));
            if (dtype != DType::kFloat64 || classes > 100) continue;

            const Value grad = normal(dtype, out[0].shape(), 7);
            const auto dx =
                run("cross_entropy_grad", {grad, c.logits, c.target, out[1], c.weight}, c.attrs());
            const Doubles given = dx[0].elements();
            for (size_t i = 0; i < given.size(); i += 3) {
              constexpr double kStep = 1e-5;
              Doubles up = c.logits.elements();
              Doubles down = up;
              up[i] += kStep;
              down[i] -= kStep;
              const Doubles high = loss_of(c, up);
              const Doubles low = loss_of(c, down);
              double slope = 0;
              for (size_t k = 0; k < high.size(); ++k) {
                slope += grad.at(static_cast<int64_t>(k)) * (high[k] - low[k]) / (2 * kStep);
              }
              CHECK(std::abs(slope - given[i]) < 1e-7);
            }
          }
        }
      }
    }
  }
}

TEST(the_gradient_may_lie_where_the_logits_were) {
  for (const auto& [rows, classes] : {std::pair<int64_t, int64_t>{33, 10}, {500, 7}, {3, 6000}}) {
    for (const std::string reduction : {"none", "mean"}) {
      const Value logits = normal(DType::kFloat32, {rows, classes});
      const Value target = integers(DType::kInt64, {rows}, 0, classes);
      const Value weight = integers(DType::kFloat32, {classes}, 1, 5, 3);
      const Attrs attrs{kIgnored, 0.1, reduction};
      const auto out = run("cross_entropy", {logits, target, weight}, attrs);
      const Value grad = normal(DType::kFloat32, out[0].shape(), 7);
      check_in_place("cross_entropy_grad", {grad, logits, target, out[1], weight}, attrs);
    }
  }
}

// The float32 gradient follows the float64 one.
TEST(gradient_in_float32) {
  for (const int64_t classes : {10, 5000}) {
    Doubles results[2];
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      const Value logits = normal(dtype, {40, classes});
      const Value target = integers(DType::kInt32, {40}, 0, classes);
      const Value weight = integers(dtype, {classes}, 1, 5, 3);
      const Attrs attrs{kIgnored, 0.2, std::string("mean")};
      const auto out = run("cross_entropy", {logits, target, weight}, attrs);
      const Value grad(dtype, {}, {1});
      results[dtype == DType::kFloat64] =
          run("cross_entropy_grad", {grad, logits, target, out[1], weight}, attrs)[0].elements();
    }
    CHECK(distance(results[0], results[1]) < 1e-7);
  }
}

TEST(ignored_and_wrong_targets) {
  const Value logits = normal(DType::kFloat32, {2, 3});
  const Attrs attrs{kIgnored, 0.0, std::string("mean")};
  const Value ignored(DType::kInt64, {2}, {kIgnored, kIgnored});
  const auto out = run("cross_entropy", {logits, ignored, std::nullopt}, attrs);
  CHECK(std::isnan(out[0].at(0)));
  const Value one(DType::kFloat32, {}, {1});
  const auto dx = run("cross_entropy_grad", {one, logits, ignored, out[1], std::nullopt}, attrs);
  CHECK_EQ(dx[0].elements(), Doubles(6, 0.0));
  for (const double wrong : {3.0, -1.0}) {
    const Value target(DType::kInt32, {2}, {0, wrong});
    CHECK_THROWS(run("cross_entropy", {logits, target, std::nullopt}, attrs), Error,
                 "cross_entropy: target out of range: ");
  }
}

TEST(large_logits_stay_finite) {
  const Value logits(DType::kFloat32, {1, 2}, {1000, -1000});
  const Value target(DType::kInt64, {1}, {1});
  const auto out = run("cross_entropy", {logits, target, std::nullopt},
                       Attrs{kIgnored, 0.0, std::string("sum")});
  CHECK_EQ(out[0].at(0), 2000.0);
}

}  // namespace
}  // namespace lucid::testing

// Kernels of attention against softmax(scale q k^T + mask) v in double.
#include "kernel_testing.h"

namespace lucid::testing {
namespace {

using ir::Attrs;
using Doubles = std::vector<double>;

struct Case {
  Shape q, k, v;
  bool causal;
  Shape mask;  ///< rank 0 without one
  bool bool_mask;

  int64_t depth() const { return q[q.rank() - 1]; }
};

const Case kCases[] = {
    {{5, 4}, {7, 4}, {7, 3}, false, {}, false},
    {{2, 3, 33, 8}, {2, 3, 40, 8}, {2, 3, 40, 5}, false, {}, false},
    {{2, 3, 70, 32}, {2, 3, 70, 32}, {2, 3, 70, 32}, true, {}, false},
    {{2, 40, 16}, {2, 9, 16}, {2, 9, 20}, true, {}, false},
    {{2, 3, 33, 8}, {2, 3, 40, 8}, {2, 3, 40, 8}, false, {33, 40}, false},
    {{2, 3, 33, 8}, {2, 3, 40, 8}, {2, 3, 40, 8}, false, {2, 1, 1, 40}, true},
    {{2, 3, 33, 8}, {2, 3, 33, 8}, {2, 3, 33, 8}, true, {3, 33, 1}, false},
    // Several blocks of queries and keys, with rests.
    {{2, 211, 64}, {2, 211, 64}, {2, 211, 64}, true, {}, false},
    {{1, 101, 128}, {1, 401, 128}, {1, 401, 128}, true, {}, false},
    {{401, 1}, {197, 1}, {197, 1}, true, {}, false},
    {{2, 100, 33}, {2, 389, 33}, {2, 389, 47}, false, {2, 100, 389}, false},
    {{2, 13, 5}, {2, 450, 5}, {2, 450, 3}, false, {450}, true},
};

struct Result {
  Doubles out, log_sum_exp, dq, dk, dv;
};

Doubles zeros(const Value& value) { return Doubles(static_cast<size_t>(value.size())); }

/// Element of the mask for a score, by the rules of broadcasting.
double mask_at(const Value& mask, const Shape& leading, int64_t head, int64_t i, int64_t j) {
  Doubles place;
  int64_t rest = head;
  for (int axis = leading.rank() - 1; axis >= 0; --axis) {
    place.insert(place.begin(), static_cast<double>(rest % leading[axis]));
    rest /= leading[axis];
  }
  place.push_back(static_cast<double>(i));
  place.push_back(static_cast<double>(j));
  int64_t flat = 0;
  for (int axis = 0; axis < mask.shape().rank(); ++axis) {
    const size_t from =
        place.size() - static_cast<size_t>(mask.shape().rank()) + static_cast<size_t>(axis);
    const int64_t size = mask.shape()[axis];
    flat = flat * size + (size == 1 ? 0 : static_cast<int64_t>(place[from]));
  }
  return mask.at(flat);
}

Result reference(const Case& c, const Value& q, const Value& k, const Value& v,
                 const std::optional<Value>& mask, const Value& grad, double scale) {
  const int rank = c.q.rank();
  const int64_t queries = c.q[rank - 2];
  const int64_t keys = c.k[rank - 2];
  const int64_t depth = c.q[rank - 1];
  const int64_t value_depth = c.v[rank - 1];
  const Shape leading(c.q.sizes().first(static_cast<size_t>(rank - 2)));
  Result r{zeros(grad), {}, zeros(q), zeros(k), zeros(v)};
  for (int64_t row = 0; row < leading.num_elements() * queries; ++row) {
    const int64_t head = row / queries;
    const int64_t i = row % queries;
    const auto qi = [&](int64_t d) { return static_cast<size_t>(row * depth + d); };
    const auto kj = [&](int64_t j, int64_t d) {
      return static_cast<size_t>((head * keys + j) * depth + d);
    };
    const auto vj = [&](int64_t j, int64_t e) {
      return static_cast<size_t>((head * keys + j) * value_depth + e);
    };
    const auto oi = [&](int64_t e) { return static_cast<size_t>(row * value_depth + e); };
    const auto at = [](const Value& value, size_t place) {
      return value.at(static_cast<int64_t>(place));
    };
    Doubles p;
    double top = -INFINITY;
    for (int64_t j = 0; j < keys; ++j) {
      double score = 0;
      for (int64_t d = 0; d < depth; ++d) score += at(q, qi(d)) * at(k, kj(j, d));
      score *= scale;
      if (mask && !c.bool_mask) score += mask_at(*mask, leading, head, i, j);
      if (mask && c.bool_mask && mask_at(*mask, leading, head, i, j) == 0) score = -INFINITY;
      if (c.causal && j > i) score = -INFINITY;
      p.push_back(score);
      top = std::max(top, score);
    }
    double sum = 0;
    for (double& score : p) sum += score = std::exp(score - (std::isinf(top) ? 0 : top));
    r.log_sum_exp.push_back(sum == 0 ? -INFINITY : top + std::log(sum));
    double delta = 0;
    for (int64_t e = 0; e < value_depth; ++e) {
      for (int64_t j = 0; j < keys; ++j) {
        if (sum != 0) r.out[oi(e)] += p[static_cast<size_t>(j)] / sum * at(v, vj(j, e));
      }
      delta += r.out[oi(e)] * at(grad, oi(e));
    }
    for (int64_t j = 0; j < keys; ++j) {
      const double pj = sum == 0 ? 0 : p[static_cast<size_t>(j)] / sum;
      double dp = 0;
      for (int64_t e = 0; e < value_depth; ++e) {
        dp += at(grad, oi(e)) * at(v, vj(j, e));
        r.dv[vj(j, e)] += pj * at(grad, oi(e));
      }
      const double ds = scale * pj * (dp - delta);
      for (int64_t d = 0; d < depth; ++d) {
        r.dq[qi(d)] += ds * at(k, kj(j, d));
        r.dk[kj(j, d)] += ds * at(q, qi(d));
      }
    }
  }
  return r;
}

TEST(attention_and_gradient) {
  for (const DType dtype : kFloatingTypes) {
    for (const Case& c : kCases) {
      const Value q = normal(dtype, c.q, 1);
      const Value k = normal(dtype, c.k, 2);
      const Value v = normal(dtype, c.v, 3);
      std::optional<Value> mask;
      if (c.mask.rank() > 0) {
        mask = c.bool_mask ? integers(DType::kBool, c.mask, 0, 2) : normal(dtype, c.mask, 4);
      }
      const double scale = c.depth() < 64 ? 0.3 : -0.1;
      const Attrs attrs{c.causal, scale};
      const auto out = run("attention", {q, k, v, mask}, attrs);
      const Value grad = normal(dtype, out[0].shape(), 5);
      const Result expected = reference(c, q, k, v, mask, grad, scale);
      CHECK(distance(out[0].elements(), expected.out) < tolerance(dtype));
      CHECK(distance(out[1].elements(), expected.log_sum_exp) < 1e-5);
      const auto grads = run("attention_grad", {grad, q, k, v, out[0], out[1], mask}, attrs);
      CHECK(distance(grads[0].elements(), expected.dq) < 10 * tolerance(dtype));
      CHECK(distance(grads[1].elements(), expected.dk) < 10 * tolerance(dtype));
      CHECK(distance(grads[2].elements(), expected.dv) < 10 * tolerance(dtype));
    }
  }
}

/// Of causal attention, or of its gradient, of two heads.
size_t scratch_bytes(bool gradient, int64_t length, int64_t depth) {
  const std::string heads =
      "float32[2, " + std::to_string(length) + ", " + std::to_string(depth) + "]";
  const std::string rows = "float32[2, " + std::to_string(length) + "]";
  const std::string attrs = " {causal=true, scale=0.125} : ";
  std::string text = "graph {\n";
  for (const int i : {0, 1, 2, 3, 4}) {
    text += "  %" + std::to_string(i) + " = input argument " + heads + "\n";
  }
  text += "  %5 = input argument " + rows + "\n";
  text += gradient ? "  %6, %7, %8 = attention_grad(%0, %1, %2, %3, %4, %5, _)" + attrs + heads +
                         ", " + heads + ", " + heads + "\n"
                   : "  %6, %7 = attention(%1, %2, %3, _)" + attrs + heads + ", " + rows + "\n";
  const ir::Graph graph = ir::parse(text + "  return %6\n}\n", ops::find);
  return cpu::make_kernel({graph.nodes().back(), graph})->scratch_bytes();
}

// No matrix of all queries against all keys: what a thread needs does not grow with the keys, but
// for one number of a row.
TEST(memory_is_linear_in_the_length) {
  const size_t heads = static_cast<size_t>(std::min(cpu::num_threads(), 2));
  for (const int64_t depth : {32, 64, 128}) {
    CHECK(scratch_bytes(false, 4096, depth) <= scratch_bytes(false, 512, depth) * 2);
    const size_t longer = scratch_bytes(true, 4096, depth);
    CHECK_EQ(longer - scratch_bytes(true, 512, depth), heads * (4096 - 512) * sizeof(float));
    CHECK(longer < heads * 400 * 1024);
  }
}

// PyTorch 2.5 and later: a query that no key answers gets zeros, not nan.
TEST(fully_masked_row_is_zero) {
  const Value q = normal(DType::kFloat32, {2, 4}, 1);
  const Value k = normal(DType::kFloat32, {3, 4}, 2);
  const Value v = normal(DType::kFloat32, {3, 4}, 3);
  const Value grad = normal(DType::kFloat32, {2, 4}, 4);
  const Value masks[] = {
      Value(DType::kBool, {2, 3}, {0, 0, 0, 1, 0, 1}),
      Value(DType::kFloat32, {2, 3}, {-INFINITY, -INFINITY, -INFINITY, 0, -INFINITY, 0})};
  const Attrs attrs{false, 0.5};
  for (const Value& mask : masks) {
    const auto out = run("attention", {q, k, v, mask}, attrs);
    const auto grads = run("attention_grad", {grad, q, k, v, out[0], out[1], mask}, attrs);
    for (int64_t d = 0; d < 4; ++d) {
      CHECK_EQ(out[0].at(d), 0.0);
      CHECK_EQ(grads[0].at(d), 0.0);
      CHECK_EQ(grads[1].at(4 + d), 0.0);
    }
    CHECK_EQ(out[1].at(0), -INFINITY);
    CHECK(std::isfinite(out[1].at(1)));
  }
}

// Softmax of an infinite score is nan, which is no row without keys.
TEST(scores_that_overflow_are_nan) {
  const Value q(DType::kFloat32, {2, 1}, {1e20, 1});
  const Value k(DType::kFloat32, {3, 1}, {1e18, 1, 1});
  const Value v = normal(DType::kFloat32, {3, 2}, 3);
  for (const double scale : {10.0, 1.0}) {
    // Scaled, 1e39 overflows; with the larger key the product itself does.
    const Value keys = scale == 1 ? Value(DType::kFloat32, {3, 1}, {1e30, 1, 1}) : k;
    const auto out = run("attention", {q, keys, v, std::nullopt}, {false, scale});
    CHECK(std::isnan(out[0].at(0)) && std::isnan(out[0].at(1)));
    CHECK(std::isnan(out[1].at(0)));
    CHECK_EQ(out[0].at(2), v.at(0));
    CHECK(std::isfinite(out[1].at(1)));
  }
}

// A scaled score is rounded by more than an exponential bears, its row's maximum alike.
TEST(large_scores_choose_the_largest) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const Value q(dtype, {3, 1}, {1.1e25, 1.3e25, 1.7e25});
    const Value k(dtype, {2, 1}, {1.7, -1.9});
    const Value v = normal(dtype, {2, 2}, 3);
    const auto out = run("attention", {q, k, v, std::nullopt}, {false, 0.7});
    for (int64_t i = 0; i < 6; ++i) CHECK_EQ(out[0].at(i), v.at(i % 2));
  }
}

}  // namespace
}  // namespace lucid::testing

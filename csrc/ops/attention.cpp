// Scaled dot-product attention as one node, and its gradient.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ops/cost.h"
#include "ops/families.h"
#include "ops/infer.h"
#include "ops/infer_window.h"
#include "ops/vjp.h"

namespace lucid::ops {
namespace {

using ir::AttrType;
using ir::InferArgs;
using ir::Op;
using ir::ValueTypes;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Places of the inputs that attention and its gradient share.
struct Places {
  InputName query;
  InputName key;
  InputName value;
  InputName mask;
};
constexpr Places kForward{{0, "query"}, {1, "key"}, {2, "value"}, {3, "mask"}};
constexpr Places kBackward{{1, "query"}, {2, "key"}, {3, "value"}, {6, "mask"}};

/// Size of an axis counted from the end.
int64_t from_end(const Shape& shape, int axis) { return shape[shape.rank() - axis]; }

std::string all_shapes(const InferArgs& args, const Places& places) {
  return described(args, places.query) + ", " + described(args, places.key) + ", " +
         described(args, places.value);
}

bool same_leading_axes(const Shape& lhs, const Shape& rhs) {
  if (lhs.rank() != rhs.rank()) return false;
  const auto count = static_cast<size_t>(lhs.rank() - 2);
  return std::ranges::equal(lhs.sizes().first(count), rhs.sizes().first(count));
}

void check_shapes(const InferArgs& args, const Places& places) {
  const Shape& query = args.shape(places.query.index);
  const Shape& key = args.shape(places.key.index);
  const Shape& value = args.shape(places.value.index);
  if (query.rank() < 2 || key.rank() < 2 || value.rank() < 2) {
    args.fail("inputs need at least 2 axes: " + all_shapes(args, places) +
              "; give (..., length, features)");
  }
  if (!same_leading_axes(query, key) || !same_leading_axes(query, value)) {
    args.fail("leading axes differ: " + all_shapes(args, places) + "; expand them to one shape");
  }
  if (from_end(query, 1) != from_end(key, 1)) {
    args.fail("features of query and key differ: " + all_shapes(args, places) +
              "; project them to one size");
  }
  if (from_end(key, 2) != from_end(value, 2)) {
    args.fail("lengths of key and value differ: " + all_shapes(args, places) +
              "; give one value for each key");
  }
  if (from_end(key, 2) == 0) {
    args.fail("there are no keys: " + all_shapes(args, places) + "; give at least one");
  }
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.rank() > to.rank()) return false;
  for (int axis = 1; axis <= from.rank(); ++axis) {
    const int64_t size = from_end(from, axis);
    if (size != 1 && size != from_end(to, axis)) return false;
  }
  return true;
}

/// (..., T, S): one score for each pair of query and key.
Shape scores_shape(const Shape& query, const Shape& key) {
  return query.with(query.rank() - 1, from_end(key, 2));
}

void check_mask(const InferArgs& args, const Places& places) {
  if (!args.has(places.mask.index)) return;
  const Shape& query = args.shape(places.query.index);
  const Shape scores = scores_shape(query, args.shape(places.key.index));
  if (!broadcasts_to(args.shape(places.mask.index), scores)) {
    args.fail("mask does not broadcast to the scores: " + described(args, places.mask) +
              ", scores " + to_string(scores) + "; give (..., queries, keys) with sizes of 1 " +
              "where it repeats");
  }
  const DType mask = args.dtype(places.mask.index);
  const DType expected = args.dtype(places.query.index);
  if (mask == DType::kBool || mask == expected) return;
  args.fail(ErrorKind::kDType, "mask must be bool or " + std::string(name(expected)) + ": got " +
                                   std::string(name(mask)) + "; cast it first");
}

void check_operands(const InferArgs& args, const Places& places) {
  require_floating(args, {places.query, places.key, places.value});
  check_shapes(args, places);
  check_mask(args, places);
}

Shape output_shape(const Shape& query, const Shape& value) {
  return query.with(query.rank() - 1, from_end(value, 1));
}

/// (..., T): one number for each query.
Shape rows_shape(const Shape& query) {
  return Shape(query.sizes().first(static_cast<size_t>(query.rank() - 1)));
}

ValueTypes infer_attention(const InferArgs& args) {
  check_operands(args, kForward);
  const Shape& query = args.shape(0);
  const DType dtype = args.dtype(0);
  return {{dtype, output_shape(query, args.shape(2))},
          {statistics_dtype(dtype), rows_shape(query)}};
}

ValueTypes infer_attention_grad(const InferArgs& args) {
  constexpr InputName kGrad{0, "grad"};
  constexpr InputName kOutput{4, "output"};
  constexpr InputName kLogSumExp{5, "log_sum_exp"};
  require_floating(args, {kBackward.query, kGrad, kOutput});
  check_operands(args, kBackward);
  const Shape& query = args.shape(1);
  const Shape output = output_shape(query, args.shape(3));
  require_shape(args, kGrad, output, kBackward.query);
  require_shape(args, kOutput, output, kBackward.query);
  require_shape(args, kLogSumExp, rows_shape(query), kBackward.query);
  require_dtype(args, kLogSumExp, statistics_dtype(args.dtype(1)));
  return {args.input(1), args.input(2), args.input(3)};
}

// The mask has no gradient here: whoever needs one writes attention in simpler operations.
Grads attention_vjp(Builder& b, const Node& node, const Grads& grads,
                    const std::vector<bool>& wanted) {
  Grads result = absent(node);
  const bool any =
      wants(b, node, wanted, 0) || wants(b, node, wanted, 1) || wants(b, node, wanted, 2);
  if (!grads[0] || !any) return result;
  const auto mask = node.has(3) ? node.inputs[3] : std::nullopt;
  const std::vector<ValueId> made =
      b.ops("attention_grad",
            {*grads[0], node.in(0), node.in(1), node.in(2), node.outputs[0], node.outputs[1], mask},
            {node.attr("causal"), node.attr("scale")});
  for (size_t i = 0; i < made.size(); ++i) {
    if (wants(b, node, wanted, i)) result[i] = made[i];
  }
  return result;
}

ValueId matmul(Builder& b, ValueId lhs, ValueId rhs, bool transpose_a, bool transpose_b) {
  return b.op("matmul", {lhs, rhs}, {transpose_a, transpose_b});
}

/// bool (T, S): true where the key does not come after the query, both counted from 0.
ValueId causal_pairs(Builder& b, int64_t num_queries, int64_t num_keys) {
  const ValueId queries = b.op("arange", {}, {int64_t{0}, int64_t{1}, num_queries, DType::kInt64});
  const ValueId keys = b.op("arange", {}, {int64_t{0}, int64_t{1}, num_keys, DType::kInt64});
  const ValueId column = b.reshape(queries, Shape{num_queries, 1});
  return b.op("ge", {column, keys});
}

/// scale q k^T with the mask added, or -inf where mask or causality excludes the pair.
ValueId masked_scores(Builder& b, const Node& node, const Places& places) {
  const ValueId query = widened(b, node.in(places.query.index));
  const ValueId key = widened(b, node.in(places.key.index));
  const ValueId products = matmul(b, query, key, false, true);
  const ValueId scale = b.number(node.real("scale"), products);
  ValueId scores = b.mul(products, scale);
  const ValueId excluded = b.number(-kInfinity, scores);
  if (node.has(places.mask.index)) {
    const ValueId mask = node.in(places.mask.index);
    if (b.dtype(mask) == DType::kBool) {
      scores = b.where(mask, scores, excluded);
    } else {
      const ValueId wide = widened(b, mask);
      scores = b.add(scores, wide);
    }
  }
  if (!node.flag("causal")) return scores;
  const Shape shape = b.shape(scores);
  const ValueId pairs = causal_pairs(b, from_end(shape, 2), from_end(shape, 1));
  return b.where(pairs, scores, excluded);
}

/// Sums of a row of scores that stay finite where every key is excluded: there `total` is 1, and
/// `high` and with them the logarithm are 0, so that exp(score - log) is 0 and not nan.
struct RowSums {
  ValueId empty;   ///< bool (..., T, 1): every key is excluded
  ValueId powers;  ///< exp(score - high)
  ValueId total;   ///< sum of the powers
  ValueId log;     ///< log-sum-exp
};

RowSums row_sums(Builder& b, ValueId scores) {
  const int64_t last = b.shape(scores).rank() - 1;
  const ValueId maximum = b.op("amax", {scores}, {Ints{last}, true});
  const ValueId fixed = detached(b, maximum);
  const ValueId excluded = b.number(-kInfinity, scores);
  const ValueId empty = b.op("eq", {fixed, excluded});
  const ValueId zero = b.number(0, scores);
  const ValueId high = b.where(empty, zero, fixed);
  const ValueId shifted = b.sub(scores, high);
  const ValueId powers = b.op("exp", {shifted});
  const ValueId sum = b.sum(powers, {last}, true);
  const ValueId one = b.number(1, scores);
  const ValueId total = b.where(empty, one, sum);
  const ValueId log_total = b.op("log", {total});
  return {empty, powers, total, b.add(log_total, high)};
}

// out = softmax(scale q k^T + mask) v (Vaswani et al. 2017, arXiv:1706.03762, equation 1).
// A query without any key gives 0, and -inf as its log-sum-exp.
std::vector<ValueId> attention_decompose(Builder& b, const Node& node) {
  const DType dtype = b.dtype(node.in(0));
  const Shape rows = rows_shape(b.shape(node.in(0)));
  const ValueId scores = masked_scores(b, node, kForward);
  const RowSums sums = row_sums(b, scores);
  const ValueId probability = b.div(sums.powers, sums.total);
  const ValueId value = widened(b, node.in(2));
  const ValueId wide_output = matmul(b, probability, value, false, false);
  const ValueId output = b.cast(wide_output, dtype);
  const ValueId excluded = b.number(-kInfinity, sums.log);
  const ValueId log_sum_exp = b.where(sums.empty, excluded, sums.log);
  const ValueId stored = b.reshape(log_sum_exp, rows);
  return {output, stored};
}

/// softmax of the scores from the saved log-sum-exp, which is anchored to the scores.
ValueId saved_probability(Builder& b, const Node& node, ValueId scores) {
  const RowSums sums = row_sums(b, scores);
  const Shape kept = b.shape(sums.log);
  const ValueId given = b.reshape(node.in(5), kept);
  const ValueId zero = b.number(0, given);
  const ValueId finite = b.where(sums.empty, zero, given);
  const ValueId log_sum_exp = anchored(b, sums.log, finite);
  const ValueId shifted = b.sub(scores, log_sum_exp);
  return b.op("exp", {shifted});
}

// With P = softmax(S): dv = P^T dout, dP = dout v^T, dS = P (dP - rowsum(dout out)),
// dq = scale dS k, dk = scale dS^T q
// (Dao et al. 2022, "FlashAttention", arXiv:2205.14135, appendix B.2).
std::vector<ValueId> attention_grad_decompose(Builder& b, const Node& node) {
  const DType dtype = b.dtype(node.in(0));
  const ValueId scores = masked_scores(b, node, kBackward);
  const ValueId probability = saved_probability(b, node, scores);
  const ValueId grad = widened(b, node.in(0));
  const ValueId dv = matmul(b, probability, grad, true, false);
  const ValueId value = widened(b, node.in(3));
  const ValueId d_probability = matmul(b, grad, value, false, true);
  const ValueId output = widened(b, node.in(4));
  const ValueId products = b.mul(grad, output);
  const int64_t last = b.shape(products).rank() - 1;
  const ValueId row_sum = b.sum(products, {last}, true);
  const ValueId centred = b.sub(d_probability, row_sum);
  const ValueId unscaled = b.mul(probability, centred);
  const ValueId scale = b.number(node.real("scale"), unscaled);
  const ValueId d_scores = b.mul(unscaled, scale);
  const ValueId key = widened(b, node.in(2));
  const ValueId dq = matmul(b, d_scores, key, false, false);
  const ValueId query = widened(b, node.in(1));
  const ValueId dk = matmul(b, d_scores, query, true, false);
  const ValueId narrow_dq = b.cast(dq, dtype);
  const ValueId narrow_dk = b.cast(dk, dtype);
  const ValueId narrow_dv = b.cast(dv, dtype);
  return {narrow_dq, narrow_dk, narrow_dv};
}

/// Scores that are computed; a causal mask leaves out the half after the diagonal.
double num_scores(const ir::Graph& graph, const Node& node, const Places& places) {
  const Shape& query = graph.type(node.in(places.query.index)).shape;
  const double all =
      static_cast<double>(product(query.sizes().first(static_cast<size_t>(query.rank() - 1)))) *
      static_cast<double>(from_end(graph.type(node.in(places.key.index)).shape, 2));
  return node.flag("causal") ? all / 2 : all;
}

double features(const ir::Graph& graph, const Node& node, InputName input) {
  return static_cast<double>(from_end(graph.type(node.in(input.index)).shape, 1));
}

constexpr double kSoftmaxFlops = 32;  // scale, maximum, exp, sum and division of one score

// q k^T and the product with v.
double attention_flops(const ir::Graph& graph, const Node& node) {
  const double products =
      2 * features(graph, node, kForward.query) + 2 * features(graph, node, kForward.value);
  return num_scores(graph, node, kForward) * (products + kSoftmaxFlops);
}

// q k^T once more, dq and dk; do v^T and dv.
double attention_grad_flops(const ir::Graph& graph, const Node& node) {
  const double products =
      6 * features(graph, node, kBackward.query) + 4 * features(graph, node, kBackward.value);
  return num_scores(graph, node, kBackward) * (products + kSoftmaxFlops);
}

}  // namespace

std::vector<Op> attention_ops() {
  return {
      {.name = "attention",
       .doc = "softmax(scale q k^T + mask) v; also the log-sum-exp of each query's scores",
       .min_inputs = 3,
       .max_inputs = 4,
       .attrs = {{"causal", AttrType::kBool}, {"scale", AttrType::kFloat}},
       .traits = ir::kPure,
       .infer = infer_attention,
       .vjp = attention_vjp,
       .decompose = attention_decompose,
       .flops = attention_flops,
       .vjp_reads_inputs = 0b1111,
       .vjp_reads_outputs = 0b11,
       .nondifferentiable_outputs = 0b10,
       .autocast = ir::Autocast::kLow},
      {.name = "attention_grad",
       .doc = "gradients of attention by q, k and v",
       .min_inputs = 6,
       .max_inputs = 7,
       .attrs = {{"causal", AttrType::kBool}, {"scale", AttrType::kFloat}},
       .traits = ir::kPure,
       .infer = infer_attention_grad,
       .decompose = attention_grad_decompose,
       .flops = attention_grad_flops},
  };
}

}  // namespace lucid::ops

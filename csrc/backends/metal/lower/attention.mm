// Scaled dot-product attention and its gradient, in plain products: Metal's own fused kernel has no
// gradient, and the one that the compiler puts in place of softmax(Q K^T) V was wrong for some
// shapes (macOS 26 on M1 Pro), so the last product is built as (V^T P^T)^T.
#include <limits>

#include "backends/metal/lower/families.h"
#include "backends/metal/lower/product.h"

namespace lucid::metal {
namespace {

// Masks holding -inf crashed the compiler on some drivers; below kExcluded / 2 a score counts as
// excluded.
constexpr double kExcluded = -1e30;
/// Most elements of a causal mask, which the host builds.
constexpr int64_t kMaxMask = int64_t{1} << 26;

int64_t from_end(const Shape& shape, int axis) { return shape[shape.rank() - axis]; }

struct Shapes {
  int64_t batch;
  int64_t queries;
  int64_t keys;
  int64_t features;
  int64_t value_features;
  Shape full_scores;  ///< (..., T, S)

  Shape query() const { return Shape{batch, queries, features}; }
  Shape key() const { return Shape{batch, keys, features}; }
  Shape value() const { return Shape{batch, keys, value_features}; }
  Shape output() const { return Shape{batch, queries, value_features}; }
  Shape scores() const { return Shape{batch, queries, keys}; }
  Shape column() const { return Shape{batch, queries, 1}; }
};

Shapes shapes_of(const Shape& query, const Shape& key, const Shape& value) {
  Shapes s{};
  s.queries = from_end(query, 2);
  s.keys = from_end(key, 2);
  s.features = from_end(query, 1);
  s.value_features = from_end(value, 1);
  s.batch = product(query.sizes().first(static_cast<size_t>(query.rank() - 2)));
  s.full_scores = query.with(query.rank() - 1, s.keys);
  return s;
}

Tensor transposed(const Calc& c, Tensor x) { return c.permute(x, Ints{0, 2, 1}); }

Shape swapped(const Shape& shape) { return Shape{shape[0], shape[2], shape[1]}; }

/// An input of that shape in float32.
Tensor wide(Lowering& b, const Node& node, size_t i, const Shape& shape) {
  return b.calc().cast(b.calc().reshape(b.in(node, i), shape), MPSDataTypeFloat32);
}

/// float32 (1, T, S): 0 where the key does not come after the query, else kExcluded.
Tensor causal_mask(Lowering& b, const Node& node, const Shapes& s) {
  if (s.queries * s.keys > kMaxMask) {
    b.refuse(node, "causal mask is too large for a graph: " + to_string(s.full_scores));
  }
  std::vector<float> mask(static_cast<size_t>(s.queries * s.keys));
  for (int64_t row = 0; row < s.queries; ++row) {
    for (int64_t column = row + 1; column < s.keys; ++column) {
      mask[static_cast<size_t>(row * s.keys + column)] = static_cast<float>(kExcluded);
    }
  }
  return b.calc().data(mask.data(), static_cast<int64_t>(mask.size() * sizeof(float)),
                       Shape{1, s.queries, s.keys}, DType::kFloat32);
}

/// The mask of input `i`, added to scores of the full shape.
Tensor masked(Lowering& b, const Node& node, size_t i, Tensor scores) {
  const Calc& c = b.calc();
  Tensor mask = b.in(node, i);
  if (b.in_type(node, i).dtype == DType::kBool) {
    return c.select(mask, scores, c.number_like(kExcluded, scores));
  }
  Tensor added = c.cast(mask, MPSDataTypeFloat32);
  return c.add(scores, c.maximum(added, c.number_like(kExcluded, added)));
}

/// scale q k^T with masks: (batch, T, S), excluded pairs at kExcluded or below.
Tensor scores_of(Lowering& b, const Node& node, const Shapes& s, Tensor query, Tensor key,
                 size_t mask) {
  const Calc& c = b.calc();
  Tensor scores = multiplied(b, query, s.query(), transposed(c, key), swapped(s.key()));
  scores = c.mul(scores, c.number_like(node.real("scale"), scores));
  if (node.has(mask)) {
    Tensor full = masked(b, node, mask, c.reshape(scores, s.full_scores));
    scores = c.reshape(full, s.scores());
  }
  if (node.flag("causal")) scores = c.add(scores, causal_mask(b, node, s));
  return scores;
}

/// exp(score - high), and 0 exactly where the pair is excluded.
Tensor powers_of(const Calc& c, Tensor scores, Tensor high) {
  Tensor excluded = c.less(scores, c.number_like(kExcluded / 2, scores));
  return c.select(excluded, c.number_like(0, scores), c.exp(c.sub(scores, high)));
}

// A query without any key gives 0, and -inf as its log-sum-exp.
Tensors lower_attention(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const Shapes s =
      shapes_of(b.in_type(node, 0).shape, b.in_type(node, 1).shape, b.in_type(node, 2).shape);
  Tensor query = wide(b, node, 0, s.query());
  Tensor key = wide(b, node, 1, s.key());
  Tensor value = wide(b, node, 2, s.value());
  Tensor scores = scores_of(b, node, s, query, key, 3);
  Tensor high = c.highest(scores, Ints{2});
  Tensor powers = powers_of(c, scores, high);
  Tensor sum = c.sum(powers, Ints{2});
  Tensor is_empty = c.equal(sum, c.number_like(0, sum));
  Tensor total = c.select(is_empty, c.number_like(1, sum), sum);
  Tensor probability = c.div(powers, total);
  Tensor turned = multiplied(b, transposed(c, value), swapped(s.value()),
                             transposed(c, probability), swapped(s.scores()));
  Tensor output = transposed(c, turned);
  Tensor log_sum_exp =
      c.select(is_empty, c.number_like(-std::numeric_limits<double>::infinity(), sum),
               c.add(c.log(total), high));
  const ValueType& type = b.out_type(node);
  return {c.cast(c.reshape(output, type.shape), mps_type(type.dtype)),
          c.reshape(log_sum_exp, b.out_type(node, 1).shape)};
}

// dv = P^T dout, dS = P (dout v^T - rowsum(dout out)), dq = scale dS k, dk = scale dS^T q.
Tensors lower_attention_grad(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const Shapes s =
      shapes_of(b.in_type(node, 1).shape, b.in_type(node, 2).shape, b.in_type(node, 3).shape);
  Tensor grad = wide(b, node, 0, s.output());
  Tensor query = wide(b, node, 1, s.query());
  Tensor key = wide(b, node, 2, s.key());
  Tensor value = wide(b, node, 3, s.value());
  Tensor output = wide(b, node, 4, s.output());
  Tensor scores = scores_of(b, node, s, query, key, 6);
  Tensor probability = powers_of(c, scores, wide(b, node, 5, s.column()));
  Tensor dv = multiplied(b, transposed(c, probability), swapped(s.scores()), grad, s.output());
  Tensor d_probability = multiplied(b, grad, s.output(), transposed(c, value), swapped(s.value()));
  Tensor row_sum = c.sum(c.mul(grad, output), Ints{2});
  Tensor d_scores = c.mul(probability, c.sub(d_probability, row_sum));
  d_scores = c.mul(d_scores, c.number_like(node.real("scale"), d_scores));
  Tensor dq = multiplied(b, d_scores, s.scores(), key, s.key());
  Tensor dk = multiplied(b, transposed(c, d_scores), swapped(s.scores()), query, s.query());
  const auto narrowed = [&](Tensor x, size_t i) {
    const ValueType& type = b.out_type(node, i);
    return c.cast(c.reshape(x, type.shape), mps_type(type.dtype));
  };
  return {narrowed(dq, 0), narrowed(dk, 1), narrowed(dv, 2)};
}

const LoweringRow kRows[] = {
    {"attention", lower_attention},
    {"attention_grad", lower_attention_grad},
};

}  // namespace

std::span<const LoweringRow> attention_lowerings() { return kRows; }

}  // namespace lucid::metal

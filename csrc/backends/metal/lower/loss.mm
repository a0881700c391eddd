// Cross-entropy of logits against class indices, and its gradient; formulas in ops/loss.cpp.
#include <optional>

#include "backends/metal/lower/families.h"

namespace lucid::metal {
namespace {

/// What the operands of both operations say, in float32.
struct Operands {
  Tensor logits;   ///< (N, C)
  Tensor classes;  ///< int32 (1, C): 0 .. C - 1
  Tensor active;   ///< bool (N, 1): the row is not ignored
  Tensor target;   ///< int32 (N, 1): 0 where the row is ignored
  Tensor weights;  ///< (1, C), or null for ones
  Tensor weight;   ///< (N, 1): that of the target, 0 where the row is ignored
  Shape column;    ///< (N, 1)
  double smoothing;
  double num_classes;
};

Operands operands_of(Lowering& b, const Node& node, size_t logits, size_t target, size_t weight) {
  const Calc& c = b.calc();
  const Shape& shape = b.in_type(node, logits).shape;
  const Shape column{shape[0], 1};
  Operands o{};
  o.column = column;
  o.smoothing = node.real("label_smoothing");
  o.num_classes = static_cast<double>(shape[1]);
  o.logits = c.cast(b.in(node, logits), MPSDataTypeFloat32);
  o.classes = c.iota(Shape{1, shape[1]}, 1);
  const int64_t ignored = node.integer("ignore_index");
  Tensor given = b.in(node, target);
  o.active =
      c.reshape(c.not_equal(given, c.number_like(static_cast<double>(ignored), given)), column);
  o.target = c.reshape(b.labels(node, target, shape[1], ignored), column);
  Tensor one = c.number(1, MPSDataTypeFloat32);
  Tensor zero = c.number(0, MPSDataTypeFloat32);
  Tensor each = one;
  if (node.has(weight)) {
    Tensor flat = c.cast(b.in(node, weight), MPSDataTypeFloat32);
    o.weights = c.reshape(flat, Shape{1, shape[1]});
    Tensor picked = c.select(c.equal(o.target, o.classes), o.weights, zero);
    each = c.sum(picked, Ints{1});
  }
  o.weight = c.select(o.active, each, zero);
  return o;
}

Tensor log_sum_exp_of(const Calc& c, Tensor logits) {
  Tensor high = c.highest(logits, Ints{1});
  Tensor total = c.sum(c.exp(c.sub(logits, high)), Ints{1});
  return c.add(c.log(total), high);
}

/// (1 - e) w_t at the target plus e / C w_c everywhere: (N, C).
Tensor target_distribution(const Calc& c, const Operands& o) {
  Tensor zero = c.number(0, MPSDataTypeFloat32);
  Tensor at_target = c.mul(o.weight, c.number(1 - o.smoothing, MPSDataTypeFloat32));
  Tensor sharp = c.select(c.equal(o.target, o.classes), at_target, zero);
  if (o.smoothing <= 0) return sharp;
  Tensor share = c.number(o.smoothing / o.num_classes, MPSDataTypeFloat32);
  return c.add(sharp, o.weights == nil ? share : c.mul(o.weights, share));
}

// The loss of a row is sum_c q_c (log_sum_exp - x_c) with q the target distribution. Classes of no
// share count 0, also where a logit is infinite.
Tensors lower_cross_entropy(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const Operands o = operands_of(b, node, 0, 1, 2);
  const MPSDataType type = mps_type(b.out_type(node).dtype);
  Tensor log_sum_exp = log_sum_exp_of(c, o.logits);
  Tensor zero = c.number(0, MPSDataTypeFloat32);
  Tensor share = target_distribution(c, o);
  Tensor terms = c.mul(share, c.sub(log_sum_exp, o.logits));
  Tensor rows = c.sum(c.select(c.equal(share, zero), zero, terms), Ints{1});
  Tensor losses = c.select(o.active, rows, zero);
  const std::string& reduction = node.string("reduction");
  Tensor loss = reduction == "none" ? losses : c.sum(losses, Ints{0});
  if (reduction == "mean") loss = c.div(loss, c.sum(o.weight, Ints{0}));
  return {c.cast(c.reshape(loss, b.out_type(node).shape), type),
          c.reshape(log_sum_exp, b.out_type(node, 1).shape)};
}

// dx_c = g (p_c sum_k q_k - q_c), 0 in ignored rows.
Tensors lower_cross_entropy_grad(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const Operands o = operands_of(b, node, 1, 2, 4);
  Tensor zero = c.number(0, MPSDataTypeFloat32);
  Tensor grad = c.cast(b.in(node, 0), MPSDataTypeFloat32);
  const std::string& reduction = node.string("reduction");
  grad = c.reshape(grad, reduction == "none" ? o.column : Shape{1, 1});
  if (reduction == "mean") grad = c.div(grad, c.sum(o.weight, Ints{0}));
  Tensor log_sum_exp = c.reshape(b.in(node, 3), o.column);
  Tensor probability = c.exp(c.sub(o.logits, log_sum_exp));
  Tensor share = target_distribution(c, o);
  Tensor mass = c.sum(share, Ints{1});
  Tensor slope = c.mul(grad, c.sub(c.mul(probability, mass), share));
  return {c.cast(c.select(o.active, slope, zero), mps_type(b.out_type(node).dtype))};
}

const LoweringRow kRows[] = {
    {"cross_entropy", lower_cross_entropy},
    {"cross_entropy_grad", lower_cross_entropy_grad},
};

}  // namespace

std::span<const LoweringRow> loss_lowerings() { return kRows; }

}  // namespace lucid::metal

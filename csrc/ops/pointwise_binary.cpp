// Element-wise arithmetic of two inputs. A gradient is summed back to the shape of its input where
// that was broadcast.
#include <array>
#include <string_view>
#include <vector>

#include "ops/families.h"
#include "ops/infer.h"
#include "ops/vjp.h"

namespace lucid::ops {
namespace {

constexpr uint32_t kTraits = ir::kPure | ir::kElementwise | ir::kInPlace;
constexpr Reads kReadsBoth{.inputs = 0b11, .outputs = 0};

using Wanted = std::vector<bool>;

/// Gradient of one input, of the output's shape.
using SideRule = ValueId (*)(Builder& b, const Node& node, ValueId grad);

/// The gradient rule of a binary operation from the rules of its two inputs.
template <SideRule kLeft, SideRule kRight>
Grads binary_vjp(Builder& b, const Node& node, const Grads& grads, const Wanted& wanted) {
  Grads result = absent(node);
  if (!grads[0]) return result;
  constexpr std::array<SideRule, 2> kRules = {kLeft, kRight};
  for (size_t i = 0; i < kRules.size(); ++i) {
    if (!wants(b, node, wanted, i)) continue;
    const Shape shape = b.shape(node.in(i));
    const ValueId full = kRules[i](b, node, *grads[0]);
    result[i] = b.sum_to(full, shape);
  }
  return result;
}

ValueId same(Builder&, const Node&, ValueId grad) { return grad; }

ValueId opposite(Builder& b, const Node&, ValueId grad) { return b.neg(grad); }

ValueId zero(Builder& b, const Node&, ValueId grad) { return b.full_like(0.0, grad); }

// d (l r) = r dl + l dr
ValueId mul_left(Builder& b, const Node& node, ValueId grad) { return b.mul(grad, node.in(1)); }

ValueId mul_right(Builder& b, const Node& node, ValueId grad) { return b.mul(grad, node.in(0)); }

// d (l / r) = dl / r - (l / r) / r dr
ValueId div_left(Builder& b, const Node& node, ValueId grad) { return b.div(grad, node.in(1)); }

ValueId div_right(Builder& b, const Node& node, ValueId grad) {
  const ValueId slope = b.div(node.outputs[0], node.in(1));
  const ValueId product = b.mul(grad, slope);
  return b.neg(product);
}

// The chosen input has the gradient, a tie shares it; nan is neither a loser nor a tie. As PyTorch.
ValueId winner(Builder& b, const Node& node, ValueId grad, std::string_view loses) {
  const ValueId half = b.number(0.5, grad);
  const ValueId none = b.number(0.0, grad);
  const ValueId tie = b.op("eq", {node.in(0), node.in(1)});
  const ValueId lost = b.op(loses, {node.in(0), node.in(1)});
  const ValueId share = b.mul(grad, half);
  const ValueId kept = b.where(lost, none, grad);
  return b.where(tie, share, kept);
}

ValueId if_not_less(Builder& b, const Node& node, ValueId grad) {
  return winner(b, node, grad, "lt");
}

ValueId if_not_greater(Builder& b, const Node& node, ValueId grad) {
  return winner(b, node, grad, "gt");
}

// fmod(l, r) = l - trunc(l / r) r
ValueId fmod_right(Builder& b, const Node& node, ValueId grad) {
  const ValueId quotient = b.div(node.in(0), node.in(1));
  const ValueId count = b.op("trunc", {quotient});
  const ValueId product = b.mul(grad, count);
  return b.neg(product);
}

// remainder(l, r) = l - floor(l / r) r
ValueId remainder_right(Builder& b, const Node& node, ValueId grad) {
  const ValueId count = b.op("floor_divide", {node.in(0), node.in(1)});
  const ValueId product = b.mul(grad, count);
  return b.neg(product);
}

// d x^e / dx = e x^(e-1), and 0 for e = 0 even where x^(e-1) is infinite.
ValueId pow_base(Builder& b, const Node& node, ValueId grad) {
  const ValueId x = node.in(0);
  const ValueId e = node.in(1);
  const ValueId one = b.number(1.0, grad);
  const ValueId none = b.number(0.0, grad);
  const ValueId lower = b.sub(e, one);
  const ValueId power = b.op("pow", {x, lower});
  const ValueId slope = b.mul(e, power);
  const ValueId product = b.mul(grad, slope);
  const ValueId constant = b.op("eq", {e, none});
  return b.where(constant, none, product);
}

// d x^e / de = x^e log(x), and 0 for x = 0, e >= 0 where the logarithm is infinite. The power is
// taken again: exponents seldom want a gradient, and so the output need not be kept.
ValueId pow_exponent(Builder& b, const Node& node, ValueId grad) {
  const ValueId x = node.in(0);
  const ValueId e = node.in(1);
  const ValueId none = b.number(0.0, grad);
  const ValueId power = b.op("pow", {x, e});
  const ValueId logarithm = b.op("log", {x});
  const ValueId slope = b.mul(power, logarithm);
  const ValueId product = b.mul(grad, slope);
  const ValueId at_zero = b.op("eq", {x, none});
  const ValueId not_negative = b.op("ge", {e, none});
  const ValueId flat = b.op("logical_and", {at_zero, not_negative});
  return b.where(flat, none, product);
}

// d atan2(y, x) = (x dy - y dx) / (x^2 + y^2)
ValueId over_squared_radius(Builder& b, const Node& node, ValueId leg) {
  const ValueId y2 = b.mul(node.in(0), node.in(0));
  const ValueId x2 = b.mul(node.in(1), node.in(1));
  const ValueId radius2 = b.add(y2, x2);
  return b.div(leg, radius2);
}

ValueId atan2_y(Builder& b, const Node& node, ValueId grad) {
  const ValueId slope = over_squared_radius(b, node, node.in(1));
  return b.mul(grad, slope);
}

ValueId atan2_x(Builder& b, const Node& node, ValueId grad) {
  const ValueId slope = over_squared_radius(b, node, node.in(0));
  const ValueId product = b.mul(grad, slope);
  return b.neg(product);
}

struct BinaryRow {
  std::string_view name;
  std::string_view doc;
  uint32_t extra_traits;
  ir::InferFn infer;
  ir::VjpFn vjp;
  Reads reads;
  ir::Autocast autocast = ir::Autocast::kNone;
};

constexpr uint32_t kCheapPromotes = ir::kCheap | ir::kPromotes;
constexpr uint32_t kCheapCommutes = kCheapPromotes | ir::kCommutative;

// maximum and minimum do not commute bit by bit: of 0.0 and -0.0 a kernel may take either.
constexpr BinaryRow kRows[] = {
    {"add", "lhs + rhs; or of bools", kCheapCommutes, infer_elementwise, binary_vjp<same, same>,
     kReadsNothing},
    {"sub", "lhs - rhs", kCheapPromotes, infer_number, binary_vjp<same, opposite>, kReadsNothing},
    {"mul", "lhs * rhs; and of bools", kCheapCommutes, infer_elementwise,
     binary_vjp<mul_left, mul_right>, kReadsBoth},
    {"div", "lhs / rhs, floating", ir::kCheap | ir::kPromotesToFloat, infer_floating,
     binary_vjp<div_left, div_right>, Reads{.inputs = 0b10, .outputs = 1}},
    {"maximum", "the larger input; nan if one is nan", kCheapPromotes, infer_elementwise,
     binary_vjp<if_not_less, if_not_greater>, kReadsBoth},
    {"minimum", "the smaller input; nan if one is nan", kCheapPromotes, infer_elementwise,
     binary_vjp<if_not_greater, if_not_less>, kReadsBoth},
    {"fmod", "remainder with the sign of lhs", ir::kPromotes, infer_number,
     binary_vjp<same, fmod_right>, kReadsBoth},
    {"remainder", "remainder with the sign of rhs", ir::kPromotes, infer_number,
     binary_vjp<same, remainder_right>, kReadsBoth},
    {"floor_divide", "largest integer <= lhs / rhs", ir::kPromotes, infer_number,
     binary_vjp<zero, zero>, kReadsNothing},
    {"pow", "lhs to the power of rhs", ir::kPromotes, infer_number,
     binary_vjp<pow_base, pow_exponent>, kReadsBoth, ir::Autocast::kFloat32},
    {"atan2", "angle of the point (x = rhs, y = lhs), radians", ir::kPromotesToFloat,
     infer_floating, binary_vjp<atan2_y, atan2_x>, kReadsBoth},
};

}  // namespace

std::vector<ir::Op> pointwise_binary_ops() {
  std::vector<ir::Op> rows;
  for (const BinaryRow& row : kRows) {
    rows.push_back({.name = row.name,
                    .doc = row.doc,
                    .min_inputs = 2,
                    .max_inputs = 2,
                    .traits = kTraits | row.extra_traits,
                    .infer = row.infer,
                    .vjp = row.vjp,
                    .vjp_reads_inputs = row.reads.inputs,
                    .vjp_reads_outputs = row.reads.outputs,
                    .autocast = row.autocast});
  }
  return rows;
}

}  // namespace lucid::ops

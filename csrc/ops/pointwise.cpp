// Activations, selection and casts; joins them with the tables of unary and binary operations.
#include <algorithm>
#include <iterator>
#include <numbers>
#include <string>
#include <vector>

#include "ops/families.h"
#include "ops/infer.h"
#include "ops/infer_window.h"
#include "ops/vjp.h"

namespace lucid::ops {
namespace {

using ir::InferArgs;
using ir::ValueTypes;

constexpr uint32_t kTraits = ir::kPure | ir::kElementwise | ir::kInPlace;
constexpr uint32_t kFloatingTraits = kTraits | ir::kPromotesToFloat;

using Wanted = std::vector<bool>;

// d sigmoid(x) = y (1 - y) dx
ValueId sigmoid_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId y = node.outputs[0];
  const ValueId one = b.number(1.0, grad);
  const ValueId rest = b.sub(one, y);
  const ValueId slope = b.mul(y, rest);
  return b.mul(grad, slope);
}

// The gradient passes where the output is positive or nan; at 0 it is 0, as in PyTorch.
ValueId relu_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId none = b.number(0.0, grad);
  const ValueId off = b.op("le", {node.outputs[0], none});
  return b.where(off, none, grad);
}

// gelu(x) = x Phi(x) with the normal distribution Phi(x) = erfc(-x / sqrt(2)) / 2
// (Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2). 1 + erf would cancel for x < 0.
ValueId normal_distribution(Builder& b, ValueId x) {
  const ValueId root = b.number(-1.0 / std::numbers::sqrt2, x);
  const ValueId half = b.number(0.5, x);
  const ValueId scaled = b.mul(x, root);
  const ValueId twice = b.op("erfc", {scaled});
  return b.mul(twice, half);
}

constexpr double kTwiceTanhScale = 2.0 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
constexpr double kTanhCubic = 0.044715;

// The approximation of Phi in the same paper, (1 + tanh u) / 2 with u = sqrt(2 / pi)
// (x + 0.044715 x^3), as sigmoid(2 u), which does not cancel. `x2` is x^2.
ValueId gelu_tanh_distribution(Builder& b, ValueId x, ValueId x2) {
  const ValueId scale = b.number(kTwiceTanhScale, x);
  const ValueId cubic = b.number(kTwiceTanhScale * kTanhCubic, x);
  const ValueId bend = b.mul(x2, cubic);
  const ValueId sum = b.add(bend, scale);
  const ValueId argument = b.mul(x, sum);
  return b.op("sigmoid", {argument});
}

// d (x Phi(x)) = (Phi(x) + x phi(x)) dx with the density phi(x) = exp(-x^2 / 2) / sqrt(2 pi)
ValueId gelu_exact_slope(Builder& b, ValueId x) {
  const ValueId distribution = normal_distribution(b, x);
  const ValueId half = b.number(-0.5, x);
  const ValueId peak = b.number(std::numbers::inv_sqrtpi / std::numbers::sqrt2, x);
  const ValueId x2 = b.mul(x, x);
  const ValueId exponent = b.mul(x2, half);
  const ValueId bell = b.op("exp", {exponent});
  const ValueId density = b.mul(bell, peak);
  const ValueId drift = b.mul(x, density);
  return b.add(distribution, drift);
}

// d (x s) = (s + x s (1 - s) 2 u') dx with s = sigmoid(2 u) and
// 2 u' = 2 sqrt(2 / pi) (1 + 3 0.044715 x^2)
ValueId gelu_tanh_slope(Builder& b, ValueId x) {
  // Below -100 s is 0, which times an infinite x^2 would be nan.
  const ValueId bounded = b.op("maximum", {x, b.number(-100.0, x)});
  const ValueId x2 = b.mul(bounded, bounded);
  const ValueId s = gelu_tanh_distribution(b, x, x2);
  const ValueId one = b.number(1.0, x);
  const ValueId scale = b.number(kTwiceTanhScale, x);
  const ValueId cubic = b.number(3.0 * kTwiceTanhScale * kTanhCubic, x);
  const ValueId bend = b.mul(x2, cubic);
  const ValueId inner = b.add(bend, scale);
  const ValueId rest = b.sub(one, s);
  const ValueId outer = b.mul(s, rest);
  const ValueId slope = b.mul(outer, inner);
  const ValueId drift = b.mul(x, slope);
  return b.add(s, drift);
}

bool is_tanh(const Node& node) { return node.string("approximate") == "tanh"; }

ValueId gelu_rule(Builder& b, const Node& node, ValueId grad) {
  return b.op("gelu_grad", {grad, node.in(0)}, {node.attr("approximate")});
}

std::vector<ValueId> gelu_grad_decompose(Builder& b, const Node& node) {
  // From 40 on the slope is 1 in every dtype; at inf the terms would be inf times 0.
  const ValueId x = b.op("minimum", {node.in(1), b.number(40.0, node.in(1))});
  const ValueId slope = is_tanh(node) ? gelu_tanh_slope(b, x) : gelu_exact_slope(b, x);
  return {b.mul(node.in(0), slope)};
}

std::vector<ValueId> gelu_decompose(Builder& b, const Node& node) {
  const ValueId x = node.in(0);
  if (!is_tanh(node)) return {b.mul(x, normal_distribution(b, x))};
  const ValueId x2 = b.mul(x, x);
  const ValueId distribution = gelu_tanh_distribution(b, x, x2);
  return {b.mul(x, distribution)};
}

void check_approximation(const InferArgs& args) {
  const std::string& approximate = args.string("approximate");
  if (approximate != "none" && approximate != "tanh") {
    args.fail(ErrorKind::kUser,
              "approximate is unknown: '" + approximate + "'; use 'none' or 'tanh'");
  }
}

ValueTypes infer_gelu(const InferArgs& args) {
  check_approximation(args);
  return infer_floating(args);
}

ValueTypes infer_gelu_grad(const InferArgs& args) {
  constexpr InputName kGrad{0, "grad"};
  constexpr InputName kInput{1, "input"};
  check_approximation(args);
  require_floating(args, {kGrad, kInput});
  require_shape(args, kInput, args.shape(0), kGrad);
  require_dtype(args, kInput, args.dtype(0));
  return {args.input(0)};
}

// d (x s) = s (1 + x (1 - s)) dx with s = sigmoid(x)
// (Elfwing, Uchibe and Doya 2017, arXiv:1702.03118, equation 6).
ValueId silu_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId x = node.in(0);
  const ValueId one = b.number(1.0, grad);
  const ValueId s = b.op("sigmoid", {x});
  const ValueId rest = b.sub(one, s);
  const ValueId drift = b.mul(x, rest);
  const ValueId sum = b.add(drift, one);
  const ValueId slope = b.mul(s, sum);
  return b.mul(grad, slope);
}

std::vector<ValueId> silu_decompose(Builder& b, const Node& node) {
  const ValueId s = b.op("sigmoid", {node.in(0)});
  return {b.mul(node.in(0), s)};
}

// d (log(1 + exp(beta x)) / beta) = sigmoid(beta x) dx; 1 where beta x > threshold
// (Dugas and others 2001, NIPS 13, equation 3).
ValueId softplus_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId beta = b.number(node.real("beta"), grad);
  const ValueId threshold = b.number(node.real("threshold"), grad);
  const ValueId scaled = b.mul(node.in(0), beta);
  const ValueId slope = b.op("sigmoid", {scaled});
  const ValueId bent = b.mul(grad, slope);
  const ValueId linear = b.op("gt", {scaled, threshold});
  return b.where(linear, grad, bent);
}

std::vector<ValueId> softplus_decompose(Builder& b, const Node& node) {
  const ValueId x = node.in(0);
  const ValueId beta = b.number(node.real("beta"), x);
  const ValueId threshold = b.number(node.real("threshold"), x);
  const ValueId scaled = b.mul(x, beta);
  const ValueId power = b.op("exp", {scaled});
  const ValueId logarithm = b.op("log1p", {power});
  const ValueId bent = b.div(logarithm, beta);
  const ValueId linear = b.op("gt", {scaled, threshold});
  return {b.where(linear, x, bent)};
}

ValueId leaky_relu_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId slope = b.number(node.real("negative_slope"), grad);
  const ValueId none = b.number(0.0, grad);
  const ValueId small = b.mul(grad, slope);
  const ValueId positive = b.op("gt", {node.in(0), none});
  return b.where(positive, grad, small);
}

std::vector<ValueId> leaky_relu_decompose(Builder& b, const Node& node) {
  const ValueId x = node.in(0);
  const ValueId slope = b.number(node.real("negative_slope"), x);
  const ValueId none = b.number(0.0, x);
  const ValueId small = b.mul(x, slope);
  const ValueId positive = b.op("gt", {x, none});
  return {b.where(positive, x, small)};
}

ValueTypes infer_where(const InferArgs& args) {
  if (args.dtype(0) != DType::kBool) {
    args.fail(ErrorKind::kDType, "condition is not bool: " + std::string(name(args.dtype(0))) +
                                     "; compare or cast to bool first");
  }
  require_same_dtype(args, 1, 2);
  return {{args.dtype(1), broadcast_shape(args)}};
}

// Each side has the gradient where it was chosen.
Grads where_vjp(Builder& b, const Node& node, const Grads& grads, const Wanted& wanted) {
  Grads result = absent(node);
  if (!grads[0]) return result;
  const ValueId grad = *grads[0];
  for (size_t side = 1; side <= 2; ++side) {
    if (!wants(b, node, wanted, side)) continue;
    const Shape shape = b.shape(node.in(side));
    const ValueId none = b.number(0.0, grad);
    const ValueId chosen = side == 1 ? b.where(node.in(0), grad, none)  //
                                     : b.where(node.in(0), none, grad);
    result[side] = b.sum_to(chosen, shape);
  }
  return result;
}

// The input has the gradient inside and at the bounds; a bound where it cuts. Where low > high the
// result is high. As PyTorch.
ValueId clamp_slope(Builder& b, const Node& node, ValueId grad, size_t input) {
  const ValueId x = node.in(0);
  const ValueId low = node.in(1);
  const ValueId high = node.in(2);
  const ValueId none = b.number(0.0, grad);
  if (input == 0) {
    const ValueId above = b.op("ge", {x, low});
    const ValueId below = b.op("le", {x, high});
    const ValueId inside = b.op("logical_and", {above, below});
    return b.where(inside, grad, none);
  }
  if (input == 1) {
    const ValueId ordered = b.op("lt", {low, high});
    const ValueId below = b.op("lt", {x, low});
    const ValueId cut = b.op("logical_and", {ordered, below});
    return b.where(cut, grad, none);
  }
  const ValueId crossed = b.op("lt", {high, low});
  const ValueId above = b.op("gt", {x, high});
  const ValueId cut = b.op("logical_or", {crossed, above});
  return b.where(cut, grad, none);
}

Grads clamp_vjp(Builder& b, const Node& node, const Grads& grads, const Wanted& wanted) {
  Grads result = absent(node);
  if (!grads[0]) return result;
  for (size_t i = 0; i < result.size(); ++i) {
    if (!wants(b, node, wanted, i)) continue;
    const Shape shape = b.shape(node.in(i));
    const ValueId full = clamp_slope(b, node, *grads[0], i);
    result[i] = b.sum_to(full, shape);
  }
  return result;
}

ValueTypes infer_cast(const InferArgs& args) { return {{args.dtype_attr("dtype"), args.shape(0)}}; }

ValueId cast_rule(Builder& b, const Node& node, ValueId grad) {
  const DType dtype = b.dtype(node.in(0));
  return b.cast(grad, dtype);
}

std::vector<ir::Op> gelu_rows() {
  using ir::AttrType;
  return {
      {.name = "gelu",
       .doc = "x times the normal distribution at x, exact or by tanh",
       .attrs = {{"approximate", AttrType::kString}},
       .traits = kFloatingTraits,
       .infer = infer_gelu,
       .vjp = unary_vjp<gelu_rule>,
       .decompose = gelu_decompose,
       .vjp_reads_inputs = 1,
       .vjp_reads_outputs = 0},
      {.name = "gelu_grad",
       .doc = "gradient of gelu by its input, which is the second operand",
       .min_inputs = 2,
       .max_inputs = 2,
       .attrs = {{"approximate", AttrType::kString}},
       .traits = kTraits,
       .infer = infer_gelu_grad,
       .decompose = gelu_grad_decompose},
  };
}

std::vector<ir::Op> activation_rows() {
  using ir::AttrType;
  return {
      {.name = "sigmoid",
       .doc = "1 / (1 + exp(-x))",
       .traits = kFloatingTraits,
       .infer = infer_floating,
       .vjp = unary_vjp<sigmoid_rule>,
       .vjp_reads_inputs = 0,
       .vjp_reads_outputs = 1},
      {.name = "relu",
       .doc = "max(x, 0); nan stays",
       .traits = kTraits | ir::kCheap,
       .infer = infer_number,
       .vjp = unary_vjp<relu_rule>,
       .vjp_reads_inputs = 0,
       .vjp_reads_outputs = 1},
      {.name = "silu",
       .doc = "x sigmoid(x)",
       .traits = kFloatingTraits,
       .infer = infer_floating,
       .vjp = unary_vjp<silu_rule>,
       .decompose = silu_decompose,
       .vjp_reads_inputs = 1,
       .vjp_reads_outputs = 0},
      {.name = "softplus",
       .doc = "log(1 + exp(beta x)) / beta; x where beta x > threshold",
       .attrs = {{"beta", AttrType::kFloat}, {"threshold", AttrType::kFloat}},
       .traits = kFloatingTraits,
       .infer = infer_floating,
       .vjp = unary_vjp<softplus_rule>,
       .decompose = softplus_decompose,
       .vjp_reads_inputs = 1,
       .vjp_reads_outputs = 0,
       .autocast = ir::Autocast::kFloat32},
      {.name = "leaky_relu",
       .doc = "x where x > 0, else negative_slope x",
       .attrs = {{"negative_slope", AttrType::kFloat}},
       .traits = kFloatingTraits | ir::kCheap,
       .infer = infer_floating,
       .vjp = unary_vjp<leaky_relu_rule>,
       .decompose = leaky_relu_decompose,
       .vjp_reads_inputs = 1,
       .vjp_reads_outputs = 0},
  };
}

std::vector<ir::Op> selection_rows() {
  using ir::AttrType;
  return {
      {.name = "where",
       .doc = "the second input where the condition holds, else the third",
       .min_inputs = 3,
       .max_inputs = 3,
       .traits = kTraits | ir::kPromotes | ir::kCheap,
       .infer = infer_where,
       .vjp = where_vjp,
       .vjp_reads_inputs = 0b001,
       .vjp_reads_outputs = 0,
       .promotes_from = 1},
      {.name = "clamp",
       .doc = "min(max(x, low), high); nan stays",
       .min_inputs = 3,
       .max_inputs = 3,
       .traits = kTraits | ir::kPromotes | ir::kCheap,
       .infer = infer_number,
       .vjp = clamp_vjp,
       .vjp_reads_inputs = 0b111,
       .vjp_reads_outputs = 0},
      {.name = "cast",
       .doc = "the value in another dtype; floating to integer truncates",
       .attrs = {{"dtype", AttrType::kDType}},
       .traits = kTraits | ir::kCheap,
       .infer = infer_cast,
       .vjp = unary_vjp<cast_rule>,
       .vjp_reads_inputs = 0,
       .vjp_reads_outputs = 0},
  };
}

}  // namespace

std::vector<ir::Op> pointwise_ops() {
  std::vector<ir::Op> rows;
  for (const auto part :
       {pointwise_unary_ops, gelu_rows, activation_rows, pointwise_binary_ops, selection_rows}) {
    std::ranges::move(part(), std::back_inserter(rows));
  }
  return rows;
}

}  // namespace lucid::ops

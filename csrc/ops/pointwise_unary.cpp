// Element-wise functions of one input. Derivatives: NIST Digital Library of Mathematical Functions
// (dlmf.nist.gov), 4.7, 4.20, 4.24, 4.34, 4.38 and 7.10. A rule uses the output where it can, so
// that the input need not be kept.
#include <numbers>
#include <string_view>
#include <vector>

#include "ops/families.h"
#include "ops/infer.h"
#include "ops/vjp.h"

namespace lucid::ops {
namespace {

constexpr uint32_t kTraits = ir::kPure | ir::kElementwise | ir::kInPlace;

// d sqrt(x) = dx / (2 sqrt(x))
ValueId sqrt_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId two = b.number(2.0, grad);
  const ValueId twice = b.mul(node.outputs[0], two);
  return b.div(grad, twice);
}

// d x^(-1/2) = -1/2 x^(-3/2) dx
ValueId rsqrt_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId y = node.outputs[0];
  const ValueId half = b.number(-0.5, grad);
  const ValueId y2 = b.mul(y, y);
  const ValueId y3 = b.mul(y2, y);
  const ValueId slope = b.mul(y3, half);
  return b.mul(grad, slope);
}

// d (1/x) = -1/x^2 dx
ValueId reciprocal_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId y = node.outputs[0];
  const ValueId y2 = b.mul(y, y);
  const ValueId product = b.mul(grad, y2);
  return b.neg(product);
}

// d exp(x) = exp(x) dx
ValueId exp_rule(Builder& b, const Node& node, ValueId grad) {
  return b.mul(grad, node.outputs[0]);
}

// d (exp(x) - 1) = exp(x) dx
ValueId expm1_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId one = b.number(1.0, grad);
  const ValueId slope = b.add(node.outputs[0], one);
  return b.mul(grad, slope);
}

// d log(x) = dx / x
ValueId log_rule(Builder& b, const Node& node, ValueId grad) { return b.div(grad, node.in(0)); }

// d log(1 + x) = dx / (1 + x)
ValueId log1p_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId one = b.number(1.0, grad);
  const ValueId shifted = b.add(node.in(0), one);
  return b.div(grad, shifted);
}

// d log_base(x) = dx / (x log(base))
ValueId log_base_rule(Builder& b, const Node& node, ValueId grad, double log_of_base) {
  const ValueId factor = b.number(log_of_base, grad);
  const ValueId scaled = b.mul(node.in(0), factor);
  return b.div(grad, scaled);
}

ValueId log2_rule(Builder& b, const Node& node, ValueId grad) {
  return log_base_rule(b, node, grad, std::numbers::ln2);
}

ValueId log10_rule(Builder& b, const Node& node, ValueId grad) {
  return log_base_rule(b, node, grad, std::numbers::ln10);
}

// d sin(x) = cos(x) dx
ValueId sin_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId slope = b.op("cos", {node.in(0)});
  return b.mul(grad, slope);
}

// d cos(x) = -sin(x) dx
ValueId cos_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId sine = b.op("sin", {node.in(0)});
  const ValueId product = b.mul(grad, sine);
  return b.neg(product);
}

// d tan(x) = (1 + tan(x)^2) dx
ValueId tan_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId y = node.outputs[0];
  const ValueId one = b.number(1.0, grad);
  const ValueId y2 = b.mul(y, y);
  const ValueId slope = b.add(y2, one);
  return b.mul(grad, slope);
}

// 1 - v^2
ValueId one_minus_square(Builder& b, ValueId v) {
  const ValueId one = b.number(1.0, v);
  const ValueId square = b.mul(v, v);
  return b.sub(one, square);
}

// 1 + v^2
ValueId one_plus_square(Builder& b, ValueId v) {
  const ValueId one = b.number(1.0, v);
  const ValueId square = b.mul(v, v);
  return b.add(square, one);
}

// d asin(x) = dx / sqrt(1 - x^2)
ValueId asin_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId radicand = one_minus_square(b, node.in(0));
  const ValueId slope = b.op("rsqrt", {radicand});
  return b.mul(grad, slope);
}

// d acos(x) = -dx / sqrt(1 - x^2)
ValueId acos_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId opposite = asin_rule(b, node, grad);
  return b.neg(opposite);
}

// d atan(x) = dx / (1 + x^2)
ValueId atan_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId denominator = one_plus_square(b, node.in(0));
  return b.div(grad, denominator);
}

// d sinh(x) = cosh(x) dx
ValueId sinh_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId slope = b.op("cosh", {node.in(0)});
  return b.mul(grad, slope);
}

// d cosh(x) = sinh(x) dx
ValueId cosh_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId slope = b.op("sinh", {node.in(0)});
  return b.mul(grad, slope);
}

// d tanh(x) = (1 - tanh(x)^2) dx
ValueId tanh_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId slope = one_minus_square(b, node.outputs[0]);
  return b.mul(grad, slope);
}

// d asinh(x) = dx / sqrt(x^2 + 1)
ValueId asinh_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId radicand = one_plus_square(b, node.in(0));
  const ValueId slope = b.op("rsqrt", {radicand});
  return b.mul(grad, slope);
}

// d acosh(x) = dx / sqrt((x - 1)(x + 1)); the factors keep the digits that x^2 - 1 loses near 1.
ValueId acosh_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId x = node.in(0);
  const ValueId one = b.number(1.0, grad);
  const ValueId below = b.sub(x, one);
  const ValueId above = b.add(x, one);
  const ValueId radicand = b.mul(below, above);
  const ValueId slope = b.op("rsqrt", {radicand});
  return b.mul(grad, slope);
}

// d atanh(x) = dx / (1 - x^2)
ValueId atanh_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId denominator = one_minus_square(b, node.in(0));
  return b.div(grad, denominator);
}

// d erf(x) = 2 / sqrt(pi) exp(-x^2) dx
ValueId erf_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId x = node.in(0);
  const ValueId factor = b.number(2.0 * std::numbers::inv_sqrtpi, grad);
  const ValueId square = b.mul(x, x);
  const ValueId exponent = b.neg(square);
  const ValueId bell = b.op("exp", {exponent});
  const ValueId slope = b.mul(bell, factor);
  return b.mul(grad, slope);
}

// erfc(x) = 1 - erf(x)
ValueId erfc_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId opposite = erf_rule(b, node, grad);
  return b.neg(opposite);
}

ValueId neg_rule(Builder& b, const Node&, ValueId grad) { return b.neg(grad); }

// d |x| = sign(x) dx, with 0 at 0
ValueId abs_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId slope = b.op("sign", {node.in(0)});
  return b.mul(grad, slope);
}

// d x^2 = 2 x dx
ValueId square_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId two = b.number(2.0, grad);
  const ValueId slope = b.mul(node.in(0), two);
  return b.mul(grad, slope);
}

// Steps are flat wherever they have a slope; PyTorch takes 0 at the jumps, too.
ValueId step_rule(Builder& b, const Node&, ValueId grad) { return b.full_like(0.0, grad); }

struct UnaryRow {
  std::string_view name;
  std::string_view doc;
  ir::VjpFn vjp;
  Reads reads;
  uint32_t extra_traits = 0;
  ir::Autocast autocast = ir::Autocast::kNone;
};

ir::Op unary(const UnaryRow& row, ir::InferFn infer) {
  return {.name = row.name,
          .doc = row.doc,
          .traits = kTraits | row.extra_traits,
          .infer = infer,
          .vjp = row.vjp,
          .vjp_reads_inputs = row.reads.inputs,
          .vjp_reads_outputs = row.reads.outputs,
          .autocast = row.autocast};
}

constexpr ir::Autocast kWide = ir::Autocast::kFloat32;

constexpr UnaryRow kFloatingRows[] = {
    {"sqrt", "square root", unary_vjp<sqrt_rule>, kReadsOutput, ir::kCheap},
    {"rsqrt", "reciprocal of the square root", unary_vjp<rsqrt_rule>, kReadsOutput, ir::kCheap,
     kWide},
    {"reciprocal", "1 / x", unary_vjp<reciprocal_rule>, kReadsOutput, ir::kCheap, kWide},
    {"exp", "exponential", unary_vjp<exp_rule>, kReadsOutput, 0, kWide},
    {"expm1", "exp(x) - 1, exact near 0", unary_vjp<expm1_rule>, kReadsOutput, 0, kWide},
    {"log", "natural logarithm", unary_vjp<log_rule>, kReadsInput, 0, kWide},
    {"log1p", "log(1 + x), exact near 0", unary_vjp<log1p_rule>, kReadsInput, 0, kWide},
    {"log2", "logarithm of base 2", unary_vjp<log2_rule>, kReadsInput, 0, kWide},
    {"log10", "logarithm of base 10", unary_vjp<log10_rule>, kReadsInput, 0, kWide},
    {"sin", "sine of radians", unary_vjp<sin_rule>, kReadsInput},
    {"cos", "cosine of radians", unary_vjp<cos_rule>, kReadsInput},
    {"tan", "tangent of radians", unary_vjp<tan_rule>, kReadsOutput, 0, kWide},
    {"asin", "inverse sine, radians", unary_vjp<asin_rule>, kReadsInput, 0, kWide},
    {"acos", "inverse cosine, radians", unary_vjp<acos_rule>, kReadsInput, 0, kWide},
    {"atan", "inverse tangent, radians", unary_vjp<atan_rule>, kReadsInput},
    {"sinh", "hyperbolic sine", unary_vjp<sinh_rule>, kReadsInput, 0, kWide},
    {"cosh", "hyperbolic cosine", unary_vjp<cosh_rule>, kReadsInput, 0, kWide},
    {"tanh", "hyperbolic tangent", unary_vjp<tanh_rule>, kReadsOutput},
    {"asinh", "inverse hyperbolic sine", unary_vjp<asinh_rule>, kReadsInput},
    {"acosh", "inverse hyperbolic cosine", unary_vjp<acosh_rule>, kReadsInput},
    {"atanh", "inverse hyperbolic tangent", unary_vjp<atanh_rule>, kReadsInput},
    {"erf", "error function", unary_vjp<erf_rule>, kReadsInput},
    {"erfc", "complementary error function 1 - erf(x)", unary_vjp<erfc_rule>, kReadsInput},
};

constexpr UnaryRow kNumberRows[] = {
    {"neg", "-x", unary_vjp<neg_rule>, kReadsNothing, ir::kCheap},
    {"abs", "absolute value", unary_vjp<abs_rule>, kReadsInput, ir::kCheap},
    {"sign", "-1, 0 or 1", unary_vjp<step_rule>, kReadsNothing, ir::kCheap},
    {"square", "x * x", unary_vjp<square_rule>, kReadsInput, ir::kCheap},
    {"floor", "largest integer <= x", unary_vjp<step_rule>, kReadsNothing, ir::kCheap},
    {"ceil", "smallest integer >= x", unary_vjp<step_rule>, kReadsNothing, ir::kCheap},
    {"round", "nearest integer, halves to even", unary_vjp<step_rule>, kReadsNothing, ir::kCheap},
    {"trunc", "integer part, towards 0", unary_vjp<step_rule>, kReadsNothing, ir::kCheap},
};

}  // namespace

std::vector<ir::Op> pointwise_unary_ops() {
  std::vector<ir::Op> rows;
  for (const UnaryRow& row : kFloatingRows) {
    rows.push_back(unary(row, infer_floating));
    rows.back().traits |= ir::kPromotesToFloat;
  }
  for (const UnaryRow& row : kNumberRows) rows.push_back(unary(row, infer_number));
  return rows;
}

}  // namespace lucid::ops

// Element-wise functions of one input. Half types are computed in float32, as on the cpu;
// decomposed activations (gelu, silu, softplus, leaky_relu) have no row here.
#include "backends/metal/lower/families.h"

namespace lucid::metal {
namespace {

#define LUCID_UNARY(method) [](MPSGraph* g, Tensor x) { return [g method:x name:nil]; }

bool is_half_type(MPSDataType type) {
  return type == MPSDataTypeFloat16 || type == MPSDataTypeBFloat16;
}

/// The input, half types widened.
Tensor wide_input(Lowering& b, const Node& node) {
  Tensor x = b.in(node, 0);
  return is_half_type([x dataType]) ? b.calc().cast(x, MPSDataTypeFloat32) : x;
}

Tensors narrowed(Lowering& b, const Node& node, Tensor y) {
  return {b.calc().cast(y, mps_type(b.out_type(node).dtype))};
}

/// A row of one method.
template <UnaryMethod kMethod>
Tensors lower_method(Lowering& b, const Node& node) {
  Tensor y = b.calc().apply("unary", kMethod, wide_input(b, node));
  return narrowed(b, node, y);
}

/// A rounding: integers are whole already, and MPSGraph lacks kernels for some of them.
template <UnaryMethod kMethod>
Tensors lower_rounding(Lowering& b, const Node& node) {
  if (!is_floating(b.in_type(node, 0).dtype)) return {b.in(node, 0)};
  return lower_method<kMethod>(b, node);
}

using Formula = Tensor (*)(const Calc& c, Tensor x);

template <Formula kFormula>
Tensors lower_formula(Lowering& b, const Node& node) {
  return narrowed(b, node, kFormula(b.calc(), wide_input(b, node)));
}

/// True where |x| <= 1/2: there log1p and expm1 need their formulas, elsewhere nothing cancels.
Tensor is_small(const Calc& c, Tensor x) { return c.less_equal(c.abs(x), c.number_like(0.5, x)); }

// expm1(x) = (u - 1) x / log(u) with u = exp(x): the rounding of u cancels (Kahan; Higham 2002,
// "Accuracy and stability of numerical algorithms", section 1.14.1).
Tensor expm1(const Calc& c, Tensor x) {
  Tensor one = c.number_like(1, x);
  Tensor u = c.exp(x);
  Tensor direct = c.sub(u, one);
  Tensor flat = c.equal(u, one);
  Tensor logarithm = c.select(flat, one, c.log(u));
  Tensor corrected = c.select(flat, x, c.mul(direct, c.div(x, logarithm)));
  return c.select(is_small(c, x), corrected, direct);
}

// log1p(x) = log(u) x / (u - 1) with u = 1 + x, as above.
Tensor log1p(const Calc& c, Tensor x) {
  Tensor one = c.number_like(1, x);
  Tensor u = c.add(x, one);
  Tensor direct = c.log(u);
  Tensor flat = c.equal(u, one);
  Tensor step = c.select(flat, one, c.sub(u, one));
  Tensor corrected = c.select(flat, x, c.mul(direct, c.div(x, step)));
  return c.select(is_small(c, x), corrected, direct);
}

Tensor rsqrt(const Calc& c, Tensor x) { return c.div(c.number_like(1, x), c.sqrt(x)); }

/// Coefficients of the rational approximation of erfc, from t^9 down (Press and others 1992,
/// "Numerical recipes in C", section 6.2: relative error below 1.2e-7).
constexpr double kErfc[] = {0.17087277,  -0.82215223, 1.48851587, -1.13520398, 0.27886807,
                            -0.18628806, 0.09678418,  0.37409196, 1.00002368,  -1.26551223};

/// exp(-z^2) of a factor near 1 each: z is split so that the square of its head is exact.
Tensor bell(const Calc& c, Tensor z, Tensor exponent) {
  Tensor head = c.cast(c.cast(z, MPSDataTypeFloat16), MPSDataTypeFloat32);
  Tensor rest = c.mul(c.sub(z, head), c.add(z, head));  // z^2 - head^2
  return c.mul(c.exp(c.negative(c.mul(head, head))), c.exp(c.sub(exponent, rest)));
}

// 1 - erf(x) cancels for larger x, so the tail is approximated itself.
Tensor erfc(const Calc& c, Tensor x) {
  Tensor one = c.number_like(1, x);
  Tensor two = c.number_like(2, x);
  Tensor z = c.minimum(c.abs(x), c.number_like(16, x));  // erfc(16) is 0; nan stays
  Tensor t = c.div(two, c.add(two, z));
  Tensor series = c.number_like(kErfc[0], x);
  for (size_t i = 1; i < std::size(kErfc); ++i) {
    series = c.add(c.mul(series, t), c.number_like(kErfc[i], x));
  }
  Tensor tail = c.mul(t, bell(c, z, series));
  Tensor mirrored = c.select(c.less(x, c.number_like(0, x)), c.sub(two, tail), tail);
  Tensor direct = c.sub(one, c.apply("erf", LUCID_UNARY(erfWithTensor), x));
  return c.select(is_small(c, x), direct, mirrored);
}

// max(x, 0), and nan stays nan.
Tensors lower_relu(Lowering& b, const Node& node) {
  Tensor x = b.in(node, 0);
  return {b.calc().maximum(x, b.calc().number_like(0, x))};
}

Tensors lower_cast(Lowering& b, const Node& node) {
  return {b.calc().cast(b.in(node, 0), mps_type(b.out_type(node).dtype))};
}

// Metal's sign of nan is 0.
Tensors lower_sign(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  Tensor x = b.in(node, 0);
  Tensor sign = c.apply("sign", LUCID_UNARY(signWithTensor), x);
  if (!is_floating(b.out_type(node).dtype)) return {sign};
  return {c.select(c.is_nan(x), x, sign)};
}

Tensors lower_square(Lowering& b, const Node& node) {
  Tensor x = wide_input(b, node);
  return narrowed(b, node, b.calc().mul(x, x));
}

#define LUCID_ROW(name, method) \
  { name, lower_method<LUCID_UNARY(method)> }
#define LUCID_ROUNDING(name, method) \
  { name, lower_rounding<LUCID_UNARY(method)> }

const LoweringRow kRows[] = {
    LUCID_ROW("sqrt", squareRootWithTensor),
    {"rsqrt", lower_formula<rsqrt>},
    LUCID_ROW("reciprocal", reciprocalWithTensor),
    LUCID_ROW("exp", exponentWithTensor),
    {"expm1", lower_formula<expm1>},
    LUCID_ROW("log", logarithmWithTensor),
    {"log1p", lower_formula<log1p>},
    LUCID_ROW("log2", logarithmBase2WithTensor),
    LUCID_ROW("log10", logarithmBase10WithTensor),
    LUCID_ROW("sin", sinWithTensor),
    LUCID_ROW("cos", cosWithTensor),
    LUCID_ROW("tan", tanWithTensor),
    LUCID_ROW("asin", asinWithTensor),
    LUCID_ROW("acos", acosWithTensor),
    LUCID_ROW("atan", atanWithTensor),
    LUCID_ROW("sinh", sinhWithTensor),
    LUCID_ROW("cosh", coshWithTensor),
    LUCID_ROW("tanh", tanhWithTensor),
    LUCID_ROW("asinh", asinhWithTensor),
    LUCID_ROW("acosh", acoshWithTensor),
    LUCID_ROW("atanh", atanhWithTensor),
    LUCID_ROW("erf", erfWithTensor),
    {"erfc", lower_formula<erfc>},
    LUCID_ROW("neg", negativeWithTensor),
    LUCID_ROW("abs", absoluteWithTensor),
    {"sign", lower_sign},
    {"square", lower_square},
    LUCID_ROUNDING("floor", floorWithTensor),
    LUCID_ROUNDING("ceil", ceilWithTensor),
    LUCID_ROUNDING("round", rintWithTensor),
    LUCID_ROUNDING("trunc", truncateWithTensor),
    LUCID_ROW("sigmoid", sigmoidWithTensor),
    {"relu", lower_relu},
    {"cast", lower_cast},
};

}  // namespace

std::span<const LoweringRow> unary_lowerings() { return kRows; }

}  // namespace lucid::metal

// Element-wise arithmetic of two inputs, and selection. Half types are computed in float32.
#include "backends/metal/lower/families.h"

namespace lucid::metal {
namespace {

#define LUCID_BINARY(method) \
  [](MPSGraph* g, Tensor a, Tensor b) { return [g method:a secondaryTensor:b name:nil]; }

using Formula = Tensor (*)(const Calc& c, Tensor a, Tensor b);

Tensor widened(const Calc& c, Tensor x) {
  const bool is_half = [x dataType] == MPSDataTypeFloat16 || [x dataType] == MPSDataTypeBFloat16;
  return is_half ? c.cast(x, MPSDataTypeFloat32) : x;
}

template <Formula kFormula>
Tensors lower_formula(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  Tensor result = kFormula(c, widened(c, b.in(node, 0)), widened(c, b.in(node, 1)));
  return {c.cast(result, mps_type(b.out_type(node).dtype))};
}

/// Division with remainder and powers: those of integers are no methods of MPSGraph.
template <Formula kFormula>
Tensors lower_floating(Lowering& b, const Node& node) {
  const DType dtype = b.out_type(node).dtype;
  if (!is_floating(dtype)) {
    b.refuse(node, "no metal lowering for " + std::string(name(dtype)));
  }
  return lower_formula<kFormula>(b, node);
}

/// A row whose bools are logic: add is or, mul is and.
template <Formula kFormula, Formula kOfBools>
Tensors lower_with_bools(Lowering& b, const Node& node) {
  const bool is_bool = b.out_type(node).dtype == DType::kBool;
  return is_bool ? lower_formula<kOfBools>(b, node) : lower_formula<kFormula>(b, node);
}

Tensor add(const Calc& c, Tensor a, Tensor b) { return c.add(a, b); }
Tensor sub(const Calc& c, Tensor a, Tensor b) { return c.sub(a, b); }
Tensor mul(const Calc& c, Tensor a, Tensor b) { return c.mul(a, b); }
Tensor div(const Calc& c, Tensor a, Tensor b) { return c.div(a, b); }
Tensor maximum(const Calc& c, Tensor a, Tensor b) { return c.maximum(a, b); }
Tensor minimum(const Calc& c, Tensor a, Tensor b) { return c.minimum(a, b); }
Tensor either(const Calc& c, Tensor a, Tensor b) { return c.either(a, b); }
Tensor both(const Calc& c, Tensor a, Tensor b) { return c.both(a, b); }

Tensor fmod(const Calc& c, Tensor a, Tensor b) {
  return c.apply("fmod", LUCID_BINARY(moduloWithPrimaryTensor), a, b);
}

/// True where a remainder has another sign than the divisor.
Tensor has_other_sign(const Calc& c, Tensor rest, Tensor b) {
  Tensor zero = c.number_like(0, b);
  Tensor differs = c.not_equal(c.less(rest, zero), c.less(b, zero));
  return c.both(c.not_equal(rest, zero), differs);
}

Tensor remainder(const Calc& c, Tensor a, Tensor b) {
  Tensor rest = fmod(c, a, b);
  return c.select(has_other_sign(c, rest, b), c.add(rest, b), rest);
}

// (a - remainder) / b, made whole; a / b where b is 0.
Tensor floor_divide(const Calc& c, Tensor a, Tensor b) {
  Tensor rest = fmod(c, a, b);
  Tensor one = c.number_like(1, b);
  Tensor zero = c.number_like(0, b);
  Tensor quotient = c.div(c.sub(a, rest), b);
  Tensor lowered = c.select(has_other_sign(c, rest, b), c.sub(quotient, one), quotient);
  Tensor whole = c.apply(
      "rint", [](MPSGraph* g, Tensor x) { return [g rintWithTensor:x name:nil]; }, lowered);
  return c.select(c.equal(b, zero), c.div(a, b), whole);
}

Tensor pow(const Calc& c, Tensor a, Tensor b) {
  return c.apply("pow", LUCID_BINARY(powerWithPrimaryTensor), a, b);
}

Tensor atan2(const Calc& c, Tensor a, Tensor b) {
  return c.apply("atan2", LUCID_BINARY(atan2WithPrimaryTensor), a, b);
}

Tensors lower_where(Lowering& b, const Node& node) {
  return {b.calc().select(b.in(node, 0), b.in(node, 1), b.in(node, 2))};
}

Tensors lower_clamp(Lowering& b, const Node& node) {
  return {b.calc().minimum(b.calc().maximum(b.in(node, 0), b.in(node, 1)), b.in(node, 2))};
}

const LoweringRow kRows[] = {
    {"add", lower_with_bools<add, either>},
    {"sub", lower_formula<sub>},
    {"mul", lower_with_bools<mul, both>},
    {"div", lower_formula<div>},
    {"maximum", lower_with_bools<maximum, either>},
    {"minimum", lower_with_bools<minimum, both>},
    {"fmod", lower_floating<fmod>},
    {"remainder", lower_floating<remainder>},
    {"floor_divide", lower_floating<floor_divide>},
    {"pow", lower_floating<pow>},
    {"atan2", lower_formula<atan2>},
    {"where", lower_where},
    {"clamp", lower_clamp},
};

}  // namespace

std::span<const LoweringRow> binary_lowerings() { return kRows; }

}  // namespace lucid::metal

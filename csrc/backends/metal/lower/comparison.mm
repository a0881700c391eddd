// Comparisons, tests, logic and bits. Bools are compared as int32.
#include "backends/metal/lower/families.h"

namespace lucid::metal {
namespace {

using Formula = Tensor (*)(const Calc& c, Tensor a, Tensor b);
using Test = Tensor (*)(const Calc& c, Tensor x);

template <Formula kFormula>
Tensors lower_comparison(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const bool is_bool = b.in_type(node, 0).dtype == DType::kBool;
  const auto read = [&](size_t i) {
    return is_bool ? c.cast(b.in(node, i), MPSDataTypeInt32) : b.in(node, i);
  };
  Tensor lhs = read(0);
  Tensor rhs = read(1);
  return {kFormula(c, lhs, rhs)};
}

template <Formula kFormula>
Tensors lower_logic(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  Tensor lhs = c.truth(b.in(node, 0));
  Tensor rhs = c.truth(b.in(node, 1));
  return {kFormula(c, lhs, rhs)};
}

/// Bits of integers; of bools the same as logic.
template <Formula kOfBits, Formula kOfBools>
Tensors lower_bits(Lowering& b, const Node& node) {
  const bool is_bool = b.in_type(node, 0).dtype == DType::kBool;
  Tensor lhs = b.in(node, 0);
  Tensor rhs = b.in(node, 1);
  return {is_bool ? kOfBools(b.calc(), lhs, rhs) : kOfBits(b.calc(), lhs, rhs)};
}

/// A test of floats; `kOfIntegers` answers for integers, which are always finite.
template <Test kTest, bool kOfIntegers>
Tensors lower_test(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  Tensor x = b.in(node, 0);
  if (is_floating(b.in_type(node, 0).dtype)) return {kTest(c, x)};
  Tensor whole = c.cast(x, MPSDataTypeInt32);
  return {kOfIntegers ? c.equal(whole, whole) : c.not_equal(whole, whole)};
}

Tensor equal(const Calc& c, Tensor a, Tensor b) { return c.equal(a, b); }
Tensor not_equal(const Calc& c, Tensor a, Tensor b) { return c.not_equal(a, b); }
Tensor less(const Calc& c, Tensor a, Tensor b) { return c.less(a, b); }
Tensor less_equal(const Calc& c, Tensor a, Tensor b) { return c.less_equal(a, b); }
Tensor greater(const Calc& c, Tensor a, Tensor b) { return c.less(b, a); }
Tensor greater_equal(const Calc& c, Tensor a, Tensor b) { return c.less_equal(b, a); }
Tensor both(const Calc& c, Tensor a, Tensor b) { return c.both(a, b); }
Tensor either(const Calc& c, Tensor a, Tensor b) { return c.either(a, b); }
Tensor bit_and(const Calc& c, Tensor a, Tensor b) { return c.bit_and(a, b); }
Tensor bit_or(const Calc& c, Tensor a, Tensor b) { return c.bit_or(a, b); }
Tensor bit_xor(const Calc& c, Tensor a, Tensor b) { return c.bit_xor(a, b); }

Tensor one_of(const Calc& c, Tensor a, Tensor b) {
  return c.apply(
      "xor",
      [](MPSGraph* g, Tensor l, Tensor r) {
        return [g logicalXORWithPrimaryTensor:l secondaryTensor:r name:nil];
      },
      a, b);
}

Tensor is_nan(const Calc& c, Tensor x) { return c.is_nan(x); }

Tensor is_inf(const Calc& c, Tensor x) {
  return c.apply(
      "isinf", [](MPSGraph* g, Tensor t) { return [g isInfiniteWithTensor:t name:nil]; }, x);
}

Tensor is_finite(const Calc& c, Tensor x) {
  return c.apply(
      "isfinite", [](MPSGraph* g, Tensor t) { return [g isFiniteWithTensor:t name:nil]; }, x);
}

Tensors lower_not(Lowering& b, const Node& node) {
  return {b.calc().logical_not(b.calc().truth(b.in(node, 0)))};
}

Tensors lower_bit_not(Lowering& b, const Node& node) {
  Tensor x = b.in(node, 0);
  if (b.in_type(node, 0).dtype == DType::kBool) return {b.calc().logical_not(x)};
  return {b.calc().apply(
      "not", [](MPSGraph* g, Tensor t) { return [g bitwiseNOTWithTensor:t name:nil]; }, x)};
}

const LoweringRow kRows[] = {
    {"eq", lower_comparison<equal>},
    {"ne", lower_comparison<not_equal>},
    {"lt", lower_comparison<less>},
    {"le", lower_comparison<less_equal>},
    {"gt", lower_comparison<greater>},
    {"ge", lower_comparison<greater_equal>},
    {"logical_and", lower_logic<both>},
    {"logical_or", lower_logic<either>},
    {"logical_xor", lower_logic<one_of>},
    {"logical_not", lower_not},
    {"isnan", lower_test<is_nan, false>},
    {"isinf", lower_test<is_inf, false>},
    {"isfinite", lower_test<is_finite, true>},
    {"bitwise_and", lower_bits<bit_and, both>},
    {"bitwise_or", lower_bits<bit_or, either>},
    {"bitwise_xor", lower_bits<bit_xor, one_of>},
    {"bitwise_not", lower_bit_not},
};

}  // namespace

std::span<const LoweringRow> comparison_lowerings() { return kRows; }

}  // namespace lucid::metal

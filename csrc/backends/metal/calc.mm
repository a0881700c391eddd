#include "backends/metal/calc.h"

#include "support/errors.h"

namespace lucid::metal {
namespace {

[[noreturn]] void fail(const char* what, const std::string& why) {
  throw Error(ErrorKind::kInternal, std::string("metal: ") + what + ": " + why);
}

}  // namespace

#define LUCID_UNARY(method) [](MPSGraph* g, Tensor x) { return [g method:x name:nil]; }
#define LUCID_BINARY(method) \
  [](MPSGraph* g, Tensor a, Tensor b) { return [g method:a secondaryTensor:b name:nil]; }

bool is_floating_type(MPSDataType type) {
  return type == MPSDataTypeFloat32 || type == MPSDataTypeFloat16 || type == MPSDataTypeBFloat16;
}

Tensor Calc::made(const char* what, Tensor result) const {
  if (result == nil) fail(what, "no tensor was made");
  return result;
}

Tensor Calc::apply(const char* what, UnaryMethod method, Tensor x) const {
  if (x == nil) fail(what, "an operand is missing");
  return made(what, method(graph_, x));
}

Tensor Calc::apply(const char* what, BinaryMethod method, Tensor a, Tensor b) const {
  if (a == nil || b == nil) fail(what, "an operand is missing");
  if ([a dataType] != [b dataType]) fail(what, "types of operands differ");
  return made(what, method(graph_, a, b));
}

Tensor Calc::number(double value, MPSDataType type) const {
  // A Bool made of a scalar was seen to hold 255, so it is compared.
  if (type == MPSDataTypeBool) return truth(number(value, MPSDataTypeInt32));
  return made("number", [graph_ constantWithScalar:value shape:@[ @1 ] dataType:type]);
}

Tensor Calc::filled(double value, const Shape& shape, MPSDataType type) const {
  if (type == MPSDataTypeBool) return truth(filled(value, shape, MPSDataTypeInt32));
  return made("filled", [graph_ constantWithScalar:value shape:mps_shape(shape) dataType:type]);
}

Tensor Calc::data(const void* bytes, int64_t size_bytes, const Shape& shape, DType dtype) const {
  const DType stored = dtype == DType::kBool ? DType::kUInt8 : dtype;
  NSData* copy = [NSData dataWithBytes:bytes length:mps_size(size_bytes)];
  Tensor made_tensor = made("data", [graph_ constantWithData:copy
                                                       shape:mps_shape(shape)
                                                    dataType:mps_type(stored)]);
  return dtype == DType::kBool ? truth(made_tensor) : made_tensor;
}

Tensor Calc::iota(const Shape& shape, int axis) const {
  Tensor places = made("iota", [graph_ coordinateAlongAxis:axis
                                                 withShape:mps_shape(shape)
                                                      name:nil]);
  return cast(places, MPSDataTypeInt32);
}

Tensor Calc::cast(Tensor x, MPSDataType type) const {
  if (x == nil) fail("cast", "an operand is missing");
  if ([x dataType] == type) return x;
  if (type == MPSDataTypeBool) return truth(x);
  return made("cast", [graph_ castTensor:x toType:type name:nil]);
}

Tensor Calc::truth(Tensor x) const {
  if ([x dataType] == MPSDataTypeBool) return x;
  return not_equal(x, number_like(0, x));
}

Tensor Calc::reinterpret(Tensor x, MPSDataType type) const {
  if ([x dataType] == type) return x;
  return made("reinterpret", [graph_ reinterpretCastTensor:x toType:type name:nil]);
}

Tensor Calc::add(Tensor a, Tensor b) const {
  return apply("add", LUCID_BINARY(additionWithPrimaryTensor), a, b);
}
Tensor Calc::sub(Tensor a, Tensor b) const {
  return apply("sub", LUCID_BINARY(subtractionWithPrimaryTensor), a, b);
}
Tensor Calc::mul(Tensor a, Tensor b) const {
  return apply("mul", LUCID_BINARY(multiplicationWithPrimaryTensor), a, b);
}
Tensor Calc::div(Tensor a, Tensor b) const {
  return apply("div", LUCID_BINARY(divisionWithPrimaryTensor), a, b);
}
Tensor Calc::maximum(Tensor a, Tensor b) const {
  if (!is_floating_type([a dataType])) {
    return apply("maximum", LUCID_BINARY(maximumWithPrimaryTensor), a, b);
  }
  return apply("maximum", LUCID_BINARY(maximumWithNaNPropagationWithPrimaryTensor), a, b);
}
Tensor Calc::minimum(Tensor a, Tensor b) const {
  if (!is_floating_type([a dataType])) {
    return apply("minimum", LUCID_BINARY(minimumWithPrimaryTensor), a, b);
  }
  return apply("minimum", LUCID_BINARY(minimumWithNaNPropagationWithPrimaryTensor), a, b);
}
Tensor Calc::equal(Tensor a, Tensor b) const {
  return apply("equal", LUCID_BINARY(equalWithPrimaryTensor), a, b);
}
Tensor Calc::not_equal(Tensor a, Tensor b) const {
  return apply("not_equal", LUCID_BINARY(notEqualWithPrimaryTensor), a, b);
}
Tensor Calc::less(Tensor a, Tensor b) const {
  return apply("less", LUCID_BINARY(lessThanWithPrimaryTensor), a, b);
}
Tensor Calc::less_equal(Tensor a, Tensor b) const {
  return apply("less_equal", LUCID_BINARY(lessThanOrEqualToWithPrimaryTensor), a, b);
}
Tensor Calc::both(Tensor a, Tensor b) const {
  return apply("both", LUCID_BINARY(logicalANDWithPrimaryTensor), a, b);
}
Tensor Calc::either(Tensor a, Tensor b) const {
  return apply("either", LUCID_BINARY(logicalORWithPrimaryTensor), a, b);
}
Tensor Calc::bit_and(Tensor a, Tensor b) const {
  return apply("bit_and", LUCID_BINARY(bitwiseANDWithPrimaryTensor), a, b);
}
Tensor Calc::bit_or(Tensor a, Tensor b) const {
  return apply("bit_or", LUCID_BINARY(bitwiseORWithPrimaryTensor), a, b);
}
Tensor Calc::bit_xor(Tensor a, Tensor b) const {
  return apply("bit_xor", LUCID_BINARY(bitwiseXORWithPrimaryTensor), a, b);
}
Tensor Calc::shift_left(Tensor x, int bits) const {
  return apply("shift_left", LUCID_BINARY(bitwiseLeftShiftWithPrimaryTensor), x,
               number_like(bits, x));
}
Tensor Calc::shift_right(Tensor x, int bits) const {
  return apply("shift_right", LUCID_BINARY(bitwiseRightShiftWithPrimaryTensor), x,
               number_like(bits, x));
}

Tensor Calc::select(Tensor condition, Tensor if_true, Tensor if_false) const {
  if (condition == nil || if_true == nil || if_false == nil) {
    fail("select", "an operand is missing");
  }
  if ([condition dataType] != MPSDataTypeBool) fail("select", "the condition is not bool");
  if ([if_true dataType] != [if_false dataType]) fail("select", "types of operands differ");
  return made("select", [graph_ selectWithPredicateTensor:condition
                                      truePredicateTensor:if_true
                                     falsePredicateTensor:if_false
                                                     name:nil]);
}

Tensor Calc::is_nan(Tensor x) const { return apply("is_nan", LUCID_UNARY(isNaNWithTensor), x); }
Tensor Calc::exp(Tensor x) const { return apply("exp", LUCID_UNARY(exponentWithTensor), x); }
Tensor Calc::log(Tensor x) const { return apply("log", LUCID_UNARY(logarithmWithTensor), x); }
Tensor Calc::sqrt(Tensor x) const { return apply("sqrt", LUCID_UNARY(squareRootWithTensor), x); }
Tensor Calc::abs(Tensor x) const { return apply("abs", LUCID_UNARY(absoluteWithTensor), x); }
Tensor Calc::negative(Tensor x) const { return apply("neg", LUCID_UNARY(negativeWithTensor), x); }
Tensor Calc::logical_not(Tensor x) const { return apply("not", LUCID_UNARY(notWithTensor), x); }

Tensor Calc::reshape(Tensor x, const Shape& shape) const {
  if (x == nil) fail("reshape", "an operand is missing");
  return made("reshape", [graph_ reshapeTensor:x withShape:mps_shape(shape) name:nil]);
}

Tensor Calc::permute(Tensor x, std::span<const int64_t> order) const {
  return made("permute", [graph_ transposeTensor:x permutation:mps_numbers(order) name:nil]);
}

Tensor Calc::broadcast(Tensor x, const Shape& shape) const {
  return made("broadcast", [graph_ broadcastTensor:x toShape:mps_shape(shape) name:nil]);
}

Tensor Calc::slice(Tensor x, std::span<const int64_t> starts, std::span<const int64_t> ends,
                   std::span<const int64_t> steps) const {
  return made("slice", [graph_ sliceTensor:x
                                    starts:mps_numbers(starts)
                                      ends:mps_numbers(ends)
                                   strides:mps_numbers(steps)
                                      name:nil]);
}

Tensor Calc::pad(Tensor x, std::span<const int64_t> low, std::span<const int64_t> high,
                 double value) const {
  const bool is_bool = [x dataType] == MPSDataTypeBool;
  Tensor padded = made("pad", [graph_ padTensor:is_bool ? cast(x, MPSDataTypeInt32) : x
                                  withPaddingMode:MPSGraphPaddingModeConstant
                                      leftPadding:mps_numbers(low)
                                     rightPadding:mps_numbers(high)
                                    constantValue:value
                                             name:nil]);
  return is_bool ? truth(padded) : padded;
}

Tensor Calc::concat(const std::vector<Tensor>& parts, int axis) const {
  if (parts.empty()) fail("concat", "there are no parts");
  if (parts.size() == 1) return parts.front();
  NSMutableArray<MPSGraphTensor*>* list = [NSMutableArray arrayWithCapacity:parts.size()];
  for (Tensor part : parts) {
    if (part == nil) fail("concat", "an operand is missing");
    if ([part dataType] != [parts.front() dataType]) fail("concat", "types of operands differ");
    [list addObject:part];
  }
  return made("concat", [graph_ concatTensors:list dimension:axis name:nil]);
}

Tensor Calc::reverse(Tensor x, std::span<const int64_t> axes) const {
  return made("reverse", [graph_ reverseTensor:x axes:mps_numbers(axes) name:nil]);
}

Tensor Calc::sum(Tensor x, std::span<const int64_t> axes) const {
  return made("sum", [graph_ reductionSumWithTensor:x axes:mps_numbers(axes) name:nil]);
}

Tensor Calc::product(Tensor x, std::span<const int64_t> axes) const {
  return made("product", [graph_ reductionProductWithTensor:x axes:mps_numbers(axes) name:nil]);
}

Tensor Calc::highest(Tensor x, std::span<const int64_t> axes) const {
  NSArray<NSNumber*>* list = mps_numbers(axes);
  if (!is_floating_type([x dataType])) {
    return made("highest", [graph_ reductionMaximumWithTensor:x axes:list name:nil]);
  }
  return made("highest", [graph_ reductionMaximumPropagateNaNWithTensor:x axes:list name:nil]);
}

Tensor Calc::lowest(Tensor x, std::span<const int64_t> axes) const {
  NSArray<NSNumber*>* list = mps_numbers(axes);
  if (!is_floating_type([x dataType])) {
    return made("lowest", [graph_ reductionMinimumWithTensor:x axes:list name:nil]);
  }
  return made("lowest", [graph_ reductionMinimumPropagateNaNWithTensor:x axes:list name:nil]);
}

Tensor Calc::matmul(Tensor a, Tensor b) const {
  return apply("matmul", LUCID_BINARY(matrixMultiplicationWithPrimaryTensor), a, b);
}

}  // namespace lucid::metal

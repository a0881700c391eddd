// Builder methods: elementwise operations, activations, inputs and constants.
#include "objects.h"
#include "recipe.h"

using metalhost::emit;
using metalhost::refuse;
using metalhost::type_of;

#define HOST_UNARY(op)                                                                    \
  -(MPSGraphTensor*)op##WithTensor : (MPSGraphTensor*)tensor name : (NSString*)name {     \
    return emit(self, metalhost::made<metalhost::unary>(#op, type_of(tensor)), {tensor}); \
  }

#define HOST_BINARY(op)                                                                        \
  -(MPSGraphTensor*)op##WithPrimaryTensor : (MPSGraphTensor*)primary secondaryTensor           \
      : (MPSGraphTensor*)secondary name : (NSString*)name {                                    \
    return emit(self,                                                                          \
                metalhost::made<metalhost::binary>(#op, type_of(primary), type_of(secondary)), \
                {primary, secondary});                                                         \
  }

@implementation MPSGraph (MPSGraphArithmeticOps)

HOST_UNARY(identity)
HOST_UNARY(exponent)
HOST_UNARY(exponentBase2)
HOST_UNARY(exponentBase10)
HOST_UNARY(logarithm)
HOST_UNARY(logarithmBase2)
HOST_UNARY(logarithmBase10)
HOST_UNARY(square)
HOST_UNARY(squareRoot)
HOST_UNARY(reciprocalSquareRoot)
HOST_UNARY(reverseSquareRoot)
HOST_UNARY(reciprocal)
HOST_UNARY(absolute)
HOST_UNARY(negative)
HOST_UNARY(sign)
HOST_UNARY(signbit)
HOST_UNARY(ceil)
HOST_UNARY(floor)
HOST_UNARY(round)
HOST_UNARY(rint)
HOST_UNARY(truncate)
HOST_UNARY(sin)
HOST_UNARY(cos)
HOST_UNARY(tan)
HOST_UNARY(sinh)
HOST_UNARY(cosh)
HOST_UNARY(tanh)
HOST_UNARY(asin)
HOST_UNARY(acos)
HOST_UNARY(atan)
HOST_UNARY(asinh)
HOST_UNARY(acosh)
HOST_UNARY(atanh)
HOST_UNARY(erf)
HOST_UNARY(not )
HOST_UNARY(isInfinite)
HOST_UNARY(isFinite)
HOST_UNARY(isNaN)
HOST_UNARY(bitwiseNOT)
HOST_UNARY(bitwisePopulationCount)

HOST_BINARY(addition)
HOST_BINARY(subtraction)
HOST_BINARY(multiplication)
HOST_BINARY(division)
HOST_BINARY(divisionNoNaN)
HOST_BINARY(modulo)
HOST_BINARY(floorModulo)
HOST_BINARY(power)
HOST_BINARY(minimum)
HOST_BINARY(maximum)
HOST_BINARY(minimumWithNaNPropagation)
HOST_BINARY(maximumWithNaNPropagation)
HOST_BINARY(atan2)
HOST_BINARY(equal)
HOST_BINARY(notEqual)
HOST_BINARY(lessThan)
HOST_BINARY(lessThanOrEqualTo)
HOST_BINARY(greaterThan)
HOST_BINARY(greaterThanOrEqualTo)
HOST_BINARY(logicalAND)
HOST_BINARY(logicalOR)
HOST_BINARY(logicalNAND)
HOST_BINARY(logicalNOR)
HOST_BINARY(logicalXOR)
HOST_BINARY(logicalXNOR)
HOST_BINARY(bitwiseAND)
HOST_BINARY(bitwiseOR)
HOST_BINARY(bitwiseXOR)
HOST_BINARY(bitwiseLeftShift)
HOST_BINARY(bitwiseRightShift)

- (MPSGraphTensor*)selectWithPredicateTensor:(MPSGraphTensor*)predicate
                         truePredicateTensor:(MPSGraphTensor*)whenTrue
                        falsePredicateTensor:(MPSGraphTensor*)whenFalse
                                        name:(NSString*)name {
  return emit(
      self,
      metalhost::made<metalhost::select>(type_of(predicate), type_of(whenTrue), type_of(whenFalse)),
      {predicate, whenTrue, whenFalse});
}
- (MPSGraphTensor*)clampWithTensor:(MPSGraphTensor*)tensor
                    minValueTensor:(MPSGraphTensor*)low
                    maxValueTensor:(MPSGraphTensor*)high
                              name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::clamp>(type_of(tensor), type_of(low), type_of(high)),
              {tensor, low, high});
}
@end

@implementation MPSGraph (MPSGraphActivationOps)

HOST_UNARY(reLU)
HOST_UNARY(sigmoid)

- (MPSGraphTensor*)reLUGradientWithIncomingGradient:(MPSGraphTensor*)gradient
                                       sourceTensor:(MPSGraphTensor*)source
                                               name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::relu_grad>(type_of(gradient), type_of(source)),
              {gradient, source});
}
- (MPSGraphTensor*)sigmoidGradientWithIncomingGradient:(MPSGraphTensor*)gradient
                                          sourceTensor:(MPSGraphTensor*)source
                                                  name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::sigmoid_grad>(type_of(gradient), type_of(source)),
              {gradient, source});
}
- (MPSGraphTensor*)softMaxWithTensor:(MPSGraphTensor*)tensor
                                axis:(NSInteger)axis
                                name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::softmax>(type_of(tensor), axis), {tensor});
}
- (MPSGraphTensor*)softMaxGradientWithIncomingGradient:(MPSGraphTensor*)gradient
                                          sourceTensor:(MPSGraphTensor*)source
                                                  axis:(NSInteger)axis
                                                  name:(NSString*)name {
  return emit(self,
              metalhost::made<metalhost::softmax_grad>(type_of(gradient), type_of(source), axis),
              {gradient, source});
}
- (MPSGraphTensor*)leakyReLUWithTensor:(MPSGraphTensor*)tensor
                                 alpha:(double)alpha
                                  name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::leaky_relu>(type_of(tensor), alpha), {tensor});
}
- (MPSGraphTensor*)leakyReLUWithTensor:(MPSGraphTensor*)tensor
                           alphaTensor:(MPSGraphTensor*)alphaTensor
                                  name:(NSString*)name {
  // x where x > 0, else 1 * alpha * x: the gradient's rule applied to x itself.
  return emit(self,
              metalhost::made<metalhost::leaky_relu_grad>(type_of(tensor), type_of(tensor),
                                                          type_of(alphaTensor)),
              {tensor, tensor, alphaTensor});
}
- (MPSGraphTensor*)leakyReLUGradientWithIncomingGradient:(MPSGraphTensor*)gradient
                                            sourceTensor:(MPSGraphTensor*)source
                                             alphaTensor:(MPSGraphTensor*)alphaTensor
                                                    name:(NSString*)name {
  return emit(self,
              metalhost::made<metalhost::leaky_relu_grad>(type_of(gradient), type_of(source),
                                                          type_of(alphaTensor)),
              {gradient, source, alphaTensor});
}
@end

namespace {

metalhost::Type type_from(NSArray<NSNumber*>* shape, MPSDataType type) {
  return {static_cast<metalhost::DataType>(type), metalhost::shape_from(shape)};
}

}  // namespace

@implementation MPSGraph (MPSGraphMemoryOps)

- (MPSGraphTensor*)placeholderWithShape:(MPSShape*)shape
                               dataType:(MPSDataType)dataType
                                   name:(NSString*)name {
  if (shape == nil) refuse("placeholder", "is unranked, which the double does not take");
  MPSGraphTensor* const tensor = emit(
      self, {.name = "placeholder", .outputs = {type_from(shape, dataType)}, .evaluate = {}}, {});
  [state_of<GraphState>(self).placeholders.get() addObject:tensor];
  return tensor;
}
- (MPSGraphTensor*)placeholderWithShape:(MPSShape*)shape name:(NSString*)name {
  return [self placeholderWithShape:shape dataType:MPSDataTypeFloat32 name:name];
}
- (MPSGraphTensor*)constantWithData:(NSData*)data
                              shape:(MPSShape*)shape
                           dataType:(MPSDataType)dataType {
  const auto* bytes = static_cast<const uint8_t*>([data bytes]);
  return emit(self,
              metalhost::made<metalhost::constant_data>(
                  type_from(shape, dataType), std::vector<uint8_t>(bytes, bytes + [data length])),
              {});
}
- (MPSGraphTensor*)constantWithScalar:(double)scalar dataType:(MPSDataType)dataType {
  return emit(self,
              metalhost::made<metalhost::constant>({static_cast<metalhost::DataType>(dataType), {}},
                                                   scalar),
              {});
}
- (MPSGraphTensor*)constantWithScalar:(double)scalar
                                shape:(MPSShape*)shape
                             dataType:(MPSDataType)dataType {
  return emit(self, metalhost::made<metalhost::constant>(type_from(shape, dataType), scalar), {});
}
@end

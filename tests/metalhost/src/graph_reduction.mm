// Builder methods: reductions, statistics, scans and products.
#include "objects.h"
#include "recipe.h"

using metalhost::emit;
using metalhost::Reduction;
using metalhost::Scan;
using metalhost::Shape;
using metalhost::shape_from;
using metalhost::type_of;

namespace {

// nil means all axes.
Shape axes_of(NSArray<NSNumber*>* axes, MPSGraphTensor* tensor) {
  if (axes != nil) return shape_from(axes);
  Shape all;
  for (int64_t i = 0; i < type_of(tensor).rank(); ++i) all.push_back(i);
  return all;
}

}  // namespace

#define HOST_REDUCTION(method, kind)                                                              \
  -(MPSGraphTensor*)method##WithTensor : (MPSGraphTensor*)tensor axis : (NSInteger)axis name      \
      : (NSString*)name {                                                                         \
    return emit(self, metalhost::made<metalhost::reduce>(kind, type_of(tensor), {axis}),          \
                {tensor});                                                                        \
  }                                                                                               \
  -(MPSGraphTensor*)method##WithTensor : (MPSGraphTensor*)tensor axes                             \
      : (NSArray<NSNumber*>*)axes name : (NSString*)name {                                        \
    return emit(self,                                                                             \
                metalhost::made<metalhost::reduce>(kind, type_of(tensor), axes_of(axes, tensor)), \
                {tensor});                                                                        \
  }

@implementation MPSGraph (MPSGraphReductionOps)

HOST_REDUCTION(reductionSum, Reduction::kSum)
HOST_REDUCTION(reductionProduct, Reduction::kProduct)
HOST_REDUCTION(reductionMaximum, Reduction::kMax)
HOST_REDUCTION(reductionMinimum, Reduction::kMin)
HOST_REDUCTION(reductionMaximumPropagateNaN, Reduction::kMaxNan)
HOST_REDUCTION(reductionMinimumPropagateNaN, Reduction::kMinNan)
HOST_REDUCTION(reductionAnd, Reduction::kAnd)
HOST_REDUCTION(reductionOr, Reduction::kOr)

- (MPSGraphTensor*)reductionArgMaximumWithTensor:(MPSGraphTensor*)tensor
                                            axis:(NSInteger)axis
                                            name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::arg_reduce>(true, type_of(tensor), axis), {tensor});
}
- (MPSGraphTensor*)reductionArgMinimumWithTensor:(MPSGraphTensor*)tensor
                                            axis:(NSInteger)axis
                                            name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::arg_reduce>(false, type_of(tensor), axis), {tensor});
}
@end

@implementation MPSGraph (MPSGraphNormalizationOps)

- (MPSGraphTensor*)meanOfTensor:(MPSGraphTensor*)tensor
                           axes:(NSArray<NSNumber*>*)axes
                           name:(NSString*)name {
  return emit(
      self,
      metalhost::made<metalhost::reduce>(Reduction::kMean, type_of(tensor), axes_of(axes, tensor)),
      {tensor});
}
- (MPSGraphTensor*)varianceOfTensor:(MPSGraphTensor*)tensor
                         meanTensor:(MPSGraphTensor*)meanTensor
                               axes:(NSArray<NSNumber*>*)axes
                               name:(NSString*)name {
  return emit(self,
              metalhost::made<metalhost::variance_around>(type_of(tensor), type_of(meanTensor),
                                                          axes_of(axes, tensor)),
              {tensor, meanTensor});
}
- (MPSGraphTensor*)varianceOfTensor:(MPSGraphTensor*)tensor
                               axes:(NSArray<NSNumber*>*)axes
                               name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::variance>(type_of(tensor), axes_of(axes, tensor)),
              {tensor});
}
- (MPSGraphTensor*)normalizationWithTensor:(MPSGraphTensor*)tensor
                                meanTensor:(MPSGraphTensor*)mean
                            varianceTensor:(MPSGraphTensor*)variance
                               gammaTensor:(MPSGraphTensor*)gamma
                                betaTensor:(MPSGraphTensor*)beta
                                   epsilon:(float)epsilon
                                      name:(NSString*)name {
  NSMutableArray<MPSGraphTensor*>* const operands =
      [NSMutableArray arrayWithObjects:tensor, mean, variance, nil];
  if (gamma != nil) [operands addObject:gamma];
  if (beta != nil) [operands addObject:beta];
  metalhost::Op op = metalhost::made<metalhost::normalization>(metalhost::types_of(operands),
                                                               gamma != nil, beta != nil, epsilon);
  return [metalhost::emit_all(self, std::move(op), operands) objectAtIndex:0];
}
@end

#define HOST_SCAN(method, kind)                                                                    \
  -(MPSGraphTensor*)method##WithTensor : (MPSGraphTensor*)tensor axis : (NSInteger)axis exclusive  \
      : (BOOL)exclusive reverse : (BOOL)reverse name : (NSString*)name {                           \
    return emit(                                                                                   \
        self,                                                                                      \
        metalhost::made<metalhost::cumulative>(kind, type_of(tensor), axis, exclusive, reverse),   \
        {tensor});                                                                                 \
  }                                                                                                \
  -(MPSGraphTensor*)method##WithTensor : (MPSGraphTensor*)tensor axis : (NSInteger)axis name       \
      : (NSString*)name {                                                                          \
    return emit(self,                                                                              \
                metalhost::made<metalhost::cumulative>(kind, type_of(tensor), axis, false, false), \
                {tensor});                                                                         \
  }

@implementation MPSGraph (MPSGraphCumulativeOps)

HOST_SCAN(cumulativeSum, Scan::kSum)
HOST_SCAN(cumulativeProduct, Scan::kProduct)
HOST_SCAN(cumulativeMinimum, Scan::kMin)
HOST_SCAN(cumulativeMaximum, Scan::kMax)
@end

@implementation MPSGraph (MPSGraphMatrixMultiplicationOps)

- (MPSGraphTensor*)matrixMultiplicationWithPrimaryTensor:(MPSGraphTensor*)primary
                                         secondaryTensor:(MPSGraphTensor*)secondary
                                                    name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::matmul>(type_of(primary), type_of(secondary)),
              {primary, secondary});
}
@end

@implementation MPSGraph (MPSGraphMatrixOps)

- (MPSGraphTensor*)bandPartWithTensor:(MPSGraphTensor*)inputTensor
                             numLower:(NSInteger)numLower
                             numUpper:(NSInteger)numUpper
                                 name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::band_part>(type_of(inputTensor), numLower, numUpper),
              {inputTensor});
}
@end

// Softmax cross entropy.
#pragma once
#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

typedef NS_ENUM(NSUInteger, MPSGraphLossReductionType) {
  MPSGraphLossReductionTypeAxis = 0,
  MPSGraphLossReductionTypeNone = 0,
  MPSGraphLossReductionTypeSum = 1,
  MPSGraphLossReductionTypeMean = 2,
};

/// Labels are probabilities.
@interface MPSGraph (MPSGraphLossOps)
- (MPSGraphTensor*)softMaxCrossEntropyWithSourceTensor:(MPSGraphTensor*)sourceTensor
                                          labelsTensor:(MPSGraphTensor*)labelsTensor
                                                  axis:(NSInteger)axis
                                         reductionType:(MPSGraphLossReductionType)reductionType
                                                  name:(NSString* _Nullable)name;
- (MPSGraphTensor*)
    softMaxCrossEntropyGradientWithIncomingGradientTensor:(MPSGraphTensor*)gradientTensor
                                             sourceTensor:(MPSGraphTensor*)sourceTensor
                                             labelsTensor:(MPSGraphTensor*)labelsTensor
                                                     axis:(NSInteger)axis
                                            reductionType:(MPSGraphLossReductionType)reductionType
                                                     name:(NSString* _Nullable)name;
@end

NS_ASSUME_NONNULL_END

// Philox streams, random tensors and dropout.
#pragma once
#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

typedef NS_ENUM(NSUInteger, MPSGraphRandomDistribution) {
  MPSGraphRandomDistributionUniform = 0,
  MPSGraphRandomDistributionNormal = 1,
  MPSGraphRandomDistributionTruncatedNormal = 2,
};

typedef NS_ENUM(NSUInteger, MPSGraphRandomNormalSamplingMethod) {
  MPSGraphRandomNormalSamplingInvCDF = 0,
  MPSGraphRandomNormalSamplingBoxMuller = 1,
};

/// Distribution and element type.
@interface MPSGraphRandomOpDescriptor : MPSGraphObject <NSCopying>
@property(nonatomic) MPSGraphRandomDistribution distribution;
@property(nonatomic) MPSDataType dataType;
@property(nonatomic) float min;
@property(nonatomic) float max;
@property(nonatomic) NSInteger minInteger;
@property(nonatomic) NSInteger maxInteger;
@property(nonatomic) float mean;
@property(nonatomic) float standardDeviation;
@property(nonatomic) MPSGraphRandomNormalSamplingMethod samplingMethod;
+ (instancetype _Nullable)descriptorWithDistribution:(MPSGraphRandomDistribution)distribution
                                            dataType:(MPSDataType)dataType;
@end

/// Random tensors.
@interface MPSGraph (MPSGraphRandomOps)
- (MPSGraphTensor*)randomPhiloxStateTensorWithSeed:(NSUInteger)seed name:(NSString* _Nullable)name;
- (MPSGraphTensor*)randomPhiloxStateTensorWithCounterLow:(NSUInteger)counterLow
                                             counterHigh:(NSUInteger)counterHigh
                                                     key:(NSUInteger)key
                                                    name:(NSString* _Nullable)name;
- (MPSGraphTensor*)randomTensorWithShape:(MPSShape*)shape
                              descriptor:(MPSGraphRandomOpDescriptor*)descriptor
                                    seed:(NSUInteger)seed
                                    name:(NSString* _Nullable)name;
- (NSArray<MPSGraphTensor*>*)randomTensorWithShape:(MPSShape*)shape
                                        descriptor:(MPSGraphRandomOpDescriptor*)descriptor
                                       stateTensor:(MPSGraphTensor*)state
                                              name:(NSString* _Nullable)name;
- (MPSGraphTensor*)randomUniformTensorWithShape:(MPSShape*)shape
                                           seed:(NSUInteger)seed
                                           name:(NSString* _Nullable)name;
- (NSArray<MPSGraphTensor*>*)randomUniformTensorWithShape:(MPSShape*)shape
                                              stateTensor:(MPSGraphTensor*)state
                                                     name:(NSString* _Nullable)name;
- (MPSGraphTensor*)dropoutTensor:(MPSGraphTensor*)tensor
                            rate:(double)rate
                            name:(NSString* _Nullable)name;
@end

NS_ASSUME_NONNULL_END

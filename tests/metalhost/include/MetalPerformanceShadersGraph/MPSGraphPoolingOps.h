// Pooling over four axes.
#pragma once
#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

typedef NS_ENUM(NSUInteger, MPSGraphPoolingReturnIndicesMode) {
  MPSGraphPoolingReturnIndicesNone = 0,
  MPSGraphPoolingReturnIndicesGlobalFlatten1D = 1,
  MPSGraphPoolingReturnIndicesGlobalFlatten2D = 2,
  MPSGraphPoolingReturnIndicesGlobalFlatten3D = 3,
  MPSGraphPoolingReturnIndicesGlobalFlatten4D = 4,
  MPSGraphPoolingReturnIndicesLocalFlatten1D = 5,
  MPSGraphPoolingReturnIndicesLocalFlatten2D = 6,
  MPSGraphPoolingReturnIndicesLocalFlatten3D = 7,
  MPSGraphPoolingReturnIndicesLocalFlatten4D = 8,
};

/// Windows over four axes.
@interface MPSGraphPooling4DOpDescriptor : MPSGraphObject <NSCopying>
@property(nonatomic, copy) NSArray<NSNumber*>* kernelSizes;
@property(nonatomic, copy) NSArray<NSNumber*>* strides;
@property(nonatomic, copy) NSArray<NSNumber*>* dilationRates;
@property(nonatomic, copy) NSArray<NSNumber*>* paddingValues;
@property(nonatomic) MPSGraphPaddingStyle paddingStyle;
@property(nonatomic) BOOL ceilMode;
@property(nonatomic) BOOL includeZeroPadToAverage;
@property(nonatomic) MPSGraphPoolingReturnIndicesMode returnIndicesMode;
@property(nonatomic) MPSDataType returnIndicesDataType;
+ (instancetype _Nullable)descriptorWithKernelSizes:(NSArray<NSNumber*>*)kernelSizes
                                            strides:(NSArray<NSNumber*>*)strides
                                      dilationRates:(NSArray<NSNumber*>*)dilationRates
                                      paddingValues:(NSArray<NSNumber*>*)paddingValues
                                       paddingStyle:(MPSGraphPaddingStyle)paddingStyle;
+ (instancetype _Nullable)descriptorWithKernelSizes:(NSArray<NSNumber*>*)kernelSizes
                                       paddingStyle:(MPSGraphPaddingStyle)paddingStyle;
@end

/// Padding never wins a maximum.
@interface MPSGraph (MPSGraphPoolingOps)
- (MPSGraphTensor*)maxPooling4DWithSourceTensor:(MPSGraphTensor*)source
                                     descriptor:(MPSGraphPooling4DOpDescriptor*)descriptor
                                           name:(NSString* _Nullable)name;
- (NSArray<MPSGraphTensor*>*)
    maxPooling4DReturnIndicesWithSourceTensor:(MPSGraphTensor*)source
                                   descriptor:(MPSGraphPooling4DOpDescriptor*)descriptor
                                         name:(NSString* _Nullable)name;
- (MPSGraphTensor*)maxPooling4DGradientWithGradientTensor:(MPSGraphTensor*)gradient
                                             sourceTensor:(MPSGraphTensor*)source
                                               descriptor:(MPSGraphPooling4DOpDescriptor*)descriptor
                                                     name:(NSString* _Nullable)name;
- (MPSGraphTensor*)maxPooling4DGradientWithGradientTensor:(MPSGraphTensor*)gradient
                                            indicesTensor:(MPSGraphTensor*)indices
                                              outputShape:(MPSShape*)outputShape
                                               descriptor:(MPSGraphPooling4DOpDescriptor*)descriptor
                                                     name:(NSString* _Nullable)name;
- (MPSGraphTensor*)avgPooling4DWithSourceTensor:(MPSGraphTensor*)source
                                     descriptor:(MPSGraphPooling4DOpDescriptor*)descriptor
                                           name:(NSString* _Nullable)name;
- (MPSGraphTensor*)avgPooling4DGradientWithGradientTensor:(MPSGraphTensor*)gradient
                                             sourceTensor:(MPSGraphTensor*)source
                                               descriptor:(MPSGraphPooling4DOpDescriptor*)descriptor
                                                     name:(NSString* _Nullable)name;
@end

NS_ASSUME_NONNULL_END

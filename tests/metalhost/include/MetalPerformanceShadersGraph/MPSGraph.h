// The graph under construction and its compilation.
#pragma once
#import <MetalPerformanceShadersGraph/MPSGraphCore.h>
#import <MetalPerformanceShadersGraph/MPSGraphExecutable.h>

NS_ASSUME_NONNULL_BEGIN

/// A graph under construction; it owns its tensors.
@interface MPSGraph : MPSGraphObject
@property MPSGraphOptions options;
@property(nonatomic, readonly) NSArray<MPSGraphTensor*>* placeholderTensors;
+ (instancetype)new;
- (instancetype)init;
- (MPSGraphExecutable*)compileWithDevice:(MPSGraphDevice* _Nullable)device
                                   feeds:(MPSGraphTensorShapedTypeDictionary*)feeds
                           targetTensors:(NSArray<MPSGraphTensor*>*)targetTensors
                        targetOperations:(NSArray<MPSGraphOperation*>* _Nullable)targetOperations
                   compilationDescriptor:
                       (MPSGraphCompilationDescriptor* _Nullable)compilationDescriptor;
@end

NS_ASSUME_NONNULL_END

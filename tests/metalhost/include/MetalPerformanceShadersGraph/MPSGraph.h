// The graph, its execution and what describes its compilation.
#pragma once
#import <MetalPerformanceShadersGraph/MPSGraphCore.h>
#import <MetalPerformanceShadersGraph/MPSGraphExecutable.h>

NS_ASSUME_NONNULL_BEGIN

/// A graph under construction.
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
- (MPSGraphTensorDataDictionary*)runWithFeeds:(MPSGraphTensorDataDictionary*)feeds
                                targetTensors:(NSArray<MPSGraphTensor*>*)targetTensors
                             targetOperations:
                                 (NSArray<MPSGraphOperation*>* _Nullable)targetOperations;
- (MPSGraphTensorDataDictionary*)runWithMTLCommandQueue:(id<MTLCommandQueue>)commandQueue
                                                  feeds:(MPSGraphTensorDataDictionary*)feeds
                                          targetTensors:(NSArray<MPSGraphTensor*>*)targetTensors
                                       targetOperations:
                                           (NSArray<MPSGraphOperation*>* _Nullable)targetOperations;
- (void)runWithMTLCommandQueue:(id<MTLCommandQueue>)commandQueue
                         feeds:(MPSGraphTensorDataDictionary*)feeds
              targetOperations:(NSArray<MPSGraphOperation*>* _Nullable)targetOperations
             resultsDictionary:(MPSGraphTensorDataDictionary*)resultsDictionary;
@end

NS_ASSUME_NONNULL_END

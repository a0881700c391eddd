// Compiled graphs and the descriptors of compilation and execution.
#pragma once
#import <MetalPerformanceShadersGraph/MPSGraphCore.h>

NS_ASSUME_NONNULL_BEGIN

typedef NS_ENUM(NSUInteger, MPSGraphOptimization) {
  MPSGraphOptimizationLevel0 = 0,
  MPSGraphOptimizationLevel1 = 1,
};

typedef void (^MPSGraphCompilationCompletionHandler)(MPSGraphExecutable* executable,
                                                     NSError* _Nullable error);
typedef void (^MPSGraphExecutableCompletionHandler)(NSArray<MPSGraphTensorData*>* results,
                                                    NSError* _Nullable error);
typedef void (^MPSGraphExecutableScheduledHandler)(NSArray<MPSGraphTensorData*>* results,
                                                   NSError* _Nullable error);

/// How a graph is compiled.
@interface MPSGraphCompilationDescriptor : MPSGraphObject <NSCopying>
@property(nonatomic) MPSGraphOptimization optimizationLevel;
@property(nonatomic) BOOL waitForCompilationCompletion;
@property MPSGraphCompilationCompletionHandler compilationCompletionHandler;
- (void)disableTypeInference;
@end

/// How an executable runs.
@interface MPSGraphExecutableExecutionDescriptor : MPSGraphObject <NSCopying>
@property MPSGraphExecutableScheduledHandler scheduledHandler;
@property MPSGraphExecutableCompletionHandler completionHandler;
@property BOOL waitUntilCompleted;
@end

@class MPSGraphExecutableSerializationDescriptor;

/// A compiled graph.
@interface MPSGraphExecutable : MPSGraphObject
@property MPSGraphOptions options;
@property(readonly, nullable) NSArray<MPSGraphTensor*>* feedTensors;
@property(readonly, nullable) NSArray<MPSGraphTensor*>* targetTensors;
- (NSArray<MPSGraphTensorData*>*)
    runWithMTLCommandQueue:(id<MTLCommandQueue>)commandQueue
               inputsArray:(NSArray<MPSGraphTensorData*>*)inputsArray
              resultsArray:(NSArray<MPSGraphTensorData*>* _Nullable)resultsArray
       executionDescriptor:(MPSGraphExecutableExecutionDescriptor* _Nullable)executionDescriptor;
- (NSArray<MPSGraphTensorData*>*)
    runAsyncWithMTLCommandQueue:(id<MTLCommandQueue>)commandQueue
                    inputsArray:(NSArray<MPSGraphTensorData*>*)inputsArray
                   resultsArray:(NSArray<MPSGraphTensorData*>* _Nullable)resultsArray
            executionDescriptor:
                (MPSGraphExecutableExecutionDescriptor* _Nullable)executionDescriptor;
- (NSArray<MPSGraphTensorData*>*)
    encodeToCommandBuffer:(MPSCommandBuffer*)commandBuffer
              inputsArray:(NSArray<MPSGraphTensorData*>*)inputsArray
             resultsArray:(NSArray<MPSGraphTensorData*>* _Nullable)resultsArray
      executionDescriptor:(MPSGraphExecutableExecutionDescriptor* _Nullable)executionDescriptor;
- (void)serializeToMPSGraphPackageAtURL:(NSURL*)url
                             descriptor:
                                 (MPSGraphExecutableSerializationDescriptor* _Nullable)descriptor;
- (instancetype)initWithMPSGraphPackageAtURL:(NSURL*)mpsgraphPackageURL
                       compilationDescriptor:
                           (MPSGraphCompilationDescriptor* _Nullable)compilationDescriptor;
@end

NS_ASSUME_NONNULL_END

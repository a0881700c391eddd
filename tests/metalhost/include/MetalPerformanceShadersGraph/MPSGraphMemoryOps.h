// Inputs, constants, variables and optimizer steps.
#pragma once
#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

/// Storage that belongs to the graph.
@interface MPSGraphVariableOp : MPSGraphOperation
@property(nonatomic, readonly) MPSShape* shape;
@property(nonatomic, readonly) MPSDataType dataType;
@end

/// Inputs and constants.
@interface MPSGraph (MPSGraphMemoryOps)
- (MPSGraphTensor*)placeholderWithShape:(MPSShape* _Nullable)shape
                               dataType:(MPSDataType)dataType
                                   name:(NSString* _Nullable)name;
- (MPSGraphTensor*)placeholderWithShape:(MPSShape* _Nullable)shape name:(NSString* _Nullable)name;
- (MPSGraphTensor*)constantWithData:(NSData*)data
                              shape:(MPSShape*)shape
                           dataType:(MPSDataType)dataType;
- (MPSGraphTensor*)constantWithScalar:(double)scalar dataType:(MPSDataType)dataType;
- (MPSGraphTensor*)constantWithScalar:(double)scalar
                                shape:(MPSShape*)shape
                             dataType:(MPSDataType)dataType;
- (MPSGraphTensor*)variableWithData:(NSData*)data
                              shape:(MPSShape*)shape
                           dataType:(MPSDataType)dataType
                               name:(NSString* _Nullable)name;
- (MPSGraphTensor*)readVariable:(MPSGraphTensor*)variable name:(NSString* _Nullable)name;
- (MPSGraphOperation*)assignVariable:(MPSGraphTensor*)variable
                   withValueOfTensor:(MPSGraphTensor*)tensor
                                name:(NSString* _Nullable)name;
@end

NS_ASSUME_NONNULL_END

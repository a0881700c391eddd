// Convolutions in two and three dimensions.
#pragma once
#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

/// X is the width, Y the height.
@interface MPSGraphConvolution2DOpDescriptor : MPSGraphObject <NSCopying>
@property(nonatomic) NSUInteger strideInX;
@property(nonatomic) NSUInteger strideInY;
@property(nonatomic) NSUInteger dilationRateInX;
@property(nonatomic) NSUInteger dilationRateInY;
@property(nonatomic) NSUInteger paddingLeft;
@property(nonatomic) NSUInteger paddingRight;
@property(nonatomic) NSUInteger paddingTop;
@property(nonatomic) NSUInteger paddingBottom;
@property(nonatomic) MPSGraphPaddingStyle paddingStyle;
@property(nonatomic) MPSGraphTensorNamedDataLayout dataLayout;
@property(nonatomic) MPSGraphTensorNamedDataLayout weightsLayout;
@property(nonatomic) NSUInteger groups;
+ (instancetype _Nullable)descriptorWithStrideInX:(NSUInteger)strideInX
                                        strideInY:(NSUInteger)strideInY
                                  dilationRateInX:(NSUInteger)dilationRateInX
                                  dilationRateInY:(NSUInteger)dilationRateInY
                                           groups:(NSUInteger)groups
                                      paddingLeft:(NSUInteger)paddingLeft
                                     paddingRight:(NSUInteger)paddingRight
                                       paddingTop:(NSUInteger)paddingTop
                                    paddingBottom:(NSUInteger)paddingBottom
                                     paddingStyle:(MPSGraphPaddingStyle)paddingStyle
                                       dataLayout:(MPSGraphTensorNamedDataLayout)dataLayout
                                    weightsLayout:(MPSGraphTensorNamedDataLayout)weightsLayout;
+ (instancetype _Nullable)descriptorWithStrideInX:(NSUInteger)strideInX
                                        strideInY:(NSUInteger)strideInY
                                  dilationRateInX:(NSUInteger)dilationRateInX
                                  dilationRateInY:(NSUInteger)dilationRateInY
                                           groups:(NSUInteger)groups
                                     paddingStyle:(MPSGraphPaddingStyle)paddingStyle
                                       dataLayout:(MPSGraphTensorNamedDataLayout)dataLayout
                                    weightsLayout:(MPSGraphTensorNamedDataLayout)weightsLayout;
- (void)setExplicitPaddingWithPaddingLeft:(NSUInteger)paddingLeft
                             paddingRight:(NSUInteger)paddingRight
                               paddingTop:(NSUInteger)paddingTop
                            paddingBottom:(NSUInteger)paddingBottom;
@end

/// As above; Z is the depth.
@interface MPSGraphConvolution3DOpDescriptor : MPSGraphObject <NSCopying>
@property(nonatomic) NSUInteger strideInX;
@property(nonatomic) NSUInteger strideInY;
@property(nonatomic) NSUInteger strideInZ;
@property(nonatomic) NSUInteger dilationRateInX;
@property(nonatomic) NSUInteger dilationRateInY;
@property(nonatomic) NSUInteger dilationRateInZ;
@property(nonatomic) NSUInteger paddingLeft;
@property(nonatomic) NSUInteger paddingRight;
@property(nonatomic) NSUInteger paddingTop;
@property(nonatomic) NSUInteger paddingBottom;
@property(nonatomic) NSUInteger paddingFront;
@property(nonatomic) NSUInteger paddingBack;
@property(nonatomic) MPSGraphPaddingStyle paddingStyle;
@property(nonatomic) MPSGraphTensorNamedDataLayout dataLayout;
@property(nonatomic) MPSGraphTensorNamedDataLayout weightsLayout;
@property(nonatomic) NSUInteger groups;
+ (instancetype _Nullable)descriptorWithStrideInX:(NSUInteger)strideInX
                                        strideInY:(NSUInteger)strideInY
                                        strideInZ:(NSUInteger)strideInZ
                                  dilationRateInX:(NSUInteger)dilationRateInX
                                  dilationRateInY:(NSUInteger)dilationRateInY
                                  dilationRateInZ:(NSUInteger)dilationRateInZ
                                           groups:(NSUInteger)groups
                                      paddingLeft:(NSUInteger)paddingLeft
                                     paddingRight:(NSUInteger)paddingRight
                                       paddingTop:(NSUInteger)paddingTop
                                    paddingBottom:(NSUInteger)paddingBottom
                                     paddingFront:(NSUInteger)paddingFront
                                      paddingBack:(NSUInteger)paddingBack
                                     paddingStyle:(MPSGraphPaddingStyle)paddingStyle
                                       dataLayout:(MPSGraphTensorNamedDataLayout)dataLayout
                                    weightsLayout:(MPSGraphTensorNamedDataLayout)weightsLayout;
+ (instancetype _Nullable)descriptorWithStrideInX:(NSUInteger)strideInX
                                        strideInY:(NSUInteger)strideInY
                                        strideInZ:(NSUInteger)strideInZ
                                  dilationRateInX:(NSUInteger)dilationRateInX
                                  dilationRateInY:(NSUInteger)dilationRateInY
                                  dilationRateInZ:(NSUInteger)dilationRateInZ
                                           groups:(NSUInteger)groups
                                     paddingStyle:(MPSGraphPaddingStyle)paddingStyle
                                       dataLayout:(MPSGraphTensorNamedDataLayout)dataLayout
                                    weightsLayout:(MPSGraphTensorNamedDataLayout)weightsLayout;
- (void)setExplicitPaddingWithPaddingLeft:(NSUInteger)paddingLeft
                             paddingRight:(NSUInteger)paddingRight
                               paddingTop:(NSUInteger)paddingTop
                            paddingBottom:(NSUInteger)paddingBottom
                             paddingFront:(NSUInteger)paddingFront
                              paddingBack:(NSUInteger)paddingBack;
@end

/// A correlation: the weights are not flipped.
@interface MPSGraph (MPSGraphConvolutionOps)
- (MPSGraphTensor*)convolution2DWithSourceTensor:(MPSGraphTensor*)source
                                   weightsTensor:(MPSGraphTensor*)weights
                                      descriptor:(MPSGraphConvolution2DOpDescriptor*)descriptor
                                            name:(NSString* _Nullable)name;
- (MPSGraphTensor*)
    convolution2DDataGradientWithIncomingGradientTensor:(MPSGraphTensor*)incomingGradient
                                          weightsTensor:(MPSGraphTensor*)weights
                                            outputShape:(MPSShape*)outputShape
                           forwardConvolutionDescriptor:
                               (MPSGraphConvolution2DOpDescriptor*)forwardConvolutionDescriptor
                                                   name:(NSString* _Nullable)name;
- (MPSGraphTensor*)
    convolution2DWeightsGradientWithIncomingGradientTensor:(MPSGraphTensor*)incomingGradient
                                              sourceTensor:(MPSGraphTensor*)source
                                               outputShape:(MPSShape*)outputShape
                              forwardConvolutionDescriptor:
                                  (MPSGraphConvolution2DOpDescriptor*)forwardConvolutionDescriptor
                                                      name:(NSString* _Nullable)name;
- (MPSGraphTensor*)convolution3DWithSourceTensor:(MPSGraphTensor*)source
                                   weightsTensor:(MPSGraphTensor*)weights
                                      descriptor:(MPSGraphConvolution3DOpDescriptor*)descriptor
                                            name:(NSString* _Nullable)name;
- (MPSGraphTensor*)
    convolution3DDataGradientWithIncomingGradientTensor:(MPSGraphTensor*)incomingGradient
                                          weightsTensor:(MPSGraphTensor*)weights
                                            outputShape:(MPSShape*)outputShape
                           forwardConvolutionDescriptor:
                               (MPSGraphConvolution3DOpDescriptor*)forwardConvolutionDescriptor
                                                   name:(NSString* _Nullable)name;
- (MPSGraphTensor*)
    convolution3DWeightsGradientWithIncomingGradientTensor:(MPSGraphTensor*)incomingGradient
                                              sourceTensor:(MPSGraphTensor*)source
                                               outputShape:(MPSShape*)outputShape
                              forwardConvolutionDescriptor:
                                  (MPSGraphConvolution3DOpDescriptor*)forwardConvolutionDescriptor
                                                      name:(NSString* _Nullable)name;
@end

NS_ASSUME_NONNULL_END

// Builder methods: convolutions and pooling, and their descriptors.
#include "objects.h"
#include "recipe.h"

using metalhost::Convolution;
using metalhost::emit;
using metalhost::emit_all;
using metalhost::Pooling;
using metalhost::refuse;
using metalhost::Shape;
using metalhost::shape_from;
using metalhost::type_of;

namespace {

struct ConvolutionState : HostState {
  ConvolutionState() : HostState(metalhost::Kind::kOther) {}
  HostState* clone() const override { return new ConvolutionState(*this); }

  NSUInteger strideInX = 1, strideInY = 1, strideInZ = 1;
  NSUInteger dilationRateInX = 1, dilationRateInY = 1, dilationRateInZ = 1;
  NSUInteger paddingLeft = 0, paddingRight = 0, paddingTop = 0, paddingBottom = 0;
  NSUInteger paddingFront = 0, paddingBack = 0;
  // No default is documented for these.
  MPSGraphPaddingStyle paddingStyle = MPSGraphPaddingStyleExplicit;
  MPSGraphTensorNamedDataLayout dataLayout = MPSGraphTensorNamedDataLayoutHW;
  MPSGraphTensorNamedDataLayout weightsLayout = MPSGraphTensorNamedDataLayoutHW;
  NSUInteger groups = 0;
};

Shape list_of(std::initializer_list<NSUInteger> values) {
  Shape list;
  for (const NSUInteger value : values) list.push_back(static_cast<int64_t>(value));
  return list;
}

bool is_last(MPSGraphTensorNamedDataLayout layout, MPSGraphTensorNamedDataLayout first,
             MPSGraphTensorNamedDataLayout last) {
  if (layout != first && layout != last) {
    refuse("conv", "has a layout that does not fit: " + std::to_string(layout));
  }
  return layout == last;
}

void fill_common(Convolution& window, const ConvolutionState& state) {
  window.groups = static_cast<int64_t>(state.groups);
  window.padding_style = static_cast<int64_t>(state.paddingStyle);
}

Convolution window_of(MPSGraphConvolution2DOpDescriptor* descriptor) {
  if (descriptor == nil) refuse("conv_2d", "has no descriptor");
  const auto& state = state_of<ConvolutionState>(descriptor);
  Convolution window;
  window.strides = list_of({state.strideInY, state.strideInX});
  window.dilations = list_of({state.dilationRateInY, state.dilationRateInX});
  window.pads_before = list_of({state.paddingTop, state.paddingLeft});
  window.pads_after = list_of({state.paddingBottom, state.paddingRight});
  window.channels_last = is_last(state.dataLayout, MPSGraphTensorNamedDataLayoutNCHW,
                                 MPSGraphTensorNamedDataLayoutNHWC);
  window.weights_last = is_last(state.weightsLayout, MPSGraphTensorNamedDataLayoutOIHW,
                                MPSGraphTensorNamedDataLayoutHWIO);
  fill_common(window, state);
  return window;
}

Convolution window_of(MPSGraphConvolution3DOpDescriptor* descriptor) {
  if (descriptor == nil) refuse("conv_3d", "has no descriptor");
  const auto& state = state_of<ConvolutionState>(descriptor);
  Convolution window;
  window.strides = list_of({state.strideInZ, state.strideInY, state.strideInX});
  window.dilations = list_of({state.dilationRateInZ, state.dilationRateInY, state.dilationRateInX});
  window.pads_before = list_of({state.paddingFront, state.paddingTop, state.paddingLeft});
  window.pads_after = list_of({state.paddingBack, state.paddingBottom, state.paddingRight});
  window.channels_last = is_last(state.dataLayout, MPSGraphTensorNamedDataLayoutNCDHW,
                                 MPSGraphTensorNamedDataLayoutNDHWC);
  window.weights_last = is_last(state.weightsLayout, MPSGraphTensorNamedDataLayoutOIDHW,
                                MPSGraphTensorNamedDataLayoutDHWIO);
  fill_common(window, state);
  return window;
}

}  // namespace

#define HOST_WINDOW_PROPERTIES                                                                    \
  HOST_PROPERTY(ConvolutionState, NSUInteger, strideInX, setStrideInX)                            \
  HOST_PROPERTY(ConvolutionState, NSUInteger, strideInY, setStrideInY)                            \
  HOST_PROPERTY(ConvolutionState, NSUInteger, dilationRateInX, setDilationRateInX)                \
  HOST_PROPERTY(ConvolutionState, NSUInteger, dilationRateInY, setDilationRateInY)                \
  HOST_PROPERTY(ConvolutionState, NSUInteger, paddingLeft, setPaddingLeft)                        \
  HOST_PROPERTY(ConvolutionState, NSUInteger, paddingRight, setPaddingRight)                      \
  HOST_PROPERTY(ConvolutionState, NSUInteger, paddingTop, setPaddingTop)                          \
  HOST_PROPERTY(ConvolutionState, NSUInteger, paddingBottom, setPaddingBottom)                    \
  HOST_PROPERTY(ConvolutionState, MPSGraphPaddingStyle, paddingStyle, setPaddingStyle)            \
  HOST_PROPERTY(ConvolutionState, MPSGraphTensorNamedDataLayout, dataLayout, setDataLayout)       \
  HOST_PROPERTY(ConvolutionState, MPSGraphTensorNamedDataLayout, weightsLayout, setWeightsLayout) \
  HOST_PROPERTY(ConvolutionState, NSUInteger, groups, setGroups)

@implementation MPSGraphConvolution2DOpDescriptor
HOST_DESCRIPTOR(ConvolutionState)
HOST_WINDOW_PROPERTIES

+ (instancetype)descriptorWithStrideInX:(NSUInteger)strideInX
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
                          weightsLayout:(MPSGraphTensorNamedDataLayout)weightsLayout {
  MPSGraphConvolution2DOpDescriptor* const descriptor =
      [self descriptorWithStrideInX:strideInX
                          strideInY:strideInY
                    dilationRateInX:dilationRateInX
                    dilationRateInY:dilationRateInY
                             groups:groups
                       paddingStyle:paddingStyle
                         dataLayout:dataLayout
                      weightsLayout:weightsLayout];
  [descriptor setExplicitPaddingWithPaddingLeft:paddingLeft
                                   paddingRight:paddingRight
                                     paddingTop:paddingTop
                                  paddingBottom:paddingBottom];
  return descriptor;
}
+ (instancetype)descriptorWithStrideInX:(NSUInteger)strideInX
                              strideInY:(NSUInteger)strideInY
                        dilationRateInX:(NSUInteger)dilationRateInX
                        dilationRateInY:(NSUInteger)dilationRateInY
                                 groups:(NSUInteger)groups
                           paddingStyle:(MPSGraphPaddingStyle)paddingStyle
                             dataLayout:(MPSGraphTensorNamedDataLayout)dataLayout
                          weightsLayout:(MPSGraphTensorNamedDataLayout)weightsLayout {
  MPSGraphConvolution2DOpDescriptor* const descriptor = [[[self alloc] init] autorelease];
  auto& state = state_of<ConvolutionState>(descriptor);
  state.strideInX = strideInX;
  state.strideInY = strideInY;
  state.dilationRateInX = dilationRateInX;
  state.dilationRateInY = dilationRateInY;
  state.groups = groups;
  state.paddingStyle = paddingStyle;
  state.dataLayout = dataLayout;
  state.weightsLayout = weightsLayout;
  return descriptor;
}
- (void)setExplicitPaddingWithPaddingLeft:(NSUInteger)paddingLeft
                             paddingRight:(NSUInteger)paddingRight
                               paddingTop:(NSUInteger)paddingTop
                            paddingBottom:(NSUInteger)paddingBottom {
  auto& state = state_of<ConvolutionState>(self);
  state.paddingLeft = paddingLeft;
  state.paddingRight = paddingRight;
  state.paddingTop = paddingTop;
  state.paddingBottom = paddingBottom;
}
@end

@implementation MPSGraphConvolution3DOpDescriptor
HOST_DESCRIPTOR(ConvolutionState)
HOST_WINDOW_PROPERTIES
HOST_PROPERTY(ConvolutionState, NSUInteger, strideInZ, setStrideInZ)
HOST_PROPERTY(ConvolutionState, NSUInteger, dilationRateInZ, setDilationRateInZ)
HOST_PROPERTY(ConvolutionState, NSUInteger, paddingFront, setPaddingFront)
HOST_PROPERTY(ConvolutionState, NSUInteger, paddingBack, setPaddingBack)

+ (instancetype)descriptorWithStrideInX:(NSUInteger)strideInX
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
                          weightsLayout:(MPSGraphTensorNamedDataLayout)weightsLayout {
  MPSGraphConvolution3DOpDescriptor* const descriptor =
      [self descriptorWithStrideInX:strideInX
                          strideInY:strideInY
                          strideInZ:strideInZ
                    dilationRateInX:dilationRateInX
                    dilationRateInY:dilationRateInY
                    dilationRateInZ:dilationRateInZ
                             groups:groups
                       paddingStyle:paddingStyle
                         dataLayout:dataLayout
                      weightsLayout:weightsLayout];
  [descriptor setExplicitPaddingWithPaddingLeft:paddingLeft
                                   paddingRight:paddingRight
                                     paddingTop:paddingTop
                                  paddingBottom:paddingBottom
                                   paddingFront:paddingFront
                                    paddingBack:paddingBack];
  return descriptor;
}
+ (instancetype)descriptorWithStrideInX:(NSUInteger)strideInX
                              strideInY:(NSUInteger)strideInY
                              strideInZ:(NSUInteger)strideInZ
                        dilationRateInX:(NSUInteger)dilationRateInX
                        dilationRateInY:(NSUInteger)dilationRateInY
                        dilationRateInZ:(NSUInteger)dilationRateInZ
                                 groups:(NSUInteger)groups
                           paddingStyle:(MPSGraphPaddingStyle)paddingStyle
                             dataLayout:(MPSGraphTensorNamedDataLayout)dataLayout
                          weightsLayout:(MPSGraphTensorNamedDataLayout)weightsLayout {
  MPSGraphConvolution3DOpDescriptor* const descriptor = [[[self alloc] init] autorelease];
  auto& state = state_of<ConvolutionState>(descriptor);
  state.strideInX = strideInX;
  state.strideInY = strideInY;
  state.strideInZ = strideInZ;
  state.dilationRateInX = dilationRateInX;
  state.dilationRateInY = dilationRateInY;
  state.dilationRateInZ = dilationRateInZ;
  state.groups = groups;
  state.paddingStyle = paddingStyle;
  state.dataLayout = dataLayout;
  state.weightsLayout = weightsLayout;
  return descriptor;
}
- (void)setExplicitPaddingWithPaddingLeft:(NSUInteger)paddingLeft
                             paddingRight:(NSUInteger)paddingRight
                               paddingTop:(NSUInteger)paddingTop
                            paddingBottom:(NSUInteger)paddingBottom
                             paddingFront:(NSUInteger)paddingFront
                              paddingBack:(NSUInteger)paddingBack {
  auto& state = state_of<ConvolutionState>(self);
  state.paddingLeft = paddingLeft;
  state.paddingRight = paddingRight;
  state.paddingTop = paddingTop;
  state.paddingBottom = paddingBottom;
  state.paddingFront = paddingFront;
  state.paddingBack = paddingBack;
}
@end

#define HOST_CONVOLUTION(rank)                                                                    \
  -(MPSGraphTensor*)convolution##rank##WithSourceTensor : (MPSGraphTensor*)source weightsTensor   \
      : (MPSGraphTensor*)weights descriptor                                                       \
      : (MPSGraphConvolution##rank##OpDescriptor*)descriptor name : (NSString*)name {             \
    return emit(self,                                                                             \
                metalhost::made<metalhost::convolve>(type_of(source), type_of(weights),           \
                                                     window_of(descriptor)),                      \
                {source, weights});                                                               \
  }                                                                                               \
  -(MPSGraphTensor*)convolution##rank##DataGradientWithIncomingGradientTensor                     \
      : (MPSGraphTensor*)gradient weightsTensor : (MPSGraphTensor*)weights outputShape            \
      : (MPSShape*)outputShape forwardConvolutionDescriptor                                       \
      : (MPSGraphConvolution##rank##OpDescriptor*)descriptor name : (NSString*)name {             \
    return emit(                                                                                  \
        self,                                                                                     \
        metalhost::made<metalhost::convolve_data_grad>(                                           \
            type_of(gradient), type_of(weights), shape_from(outputShape), window_of(descriptor)), \
        {gradient, weights});                                                                     \
  }                                                                                               \
  -(MPSGraphTensor*)convolution##rank##WeightsGradientWithIncomingGradientTensor                  \
      : (MPSGraphTensor*)gradient sourceTensor : (MPSGraphTensor*)source outputShape              \
      : (MPSShape*)outputShape forwardConvolutionDescriptor                                       \
      : (MPSGraphConvolution##rank##OpDescriptor*)descriptor name : (NSString*)name {             \
    return emit(                                                                                  \
        self,                                                                                     \
        metalhost::made<metalhost::convolve_weights_grad>(                                        \
            type_of(gradient), type_of(source), shape_from(outputShape), window_of(descriptor)),  \
        {gradient, source});                                                                      \
  }

@implementation MPSGraph (MPSGraphConvolutionOps)
HOST_CONVOLUTION(2D)
HOST_CONVOLUTION(3D)
@end

namespace {

struct PoolingState : HostState {
  PoolingState() : HostState(metalhost::Kind::kOther) {}
  HostState* clone() const override { return new PoolingState(*this); }

  metalhost::Ref<NSArray*> kernelSizes, strides, dilationRates, paddingValues;
  MPSGraphPaddingStyle paddingStyle = MPSGraphPaddingStyleExplicit;
  BOOL ceilMode = NO;
  BOOL includeZeroPadToAverage = NO;
  MPSGraphPoolingReturnIndicesMode returnIndicesMode = MPSGraphPoolingReturnIndicesNone;
  MPSDataType returnIndicesDataType = MPSDataTypeInt32;
};

// Padding values come in pairs: before and after the first axis, and so on.
Pooling window_of(MPSGraphPooling4DOpDescriptor* descriptor) {
  if (descriptor == nil) refuse("pooling", "has no descriptor");
  const auto& state = state_of<PoolingState>(descriptor);
  Pooling window;
  window.kernel = shape_from(state.kernelSizes.get());
  window.strides = shape_from(state.strides.get());
  window.dilations = shape_from(state.dilationRates.get());
  const Shape pads = shape_from(state.paddingValues.get());
  if (pads.size() != 8) refuse("pooling", "requires eight padding values");
  for (size_t i = 0; i < pads.size(); i += 2) {
    window.pads_before.push_back(pads[i]);
    window.pads_after.push_back(pads[i + 1]);
  }
  window.padding_style = static_cast<int64_t>(state.paddingStyle);
  window.ceil_mode = state.ceilMode;
  window.includes_padding = state.includeZeroPadToAverage;
  window.indices_mode = static_cast<int64_t>(state.returnIndicesMode);
  window.indices_type = static_cast<metalhost::DataType>(state.returnIndicesDataType);
  return window;
}

}  // namespace

#define HOST_LIST(getter, setter)                                                               \
  -(NSArray<NSNumber*>*)getter {                                                                \
    return state_of<PoolingState>(self).getter.get();                                           \
  }                                                                                             \
  -(void)setter : (NSArray<NSNumber*>*)value {                                                  \
    state_of<PoolingState>(self).getter = metalhost::Ref<NSArray*>([[value copy] autorelease]); \
  }

@implementation MPSGraphPooling4DOpDescriptor
HOST_DESCRIPTOR(PoolingState)
HOST_LIST(kernelSizes, setKernelSizes)
HOST_LIST(strides, setStrides)
HOST_LIST(dilationRates, setDilationRates)
HOST_LIST(paddingValues, setPaddingValues)
HOST_PROPERTY(PoolingState, MPSGraphPaddingStyle, paddingStyle, setPaddingStyle)
HOST_PROPERTY(PoolingState, BOOL, ceilMode, setCeilMode)
HOST_PROPERTY(PoolingState, BOOL, includeZeroPadToAverage, setIncludeZeroPadToAverage)
HOST_PROPERTY(PoolingState, MPSGraphPoolingReturnIndicesMode, returnIndicesMode,
              setReturnIndicesMode)
HOST_PROPERTY(PoolingState, MPSDataType, returnIndicesDataType, setReturnIndicesDataType)

+ (instancetype)descriptorWithKernelSizes:(NSArray<NSNumber*>*)kernelSizes
                                  strides:(NSArray<NSNumber*>*)strides
                            dilationRates:(NSArray<NSNumber*>*)dilationRates
                            paddingValues:(NSArray<NSNumber*>*)paddingValues
                             paddingStyle:(MPSGraphPaddingStyle)paddingStyle {
  MPSGraphPooling4DOpDescriptor* const descriptor = [[[self alloc] init] autorelease];
  [descriptor setKernelSizes:kernelSizes];
  [descriptor setStrides:strides];
  [descriptor setDilationRates:dilationRates];
  [descriptor setPaddingValues:paddingValues];
  [descriptor setPaddingStyle:paddingStyle];
  return descriptor;
}
+ (instancetype)descriptorWithKernelSizes:(NSArray<NSNumber*>*)kernelSizes
                             paddingStyle:(MPSGraphPaddingStyle)paddingStyle {
  return [self descriptorWithKernelSizes:kernelSizes
                                 strides:@[ @1, @1, @1, @1 ]
                           dilationRates:@[ @1, @1, @1, @1 ]
                           paddingValues:@[ @0, @0, @0, @0, @0, @0, @0, @0 ]
                            paddingStyle:paddingStyle];
}
@end

@implementation MPSGraph (MPSGraphPoolingOps)

- (MPSGraphTensor*)maxPooling4DWithSourceTensor:(MPSGraphTensor*)source
                                     descriptor:(MPSGraphPooling4DOpDescriptor*)descriptor
                                           name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::max_pool>(type_of(source), window_of(descriptor)),
              {source});
}
- (NSArray<MPSGraphTensor*>*)
    maxPooling4DReturnIndicesWithSourceTensor:(MPSGraphTensor*)source
                                   descriptor:(MPSGraphPooling4DOpDescriptor*)descriptor
                                         name:(NSString*)name {
  const Pooling window = window_of(descriptor);
  if (window.indices_mode == 0) refuse("pooling_max", "returns indices in the mode None");
  return emit_all(self, metalhost::made<metalhost::max_pool_indices>(type_of(source), window),
                  @[ source ]);
}
- (MPSGraphTensor*)maxPooling4DGradientWithGradientTensor:(MPSGraphTensor*)gradient
                                             sourceTensor:(MPSGraphTensor*)source
                                               descriptor:(MPSGraphPooling4DOpDescriptor*)descriptor
                                                     name:(NSString*)name {
  return emit(self,
              metalhost::made<metalhost::max_pool_grad>(type_of(gradient), type_of(source),
                                                        window_of(descriptor)),
              {gradient, source});
}
- (MPSGraphTensor*)maxPooling4DGradientWithGradientTensor:(MPSGraphTensor*)gradient
                                            indicesTensor:(MPSGraphTensor*)indices
                                              outputShape:(MPSShape*)outputShape
                                               descriptor:(MPSGraphPooling4DOpDescriptor*)descriptor
                                                     name:(NSString*)name {
  return emit(
      self,
      metalhost::made<metalhost::max_pool_grad_indices>(
          type_of(gradient), type_of(indices), shape_from(outputShape), window_of(descriptor)),
      {gradient, indices});
}
- (MPSGraphTensor*)avgPooling4DWithSourceTensor:(MPSGraphTensor*)source
                                     descriptor:(MPSGraphPooling4DOpDescriptor*)descriptor
                                           name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::avg_pool>(type_of(source), window_of(descriptor)),
              {source});
}
- (MPSGraphTensor*)avgPooling4DGradientWithGradientTensor:(MPSGraphTensor*)gradient
                                             sourceTensor:(MPSGraphTensor*)source
                                               descriptor:(MPSGraphPooling4DOpDescriptor*)descriptor
                                                     name:(NSString*)name {
  return emit(self,
              metalhost::made<metalhost::avg_pool_grad>(type_of(gradient), type_of(source),
                                                        window_of(descriptor)),
              {gradient, source});
}
@end

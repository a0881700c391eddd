// Tensors, types, devices and the enums that several operations share.
#pragma once
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSGraph, MPSGraphExecutable, MPSGraphOperation, MPSGraphTensor, MPSGraphTensorData,
    MPSGraphShapedType;

typedef NS_ENUM(NSUInteger, MPSGraphOptions) {
  MPSGraphOptionsNone = 0,
  MPSGraphOptionsDefault = 1,
  MPSGraphOptionsSynchronizeResults = 1,
  MPSGraphOptionsVerbose = 2,
};

typedef NS_ENUM(NSUInteger, MPSGraphTensorNamedDataLayout) {
  MPSGraphTensorNamedDataLayoutNCHW = 0,
  MPSGraphTensorNamedDataLayoutNHWC = 1,
  MPSGraphTensorNamedDataLayoutOIHW = 2,
  MPSGraphTensorNamedDataLayoutHWIO = 3,
  MPSGraphTensorNamedDataLayoutCHW = 4,
  MPSGraphTensorNamedDataLayoutHWC = 5,
  MPSGraphTensorNamedDataLayoutHW = 6,
  MPSGraphTensorNamedDataLayoutNCDHW = 7,
  MPSGraphTensorNamedDataLayoutNDHWC = 8,
  MPSGraphTensorNamedDataLayoutOIDHW = 9,
  MPSGraphTensorNamedDataLayoutDHWIO = 10,
};

typedef NS_ENUM(NSUInteger, MPSGraphPaddingStyle) {
  MPSGraphPaddingStyleExplicit = 0,
  MPSGraphPaddingStyleTF_VALID = 1,
  MPSGraphPaddingStyleTF_SAME = 2,
  MPSGraphPaddingStyleExplicitOffset = 3,
  MPSGraphPaddingStyleONNX_SAME_LOWER = 4,
};

typedef NS_ENUM(NSInteger, MPSGraphPaddingMode) {
  MPSGraphPaddingModeConstant = 0,
  MPSGraphPaddingModeReflect = 1,
  MPSGraphPaddingModeSymmetric = 2,
  MPSGraphPaddingModeClampToEdge = 3,
  MPSGraphPaddingModeZero = 4,
  MPSGraphPaddingModePeriodic = 5,
  MPSGraphPaddingModeAntiPeriodic = 6,
};

typedef NS_ENUM(uint32_t, MPSGraphDeviceType) {
  MPSGraphDeviceTypeMetal = 0,
};

/// What all classes of the framework derive from.
@interface MPSGraphObject : NSObject {
 @public
  struct HostState* host_state_;
}
@end

/// The type of a value.
@interface MPSGraphType : MPSGraphObject <NSCopying>
@end

/// Shape and element type.
@interface MPSGraphShapedType : MPSGraphType
@property(copy, nullable) MPSShape* shape;
@property MPSDataType dataType;
- (instancetype)initWithShape:(MPSShape* _Nullable)shape dataType:(MPSDataType)dataType;
- (BOOL)isEqualTo:(MPSGraphShapedType* _Nullable)object;
@end

/// Where a graph runs.
@interface MPSGraphDevice : MPSGraphObject
@property(nonatomic, readonly) MPSGraphDeviceType type;
@property(nonatomic, readonly, nullable) id<MTLDevice> metalDevice;
+ (instancetype)deviceWithMTLDevice:(id<MTLDevice>)metalDevice;
@end

/// One operation of a graph.
@interface MPSGraphOperation : MPSGraphObject <NSCopying>
@end

/// A symbolic value of a graph.
@interface MPSGraphTensor : MPSGraphObject <NSCopying>
@property(nonatomic, readonly, copy, nullable) MPSShape* shape;
@property(nonatomic, readonly) MPSDataType dataType;
@end

/// Concrete data for a feed or a result.
@interface MPSGraphTensorData : MPSGraphObject
@property(nonatomic, readonly, copy) MPSShape* shape;
@property(nonatomic, readonly) MPSDataType dataType;
@property(nonatomic, readonly) MPSGraphDevice* device;
- (instancetype)initWithDevice:(MPSGraphDevice*)device
                          data:(NSData*)data
                         shape:(MPSShape*)shape
                      dataType:(MPSDataType)dataType;
- (instancetype)initWithMTLBuffer:(id<MTLBuffer>)buffer
                            shape:(MPSShape*)shape
                         dataType:(MPSDataType)dataType;
@end

typedef NSDictionary<MPSGraphTensor*, MPSGraphTensorData*> MPSGraphTensorDataDictionary;
typedef NSDictionary<MPSGraphTensor*, MPSGraphShapedType*> MPSGraphTensorShapedTypeDictionary;

NS_ASSUME_NONNULL_END

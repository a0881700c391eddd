// The part of MetalPerformanceShaders that the backend uses, declared as in macOS 26.5.
#pragma once
#import <Metal/Metal.h>

NS_ASSUME_NONNULL_BEGIN

typedef NSArray<NSNumber*> MPSShape;

typedef NS_ENUM(uint32_t, MPSDataType) {
  MPSDataTypeInvalid = 0x00000000,
  MPSDataTypeUInt8 = 0x00000008,
  MPSDataTypeUInt16 = 0x00000010,
  MPSDataTypeUInt32 = 0x00000020,
  MPSDataTypeUInt64 = 0x00000040,
  MPSDataTypeFloat16 = 0x10000010,
  MPSDataTypeFloat32 = 0x10000020,
  MPSDataTypeInt8 = 0x20000008,
  MPSDataTypeInt16 = 0x20000010,
  MPSDataTypeInt32 = 0x20000020,
  MPSDataTypeInt64 = 0x20000040,
  MPSDataTypeBool = 0x80000008,
  MPSDataTypeBFloat16 = 0x90000010,
};

/// A command buffer that kernels may split: `rootCommandBuffer` is the one that is being filled.
@interface MPSCommandBuffer : NSObject <MTLCommandBuffer> {
 @public
  struct HostState* host_state_;
}
@property(nonatomic, readonly, retain) id<MTLCommandBuffer> commandBuffer;
@property(nonatomic, readonly, retain) id<MTLCommandBuffer> rootCommandBuffer;
+ (instancetype)commandBufferWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer;
+ (instancetype)commandBufferFromCommandQueue:(id<MTLCommandQueue>)commandQueue;
- (instancetype)initWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer;
- (void)commitAndContinue;
@end

NS_ASSUME_NONNULL_END

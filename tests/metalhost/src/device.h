// The device and its memory.
#pragma once

#import <Metal/Metal.h>

#include "objects.h"

@interface HostDevice : NSObject <MTLDevice>
+ (HostDevice*)shared;
@end

/// Its pages are unmapped when it dies: a later use of `contents` is a fault.
@interface HostBuffer : NSObject <MTLBuffer> {
  id<MTLDevice> device_;
  NSString* label_;
  void* contents_;
  NSUInteger length_;
  uint64_t reserved_bytes_;  // 0: borrowed memory
  MTLResourceOptions options_;
  void (^deallocator_)(void*, NSUInteger);
  metalhost::CountedAs<metalhost::Kind::kBuffer> counted_;
}
/// nil above the memory limit.
- (instancetype)initWithDevice:(id<MTLDevice>)device
                        length:(NSUInteger)length
                       options:(MTLResourceOptions)options;
- (instancetype)initWithDevice:(id<MTLDevice>)device
                      borrowed:(void*)pointer
                        length:(NSUInteger)length
                       options:(MTLResourceOptions)options
                   deallocator:(void (^)(void*, NSUInteger))deallocator;
@end

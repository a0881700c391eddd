#include "device.h"

#include <sys/mman.h>

#include <cstring>
#include <deque>
#include <mutex>

#include "queue.h"

using metalhost::fail_assertion;

NSErrorDomain const MTLCommandBufferErrorDomain = @"MTLCommandBufferErrorDomain";

namespace {

constexpr NSUInteger kPageBytes = 16384;  // of Apple's processors
constexpr NSUInteger kMaxBufferBytes = NSUInteger{1} << 33;
constexpr uint64_t kWorkingSetBytes = uint64_t{11} << 30;
constexpr int kFreshByte = 0xa5;  // Metal does not promise zeros

NSUInteger whole_pages(NSUInteger length) {
  return (length + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// Address ranges of dead buffers stay unusable for a while, so that a stale pointer faults.
void retire(void* pointer, size_t bytes) {
  constexpr size_t kMaxRanges = 4096;
  struct Range {
    void* pointer;
    size_t bytes;
  };
  static auto* const mutex = new std::mutex;
  static auto* const ranges = new std::deque<Range>;
  madvise(pointer, bytes, MADV_DONTNEED);
  mprotect(pointer, bytes, PROT_NONE);
  const std::lock_guard lock(*mutex);
  ranges->push_back({pointer, bytes});
  if (ranges->size() <= kMaxRanges) return;
  munmap(ranges->front().pointer, ranges->front().bytes);
  ranges->pop_front();
}

void require_length(const char* method, NSUInteger length) {
  if (length > 0) return;
  fail_assertion(std::string("-[MTLDebugDevice ") + method + "]",
                 "Buffer Validation\nCannot create buffer of zero length.");
}

}  // namespace

@implementation HostBuffer

- (instancetype)initWithDevice:(id<MTLDevice>)device
                        length:(NSUInteger)length
                       options:(MTLResourceOptions)options {
  if ((self = [super init]) == nil) return nil;
  const NSUInteger bytes = whole_pages(length);
  if (length > kMaxBufferBytes || !metalhost::reserve_bytes(bytes)) {
    [self release];
    return nil;
  }
  reserved_bytes_ = bytes;
  void* const pages =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    [self release];
    return nil;
  }
  std::memset(pages, kFreshByte, length);
  contents_ = pages;
  length_ = length;
  options_ = options;
  device_ = [device retain];
  return self;
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                      borrowed:(void*)pointer
                        length:(NSUInteger)length
                       options:(MTLResourceOptions)options
                   deallocator:(void (^)(void*, NSUInteger))deallocator {
  if ((self = [super init]) == nil) return nil;
  contents_ = pointer;
  length_ = length;
  options_ = options;
  device_ = [device retain];
  deallocator_ = [deallocator copy];
  return self;
}

- (void)dealloc {
  if (reserved_bytes_ != 0) {
    if (contents_ != nullptr) retire(contents_, reserved_bytes_);
    metalhost::release_bytes(reserved_bytes_);
  }
  if (deallocator_ != nil) deallocator_(contents_, length_);
  [deallocator_ release];
  [label_ release];
  [device_ release];
  [super dealloc];
}

- (void*)contents {
  return [self storageMode] == MTLStorageModePrivate ? nullptr : contents_;
}
- (NSUInteger)length {
  return length_;
}
- (NSUInteger)allocatedSize {
  return whole_pages(length_);
}
- (id<MTLDevice>)device {
  return device_;
}
- (MTLResourceOptions)resourceOptions {
  return options_;
}
- (MTLStorageMode)storageMode {
  constexpr NSUInteger kModeShift = 4;
  constexpr NSUInteger kModeMask = 0xf;
  return static_cast<MTLStorageMode>(options_ >> kModeShift & kModeMask);
}
- (NSString*)label {
  return label_;
}
- (void)setLabel:(NSString*)label {
  [label_ autorelease];
  label_ = [label copy];
}
@end

@implementation HostDevice

+ (HostDevice*)shared {
  static HostDevice* const device = [[HostDevice alloc] init];
  return device;
}
- (NSString*)name {
  return @"Metal test double";
}
- (uint64_t)registryID {
  return 1;
}
- (BOOL)hasUnifiedMemory {
  return YES;
}
- (uint64_t)recommendedMaxWorkingSetSize {
  const uint64_t limit = metalhost::device_memory_limit();
  return limit == 0 ? kWorkingSetBytes : limit;
}
- (NSUInteger)currentAllocatedSize {
  return metalhost::allocated_bytes();
}
- (NSUInteger)maxBufferLength {
  return kMaxBufferBytes;
}
- (BOOL)supportsFamily:(MTLGPUFamily)family {
  return metalhost::supports_family(family);
}
- (id<MTLCommandQueue>)newCommandQueue {
  constexpr NSUInteger kDefaultMaxOpen = 64;  // Metal's
  return [self newCommandQueueWithMaxCommandBufferCount:kDefaultMaxOpen];
}
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count {
  return [[HostQueue alloc] initWithDevice:self maxOpen:count];
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  require_length("newBufferWithLength:options:", length);
  return [[HostBuffer alloc] initWithDevice:self length:length options:options];
}
- (id<MTLBuffer>)newBufferWithBytes:(const void*)pointer
                             length:(NSUInteger)length
                            options:(MTLResourceOptions)options {
  require_length("newBufferWithBytes:length:options:", length);
  HostBuffer* const buffer = [[HostBuffer alloc] initWithDevice:self length:length options:options];
  if (buffer != nil) std::memcpy([buffer contents], pointer, length);
  return buffer;
}
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)pointer
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void (^)(void*, NSUInteger))deallocator {
  const char* const method = "newBufferWithBytesNoCopy:length:options:deallocator:";
  require_length(method, length);
  // The host's pages are smaller than Apple's, so its own page size is asked for.
  constexpr uintptr_t kHostPageBytes = 4096;
  if (reinterpret_cast<uintptr_t>(pointer) % kHostPageBytes != 0 || length % kHostPageBytes != 0) {
    fail_assertion(std::string("-[MTLDebugDevice ") + method + "]",
                   "newBufferWithBytesNoCopy:pointer is not page aligned, or length is not a "
                   "multiple of the page size.");
  }
  return [[HostBuffer alloc] initWithDevice:self
                                   borrowed:pointer
                                     length:length
                                    options:options
                                deallocator:deallocator];
}
@end

id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
  return metalhost::is_device_absent() ? nil : [[HostDevice shared] retain];
}

// Buffers over shared MTLBuffers, from a pool. The host may read them once the device has finished.
#pragma once

#import <Metal/Metal.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "backends/buffer.h"
#include "backends/metal/retained.h"
#include "support/errors.h"

namespace lucid::metal {

/// Number of one submission to the device, counted from 1; 0 stands for none.
using Ticket = uint64_t;

class MetalBuffer final : public backends::Buffer {
 public:
  explicit MetalBuffer(int64_t size_bytes);
  ~MetalBuffer() override;

  id<MTLBuffer> handle() const { return handle_.get(); }

  /// The submission that writes the buffer, and the error that spoiled its contents. Both are
  /// guarded by the stream.
  Ticket ticket = 0;
  std::shared_ptr<const Error> failure;

 protected:
  void wait() const override;

 private:
  MetalBuffer(Retained<id<MTLBuffer>> handle, int64_t size_bytes);

  Retained<id<MTLBuffer>> handle_;
};

using MetalBufferRef = std::shared_ptr<MetalBuffer>;

/// A buffer of at least one byte; contents undefined. Throws OutOfMemoryError that states the size.
MetalBufferRef allocate(int64_t size_bytes);
/// As allocate, for the backend's own use: counted neither as a tensor nor as an allocation.
Retained<id<MTLBuffer>> lend(int64_t size_bytes);
/// Gives a lent block back to the pool.
void give_back(Retained<id<MTLBuffer>> block);

int64_t allocated_bytes();
int64_t peak_allocated_bytes();
void reset_peak();
/// Gives all pooled blocks back to the system.
void empty_cache();

}  // namespace lucid::metal

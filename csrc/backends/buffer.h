// Buffer: device memory with an owner.
#pragma once

#include <cstdint>
#include <memory>

#include "support/device.h"

namespace lucid::backends {

/// A block of memory that the host can address. Freed, or given back to its pool, with the last
/// reference. Contents never change while more than one owner holds it.
class Buffer {
 public:
  virtual ~Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  /// Address for the host. Waits for work of the device that writes the buffer, and throws the
  /// error of that work.
  void* data() const {
    if (device_ != Device::kCpu) wait();
    return data_;
  }
  int64_t size_bytes() const { return size_bytes_; }
  Device device() const { return device_; }
  /// True for memory of somebody else: never overwritten.
  bool is_borrowed() const { return is_borrowed_; }

 protected:
  virtual void wait() const {}

  Buffer(void* data, int64_t size_bytes, Device device, bool is_borrowed)
      : data_(data), size_bytes_(size_bytes), device_(device), is_borrowed_(is_borrowed) {}

 private:
  void* data_;
  int64_t size_bytes_;
  Device device_;
  bool is_borrowed_;
};

using BufferRef = std::shared_ptr<Buffer>;

}  // namespace lucid::backends

// Buffer: device memory with an owner.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "support/device.h"

namespace lucid::backends {

/// A block of memory that the host can address. Freed, or given back to its pool, with the last
/// reference. Contents never change while more than a tensor and the run that changes it hold it.
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

  /// Between these a run may write into the buffer that some tensor still holds.
  void begin_change() { is_changing_.store(true, std::memory_order_relaxed); }
  void end_change() {
    is_changing_.store(false, std::memory_order_release);
    is_changing_.notify_all();
  }
  bool is_changing() const { return is_changing_.load(std::memory_order_acquire); }
  /// Returns when nobody writes: to be called by who takes the buffer from a tensor.
  void wait_for_change() const {
    while (is_changing_.load(std::memory_order_acquire)) is_changing_.wait(true);
  }

 protected:
  virtual void wait() const {}

  Buffer(void* data, int64_t size_bytes, Device device, bool is_borrowed)
      : data_(data), size_bytes_(size_bytes), device_(device), is_borrowed_(is_borrowed) {}

 private:
  void* data_;
  int64_t size_bytes_;
  Device device_;
  bool is_borrowed_;
  std::atomic<bool> is_changing_{false};
};

using BufferRef = std::shared_ptr<Buffer>;

}  // namespace lucid::backends

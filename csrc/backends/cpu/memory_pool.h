// Pool of host memory: blocks come back here and are handed out again.
#pragma once

#include <cstdint>

#include "backends/buffer.h"

namespace lucid::cpu {

/// A 64-byte aligned buffer of at least one byte from the process's pool; contents undefined.
/// Throws OutOfMemoryError that states the size.
backends::BufferRef allocate(int64_t size_bytes);

/// A buffer over memory of somebody else, kept alive by `owner` and never overwritten.
backends::BufferRef borrow(void* data, int64_t size_bytes, std::shared_ptr<void> owner);

/// Arena memory for one run; given back to the pool when it goes out of scope.
class Lease {
 public:
  explicit Lease(int64_t size_bytes);
  ~Lease();
  /// Takes the memory over; `other` still shows where it is.
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&&) = delete;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
  bool is_owner_ = false;
  int64_t size_bytes_;
  int64_t block_bytes_ = 0;  ///< size that the block was made for
};

/// Gives all pooled blocks back to the system.
void empty_cache();

}  // namespace lucid::cpu

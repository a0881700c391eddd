#include "backends/metal/metal_buffer.h"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backends/metal/gpu.h"
#include "backends/metal/stream.h"
#include "backends/usage.h"

namespace lucid::metal {
namespace {

constexpr int64_t kSmallestBlock = 256;
constexpr int64_t kMaxPooledBytes = int64_t{1} << 30;

backends::Usage tensors;

/// Four sizes between powers of two, so at most a quarter is wasted.
int64_t rounded(int64_t size_bytes) {
  const auto size = static_cast<uint64_t>(std::max(size_bytes, kSmallestBlock));
  const uint64_t step = std::max<uint64_t>(std::bit_floor(size) / 4, kSmallestBlock);
  return static_cast<int64_t>((size + step - 1) / step * step);
}

// Free blocks by size. The device no longer uses them: a submission keeps what it uses.
class Pool {
 public:
  Retained<id<MTLBuffer>> take(int64_t size_bytes) {
    const int64_t wanted = rounded(size_bytes);
    if (std::cmp_greater(wanted, [Gpu::get().device() maxBufferLength])) fail(size_bytes);
    if (auto pooled = find(wanted)) return pooled;
    auto block = fresh(wanted);
    if (!block) {
      Stream::get().retire_finished();
      clear();
      block = fresh(wanted);
    }
    if (!block) fail(size_bytes);
    return block;
  }

  void give_back(Retained<id<MTLBuffer>> block) {
    const auto size = static_cast<int64_t>([block.get() length]);
    const std::scoped_lock lock(mutex_);
    if (pooled_bytes_ + size > kMaxPooledBytes) return;
    pooled_bytes_ += size;
    free_[size].push_back(std::move(block));
  }

  void clear() {
    std::map<int64_t, std::vector<Retained<id<MTLBuffer>>>> dropped;
    const std::scoped_lock lock(mutex_);
    dropped.swap(free_);
    pooled_bytes_ = 0;
  }

 private:
  Retained<id<MTLBuffer>> find(int64_t size) {
    const std::scoped_lock lock(mutex_);
    const auto it = free_.find(size);
    if (it == free_.end() || it->second.empty()) return {};
    auto block = std::move(it->second.back());
    it->second.pop_back();
    pooled_bytes_ -= size;
    return block;
  }

  static Retained<id<MTLBuffer>> fresh(int64_t size) {
    return Retained<id<MTLBuffer>>::adopt([Gpu::get().device()
        newBufferWithLength:static_cast<NSUInteger>(size)
                    options:MTLResourceStorageModeShared]);
  }

  [[noreturn]] static void fail(int64_t size_bytes) {
    throw Error(ErrorKind::kOutOfMemory,
                "out of memory: " + std::to_string(size_bytes) + " bytes asked on metal, " +
                    std::to_string(tensors.now()) + " bytes in use by tensors");
  }

  std::mutex mutex_;
  std::map<int64_t, std::vector<Retained<id<MTLBuffer>>>> free_;
  int64_t pooled_bytes_ = 0;
};

// Never destroyed: buffers may outlive every static object.
Pool& pool() {
  static Pool* const instance = new Pool;  // NOLINT: see above
  return *instance;
}

}  // namespace

MetalBuffer::MetalBuffer(int64_t size_bytes) : MetalBuffer(lend(size_bytes), size_bytes) {}

MetalBuffer::MetalBuffer(Retained<id<MTLBuffer>> handle, int64_t size_bytes)
    : Buffer([handle.get() contents], size_bytes, Device::kMetal, false),
      handle_(std::move(handle)) {
  backends::num_buffers.fetch_add(1, std::memory_order_relaxed);
  tensors.add(size_bytes);
}

MetalBuffer::~MetalBuffer() {
  const AutoreleasePool inner;
  give_back(std::move(handle_));
  tensors.remove(size_bytes());
}

void MetalBuffer::wait() const { Stream::get().wait(*this); }

MetalBufferRef allocate(int64_t size_bytes) { return std::make_shared<MetalBuffer>(size_bytes); }

Retained<id<MTLBuffer>> lend(int64_t size_bytes) {
  return guarded("metal: allocation", [&] { return pool().take(size_bytes); });
}

void give_back(Retained<id<MTLBuffer>> block) { pool().give_back(std::move(block)); }

int64_t allocated_bytes() { return tensors.now(); }
int64_t peak_allocated_bytes() { return tensors.peak(); }
void reset_peak() { tensors.reset_peak(); }
void empty_cache() {
  const AutoreleasePool inner;
  pool().clear();
}

}  // namespace lucid::metal

#include "backends/cpu/memory_pool.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "backends/usage.h"
#include "support/errors.h"

namespace lucid::cpu {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int kStepsPerOctave = 4;
constexpr int kNumClasses = 48 * kStepsPerOctave;

backends::Usage tensors;
backends::Usage leases;
backends::Usage everything;

// Size classes: four steps between powers of two, so at most a quarter is wasted.
struct SizeClass {
  int place;
  int64_t size_bytes;
};

SizeClass size_class(int64_t size_bytes) {
  const auto size = static_cast<uint64_t>(std::max(size_bytes, kAlignment));
  const auto octave = static_cast<int>(std::bit_width(size - 1)) - 1;
  const uint64_t step = std::max<uint64_t>((uint64_t{1} << octave) / kStepsPerOctave, kAlignment);
  const uint64_t rounded = (size + step - 1) / step * step;
  const auto within = static_cast<int>((rounded - (uint64_t{1} << octave)) / step);
  return {octave * kStepsPerOctave + within, static_cast<int64_t>(rounded)};
}

// Large blocks lie on huge pages where the system has them: matrices whose rows are pages apart
// are read up to a quarter faster, and a first touch costs one fault for 2 MB. The end of a block
// that fills no huge page stays on small ones, so no more memory is resident than was asked for.
void* from_system(size_t size_bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr size_t kHugePage = size_t{2} << 20;
  if (size_bytes >= kHugePage) {
    // Not aligned_alloc, whose size must be a multiple of the alignment.
    void* block = nullptr;
    if (posix_memalign(&block, kHugePage, size_bytes) != 0) return nullptr;
    // Advice only: a kernel without huge pages refuses it, and the block serves all the same.
    (void)madvise(block, size_bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
    return block;
  }
#endif
  return std::aligned_alloc(kAlignment, size_bytes);
}

// Free blocks by size class. A block of more than 2^30 bytes goes straight back to the system.
class Pool {
 public:
  void* take(int64_t size_bytes) {
    if (size_bytes > kMaxBlock) fail(size_bytes);
    const SizeClass wanted = size_class(size_bytes);
    if (wanted.place < kNumClasses) {
      const std::scoped_lock lock(mutex_);
      std::vector<void*>& free = free_[static_cast<size_t>(wanted.place)];
      if (!free.empty()) {
        void* block = free.back();
        free.pop_back();
        pooled_bytes_ -= wanted.size_bytes;
        return block;
      }
    }
    return fresh(wanted.size_bytes, size_bytes);
  }

  /// The smallest free arena of at least that size and its size. Where all are smaller, a fresh one
  /// takes the place of the largest: arenas that grow one after the other do not pile up.
  std::pair<void*, int64_t> take_arena(int64_t size_bytes) {
    void* too_small = nullptr;
    {
      const std::scoped_lock lock(mutex_);
      auto found = arenas_.lower_bound(size_bytes);
      const bool fits = found != arenas_.end();
      if (!fits && !arenas_.empty()) --found;
      if (found != arenas_.end()) {
        const auto [block_bytes, block] = *found;
        arenas_.erase(found);
        pooled_bytes_ -= block_bytes;
        if (fits) return {block, block_bytes};
        too_small = block;
      }
    }
    std::free(too_small);
    if (size_bytes > kMaxBlock) fail(size_bytes);
    const int64_t rounded = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
    return {fresh(rounded, size_bytes), rounded};
  }

  void give_back_arena(void* block, int64_t block_bytes) {
    {
      const std::scoped_lock lock(mutex_);
      if (block_bytes <= kMaxPooledBlock && pooled_bytes_ + block_bytes <= kMaxPooledBytes) {
        arenas_.emplace(block_bytes, block);
        pooled_bytes_ += block_bytes;
        return;
      }
    }
    std::free(block);
  }

  void give_back(void* block, int64_t size_bytes) {
    const SizeClass given = size_class(size_bytes);
    if (given.size_bytes <= kMaxPooledBlock) {
      const std::scoped_lock lock(mutex_);
      if (pooled_bytes_ + given.size_bytes <= kMaxPooledBytes) {
        free_[static_cast<size_t>(given.place)].push_back(block);
        pooled_bytes_ += given.size_bytes;
        return;
      }
    }
    std::free(block);
  }

  void clear() {
    const std::scoped_lock lock(mutex_);
    for (std::vector<void*>& free : free_) {
      for (void* block : free) std::free(block);
      free.clear();
    }
    for (const auto& [size_bytes, block] : arenas_) std::free(block);
    arenas_.clear();
    pooled_bytes_ = 0;
  }

 private:
  static constexpr int64_t kMaxBlock = int64_t{1} << 56;  // more than any address space
  static constexpr int64_t kMaxPooledBlock = int64_t{1} << 30;
  static constexpr int64_t kMaxPooledBytes = int64_t{1} << 30;

  void* fresh(int64_t rounded_bytes, int64_t size_bytes) {
    void* block = from_system(static_cast<size_t>(rounded_bytes));
    if (block == nullptr) {
      clear();
      block = from_system(static_cast<size_t>(rounded_bytes));
    }
    if (block != nullptr) return block;
    fail(size_bytes);
  }

  [[noreturn]] static void fail(int64_t size_bytes) {
    throw Error(ErrorKind::kOutOfMemory,
                "out of memory: " + std::to_string(size_bytes) + " bytes asked on cpu, " +
                    std::to_string(tensors.now()) + " bytes in use by tensors");
  }

  std::mutex mutex_;
  std::array<std::vector<void*>, kNumClasses> free_;
  std::multimap<int64_t, void*> arenas_;  // free ones by size
  int64_t pooled_bytes_ = 0;
};

// Never destroyed: buffers may outlive every static object.
Pool& pool() {
  static Pool* const instance = new Pool;  // NOLINT: see above
  return *instance;
}

class PooledBuffer final : public backends::Buffer {
 public:
  explicit PooledBuffer(int64_t size_bytes)
      : Buffer(pool().take(size_bytes), size_bytes, Device::kCpu, false) {
    backends::num_buffers.fetch_add(1, std::memory_order_relaxed);
    tensors.add(size_bytes);
    everything.add(size_bytes);
  }
  ~PooledBuffer() override {
    pool().give_back(data(), size_bytes());
    tensors.remove(size_bytes());
    everything.remove(size_bytes());
  }
};

class BorrowedBuffer final : public backends::Buffer {
 public:
  BorrowedBuffer(void* data, int64_t size_bytes, std::shared_ptr<void> owner)
      : Buffer(data, size_bytes, Device::kCpu, true), owner_(std::move(owner)) {}

 private:
  std::shared_ptr<void> owner_;
};

}  // namespace

backends::BufferRef allocate(int64_t size_bytes) {
  return std::make_shared<PooledBuffer>(size_bytes);
}

backends::BufferRef borrow(void* data, int64_t size_bytes, std::shared_ptr<void> owner) {
  return std::make_shared<BorrowedBuffer>(data, size_bytes, std::move(owner));
}

// Arenas do not live at once: one block, large enough, serves the executables of a process in turn.
Lease::Lease(int64_t size_bytes) : size_bytes_(size_bytes) {
  if (size_bytes == 0) return;
  std::tie(data_, block_bytes_) = pool().take_arena(size_bytes);
  is_owner_ = true;
  leases.add(size_bytes);
  everything.add(size_bytes);
}

Lease::Lease(Lease&& other) noexcept
    : data_(other.data_),
      is_owner_(std::exchange(other.is_owner_, false)),
      size_bytes_(other.size_bytes_),
      block_bytes_(other.block_bytes_) {}

Lease::~Lease() {
  if (!is_owner_) return;
  pool().give_back_arena(data_, block_bytes_);
  leases.remove(size_bytes_);
  everything.remove(size_bytes_);
}

void empty_cache() { pool().clear(); }

}  // namespace lucid::cpu

namespace lucid::backends {

int64_t num_allocations() { return num_buffers.load(std::memory_order_relaxed); }
int64_t allocated_bytes() { return cpu::tensors.now(); }
int64_t peak_allocated_bytes() { return cpu::tensors.peak(); }
int64_t peak_leased_bytes() { return cpu::leases.peak(); }
int64_t peak_bytes_in_use() { return cpu::everything.peak(); }

void reset_peaks() {
  cpu::tensors.reset_peak();
  cpu::leases.reset_peak();
  cpu::everything.reset_peak();
}

}  // namespace lucid::backends

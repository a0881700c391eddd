// Counters of memory use, shared by the pools of all devices.
#pragma once

#include <atomic>
#include <cstdint>

namespace lucid::backends {

/// Bytes in use now, and the most since the process began or the last reset.
class Usage {
 public:
  void add(int64_t size_bytes) {
    const int64_t now = now_.fetch_add(size_bytes, std::memory_order_relaxed) + size_bytes;
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  void remove(int64_t size_bytes) { now_.fetch_sub(size_bytes, std::memory_order_relaxed); }
  int64_t now() const { return now_.load(std::memory_order_relaxed); }
  int64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  void reset_peak() { peak_.store(now(), std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> now_{0};
  std::atomic<int64_t> peak_{0};
};

/// Buffers handed out by the pools of all devices.
inline std::atomic<int64_t> num_buffers{0};

}  // namespace lucid::backends

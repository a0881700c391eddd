// What the machine can do at most: multiply-adds in registers, and bytes moved by plain loops.
// machine.py compiles this for the machine it runs on and calls it; it is no part of lucid.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
using Vector [[gnu::vector_size(kVectorBytes)]] = float;

constexpr int kLanes = kVectorBytes / 4;
constexpr int kChains = 12;  // independent sums: latency times multiply-adds a cycle, and some more
constexpr int kSteps = 1 << 20;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Runs `work(thread)` on that many threads; the wall time from the first start to the last end.
template <class Work>
double seconds_of(int threads, const Work& work) {
  const auto start = Clock::now();
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back([&work, i] { work(i); });
  work(0);
  for (std::thread& other : others) other.join();
  return seconds_since(start);
}

float multiply_add() {
  volatile float start = 0.5f;  // unknown to the compiler, or it would see that all sums are one
  Vector sums[kChains] = {};
  for (Vector& sum : sums) sum += start;
  const Vector factor = sums[0];
  for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sums[i] = sums[i] * factor + factor;
  }
  float total = 0;
  for (const Vector& sum : sums) total += sum[0];
  return total;
}

// a = b + 2 c over `count` vectors; reads two, writes one.
void triad(Vector* a, const Vector* b, const Vector* c, size_t count) {
  for (size_t i = 0; i < count; ++i) a[i] = b[i] + 2.0f * c[i];
  asm volatile("" ::: "memory");
}

void read_all(const Vector* a, size_t count) {
  Vector sums[8] = {};
  for (size_t i = 0; i + 8 <= count; i += 8) {
#pragma GCC unroll 8
    for (size_t j = 0; j < 8; ++j) sums[j] += a[i + j];
  }
  for (Vector& sum : sums) asm volatile("" ::"m"(sum));
}

struct Buffer {
  explicit Buffer(size_t count) : memory(count * kVectorBytes + kVectorBytes) {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    start = reinterpret_cast<Vector*>((address + kVectorBytes - 1) / kVectorBytes * kVectorBytes);
  }
  std::vector<char> memory;
  Vector* start;
};

}  // namespace

extern "C" {

/// Most FLOP/s of `threads` threads over a few short rounds.
double machine_flops(int threads, int rounds) {
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const double seconds = seconds_of(threads, [](int) {
      volatile float kept = multiply_add();
      (void)kept;
    });
    const double flops = 2.0 * kLanes * kChains * kSteps * threads;
    if (flops / seconds > best) best = flops / seconds;
  }
  return best;
}

/// Most bytes/s over arrays of `bytes` in all: the better of reading and of a triad, which is gone
/// through `passes` times a round.
double machine_bytes(int threads, int64_t bytes, int passes, int rounds) {
  const size_t count = static_cast<size_t>(bytes) / kVectorBytes / 3 / threads + 8;
  std::vector<std::unique_ptr<Buffer>> arrays;
  for (int i = 0; i < 3 * threads; ++i) arrays.push_back(std::make_unique<Buffer>(count));
  const double moved = 3.0 * count * kVectorBytes * threads * passes;
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const double triads = seconds_of(threads, [&](int i) {
      auto* mine = &arrays[3 * i];
      for (int j = 0; j < passes; ++j) {
        triad(mine[0]->start, mine[1]->start, mine[2]->start, count);
      }
    });
    const double reads = seconds_of(threads, [&](int i) {
      for (int j = 0; j < 3 * passes; ++j) read_all(arrays[3 * i + j % 3]->start, count);
    });
    const double least = triads < reads ? triads : reads;
    if (moved / least > best) best = moved / least;
  }
  return best;
}
}

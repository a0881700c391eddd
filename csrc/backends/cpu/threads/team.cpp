#include "backends/cpu/threads/team.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "support/errors.h"

namespace lucid::cpu {
namespace {

constexpr int kMaxThreads = 1024;
constexpr double kSerialBelowNs = 20e3;  // a hot hand-over and join costs 1 to 3 us
constexpr int kSpinsBetweenClockReads = 32;
// Waking a worker takes 25 to 50 us: the caller's serial work between two loops may last longer.
constexpr auto kSpinTime = std::chrono::microseconds(200);
constexpr auto kSpinTimeOversubscribed = std::chrono::microseconds(2);

void relax() {
#if defined(__SSE2__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// The rounding and flush-to-zero flags of this thread. Workers take the caller's, so that the
/// thread that computes a range cannot change its bits.
unsigned float_flags() {
#if defined(__SSE2__)
  return _mm_getcsr();
#else
  return 0;
#endif
}

void set_float_flags([[maybe_unused]] unsigned flags) {
#if defined(__SSE2__)
  _mm_setcsr(flags);
#endif
}

int available_cores() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// The processor that this thread runs on, or -1.
int current_cpu() {
#if defined(__linux__)
  return sched_getcpu();
#else
  return -1;
#endif
}

int default_num_threads() {
  const char* const text = std::getenv("LUCID_NUM_THREADS");
  const int wanted = text == nullptr ? 0 : std::atoi(text);
  return std::min(wanted >= 1 ? wanted : available_cores(), kMaxThreads);
}

/// Spins until `done()` or the time is up; tells which.
template <class Done>
bool spin_until(std::chrono::microseconds limit, Done done) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < kSpinsBetweenClockReads; ++i) {
      if (done()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return done();
}

/// One parallel loop.
struct Loop {
  int64_t count;
  int64_t grain;
  const RangeFn* body;
  unsigned float_flags;
};

/// A part of a loop that one thread takes ranges from until none is left, and then the others.
struct alignas(64) Share {
  std::atomic<int64_t> next = 0;
  int64_t end = 0;
};

/// The state of the team's door in one word, so that a worker enters only while it is open:
/// number of workers inside, open bit, number of the loop.
namespace door {
constexpr uint32_t kInside = 1u;
constexpr uint32_t kInsideMask = 0x7ffu;
constexpr uint32_t kOpen = 0x800u;
constexpr uint32_t kLoop = 0x1000u;
uint32_t inside(uint32_t door) { return door & kInsideMask; }
bool is_open(uint32_t door) { return (door & kOpen) != 0; }
uint32_t loop(uint32_t door) { return door / kLoop; }
}  // namespace door

thread_local bool in_loop = false;

/// Where a worker runs: set by the worker, read by the callers.
struct Worker {
  std::atomic<int> cpu = -1;
  std::atomic<pid_t> thread_id = 0;
};

/// Keeps threads of the team on processors of their own. Some schedulers (of small virtual
/// machines above all) pack the threads of a process on one processor for seconds.
class Spreader {
 public:
  explicit Spreader(int num_threads) {
#if defined(__linux__)
    active_ = sched_getaffinity(0, sizeof(allowed_), &allowed_) == 0 &&
              CPU_COUNT(&allowed_) >= num_threads;
#else
    static_cast<void>(num_threads);
#endif
  }

  /// Moves workers that share a processor with the caller or with an earlier worker.
  void spread(std::deque<Worker>& workers) const {
#if defined(__linux__)
    if (!active_) return;
    cpu_set_t free = allowed_;
    CPU_CLR(static_cast<size_t>(current_cpu()), &free);
    for (Worker& worker : workers) {
      const int cpu = worker.cpu.load(std::memory_order_relaxed);
      if (cpu < 0) continue;  // it has not run since it was made or moved
      if (CPU_ISSET(static_cast<size_t>(cpu), &free)) {
        CPU_CLR(static_cast<size_t>(cpu), &free);
        continue;
      }
      if (CPU_COUNT(&free) == 0) return;
      worker.cpu.store(-1, std::memory_order_relaxed);
      sched_setaffinity(worker.thread_id.load(std::memory_order_relaxed), sizeof(free), &free);
    }
#else
    static_cast<void>(workers);
#endif
  }

  /// Called by a worker now and then.
  static void report(Worker& worker) {
#if defined(__linux__)
    if (worker.thread_id.load(std::memory_order_relaxed) == 0) {
      worker.thread_id.store(gettid(), std::memory_order_relaxed);
    }
    const int cpu = current_cpu();
    if (worker.cpu.load(std::memory_order_relaxed) != cpu) {
      worker.cpu.store(cpu, std::memory_order_relaxed);
    }
#else
    static_cast<void>(worker);
#endif
  }

 private:
#if defined(__linux__)
  cpu_set_t allowed_{};
  bool active_ = false;
#endif
};

/// Workers and the loop that they share. A worker that wakes late finds the door closed, so the
/// caller never waits for one that has not started. Never destroyed: workers outlive `main`.
class Team {
 public:
  /// Runs the loop with up to `helpers` workers; false if another thread has the team.
  bool run(const Loop& loop, int helpers) {
    const std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
    if (!turn.owns_lock()) return false;
    add_workers(helpers);
    spreader_.spread(workers_);
    loop_ = loop;
    limit_ = std::min(helpers, num_workers());
    share_out();
    const uint32_t closed = door_.load(std::memory_order_relaxed);
    door_.store((door::loop(closed) + 1) * door::kLoop + door::kOpen);
    wake();
    work(0);
    door_.fetch_and(~door::kOpen);
    wait_for_workers();
    if (!failed_.load(std::memory_order_relaxed)) return true;
    failed_.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  int num_workers() const { return static_cast<int>(workers_.size()); }

  void add_workers(int wanted) {
    if (num_workers() >= wanted) return;
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals belong to the program's own threads
    try {
      while (num_workers() < wanted) {
        Worker& worker = workers_.emplace_back();
        const int place = num_workers();
        std::thread([this, &worker, place] { serve(worker, place); }).detach();
      }
    } catch (const std::system_error&) {
      workers_.pop_back();  // the system gives no more: the loop runs on those that there are
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    shares_ = std::vector<Share>(workers_.size() + 1);
    oversubscribed_.store(num_workers() + 1 > available_cores(), std::memory_order_relaxed);
    spreader_ = Spreader(num_workers() + 1);
  }

  void wake() {
    if (limit_ == num_workers()) {
      door_.notify_all();
      return;
    }
    for (int i = 0; i < limit_; ++i) door_.notify_one();
  }

  /// Neighbouring ranges to the same thread, loop after loop: what it wrote in one loop lies in
  /// its own cache when it reads that in the next.
  void share_out() {
    const int64_t ranges = (loop_.count - 1) / loop_.grain + 1;
    const int64_t parts = limit_ + 1;
    int64_t begin = 0;
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t end = std::min(ranges * (i + 1) / parts * loop_.grain, loop_.count);
      Share& share = shares_[static_cast<size_t>(i)];
      share.next.store(begin, std::memory_order_relaxed);
      share.end = end;
      begin = end;
    }
  }

  /// Takes ranges until none is left, those of its own share first. The first exception ends the
  /// loop for all.
  void work(int place) {
    const bool outer = std::exchange(in_loop, true);
    const int parts = limit_ + 1;
    try {
      for (int i = 0; i < parts; ++i) take_all(shares_[static_cast<size_t>((place + i) % parts)]);
    } catch (...) {
      for (int i = 0; i < parts; ++i) {
        Share& share = shares_[static_cast<size_t>(i)];
        share.next.store(share.end, std::memory_order_relaxed);
      }
      if (!failed_.exchange(true)) error_ = std::current_exception();
    }
    in_loop = outer;
  }

  void take_all(Share& share) {
    // A look costs less than taking the line from the thread that works on the share.
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      const int64_t begin = share.next.fetch_add(loop_.grain, std::memory_order_relaxed);
      if (begin >= share.end) return;
      (*loop_.body)(begin, std::min(begin + loop_.grain, share.end));
    }
  }

  void wait_for_workers() {
    const auto none_inside = [this] { return door::inside(door_.load()) == 0; };
    if (spin_until(spin_time(), none_inside)) return;
    for (;;) {
      const uint32_t seen = departures_.load();
      if (none_inside()) return;
      departures_.wait(seen);
    }
  }

  void serve(Worker& worker, int place) {
    uint32_t served = 0;
    for (;;) {
      Spreader::report(worker);
      uint32_t state = door_.load();
      const auto open = [&] {
        state = door_.load();
        return door::is_open(state) && door::loop(state) != served;
      };
      if (!spin_until(spin_time(), open)) {
        door_.wait(state);
        continue;
      }
      served = door::loop(state);
      if (enter(state)) help(place);
    }
  }

  bool enter(uint32_t state) {
    const uint32_t loop = door::loop(state);
    while (door::is_open(state) && door::loop(state) == loop) {
      if (static_cast<int>(door::inside(state)) >= limit_) return false;
      if (door_.compare_exchange_weak(state, state + door::kInside)) return true;
    }
    return false;
  }

  void help(int place) {
    set_float_flags(loop_.float_flags);
    work(place);
    if (door::inside(door_.fetch_sub(door::kInside)) != 1) return;
    departures_.fetch_add(1);
    departures_.notify_one();
  }

  std::chrono::microseconds spin_time() const {
    return oversubscribed_.load(std::memory_order_relaxed) ? kSpinTimeOversubscribed : kSpinTime;
  }

  std::mutex turn_;
  std::deque<Worker> workers_;
  Spreader spreader_{1};
  Loop loop_{};
  std::atomic<int> limit_ = 0;
  std::exception_ptr error_;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> oversubscribed_ = false;
  std::vector<Share> shares_{1};  // a place for the caller and each worker
  alignas(64) std::atomic<uint32_t> door_ = 0;
  alignas(64) std::atomic<uint32_t> departures_ = 0;
};

/// The process's team and its wanted size.
struct TeamState {
  std::atomic<Team*> team;
  std::atomic<int> num_threads;
};

Team* make_team() { return std::make_unique<Team>().release(); }

TeamState& team_state() {
  static TeamState& state = []() -> TeamState& {
    static TeamState made{make_team(), default_num_threads()};
    pthread_atfork(nullptr, nullptr, [] {
      // Only the forking thread lives on: leave the old team and its lock alone.
      made.team.store(make_team());
      made.num_threads.store(1);
    });
    return made;
  }();
  return state;
}

void run_on_caller(const Loop& loop) {
  for (int64_t begin = 0; begin < loop.count; begin += loop.grain) {
    (*loop.body)(begin, std::min(begin + loop.grain, loop.count));
  }
}

}  // namespace

void parallel_for(int64_t count, int64_t grain, double cost_ns, RangeFn body) {
  if (count <= 0) return;
  const Loop loop{count, std::max<int64_t>(grain, 1), &body, float_flags()};
  const int64_t num_ranges = (count - 1) / loop.grain + 1;
  const bool small = num_ranges == 1 || static_cast<double>(count) * cost_ns < kSerialBelowNs;
  if (small || in_loop) {
    run_on_caller(loop);
    return;
  }
  TeamState& state = team_state();
  const int64_t threads = std::min<int64_t>(state.num_threads.load(), num_ranges);
  // A second caller computes alone while the team is taken: it keeps moving on its own core and
  // cannot be held up by, or deadlock with, whatever the first one's body waits for.
  if (threads == 1 || !state.team.load()->run(loop, static_cast<int>(threads) - 1)) {
    run_on_caller(loop);
  }
}

int num_threads() { return team_state().num_threads.load(); }

void set_num_threads(int64_t count) {
  if (count < 1 || count > kMaxThreads) {
    throw Error(ErrorKind::kUser,
                "set_num_threads: count must be from 1 to 1024: got " + std::to_string(count));
  }
  team_state().num_threads.store(static_cast<int>(count));
}

}  // namespace lucid::cpu

// The team of threads: every index once, errors, nesting, several callers, fork.
#include "backends/cpu/threads/team.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include "backends/cpu/engine/slots.h"
#include "support/errors.h"
#include "testing.h"

namespace lucid::cpu {
namespace {

constexpr double kHeavy = 1e6;  // ns an index: always worth the team

/// Sets the number of threads, and back.
class Threads {
 public:
  explicit Threads(int count) : before_(num_threads()) { set_num_threads(count); }
  ~Threads() { set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

/// Runs a loop and returns how often each index was met; checks the ranges.
std::vector<int> counts(int64_t count, int64_t grain, double cost_ns) {
  std::vector<std::atomic<int>> met(static_cast<size_t>(count));
  std::atomic<int> bad_ranges = 0;
  parallel_for(count, grain, cost_ns, [&](int64_t begin, int64_t end) {
    const bool good = begin % grain == 0 && begin < end && end - begin <= grain && end <= count;
    if (!good) ++bad_ranges;
    for (int64_t i = begin; i < end; ++i) ++met[static_cast<size_t>(i)];
  });
  CHECK_EQ(bad_ranges.load(), 0);
  return {met.begin(), met.end()};
}

TEST(every_index_is_met_once) {
  for (const int threads : {1, 2, 3, 7}) {
    const Threads setting(threads);
    for (const int64_t count : {1, 2, 5, 64, 1000}) {
      for (const int64_t grain : {1, 3, 64, 2000}) {
        for (const double cost_ns : {0.0, kHeavy}) {
          CHECK(counts(count, grain, cost_ns) == std::vector<int>(static_cast<size_t>(count), 1));
        }
      }
    }
  }
}

TEST(many_short_loops_lose_nothing) {
  const Threads setting(4);
  std::atomic<int64_t> sum = 0;
  for (int loop = 0; loop < 3000; ++loop) {
    parallel_for(8, 1, kHeavy, [&](int64_t begin, int64_t) { sum += begin; });
  }
  CHECK_EQ(sum.load(), 3000 * 28);
}

TEST(an_empty_loop_calls_nothing) {
  int calls = 0;
  parallel_for(0, 1, kHeavy, [&](int64_t, int64_t) { ++calls; });
  parallel_for(-3, 1, kHeavy, [&](int64_t, int64_t) { ++calls; });
  CHECK_EQ(calls, 0);
}

TEST(little_work_stays_on_the_caller) {
  const Threads setting(4);
  const auto caller = std::this_thread::get_id();
  bool elsewhere = false;
  parallel_for(100, 1, 100.0, [&](int64_t, int64_t) {
    elsewhere = elsewhere || std::this_thread::get_id() != caller;
  });
  CHECK(!elsewhere);
}

TEST(much_work_is_shared) {
  const Threads setting(3);
  // Each range waits until the three of them run at once, which takes three threads.
  std::atomic<int> running = 0;
  parallel_for(3, 1, kHeavy, [&](int64_t, int64_t) {
    ++running;
    while (running < 3) std::this_thread::yield();
  });
  CHECK_EQ(running.load(), 3);
}

TEST(slots_take_runs_of_neighbours) {
  for (const int num_slots : {1, 2, 3, 8}) {
    const Threads threads(num_slots);
    for (const int64_t count : {0, 1, 7, 64, 1000}) {
      std::vector<std::atomic<int>> met(static_cast<size_t>(count));
      std::vector<int64_t> slot_of(static_cast<size_t>(count), -1);
      std::vector<std::atomic<int>> users(static_cast<size_t>(num_slots));
      std::atomic<int> num_shared = 0;
      for_each_run_in_slots(count, num_slots, kHeavy, [&](int64_t slot, int64_t index) {
        std::atomic<int>& user = users[static_cast<size_t>(slot)];
        if (user.fetch_add(1) != 0) ++num_shared;
        ++met[static_cast<size_t>(index)];
        slot_of[static_cast<size_t>(index)] = slot;
        --user;
      });
      CHECK_EQ(num_shared.load(), 0);
      for (const auto& times : met) CHECK_EQ(times.load(), 1);
      int num_changes = 0;
      for (size_t i = 1; i < slot_of.size(); ++i) num_changes += slot_of[i] != slot_of[i - 1];
      // A run is a (2 slots)th of what is left: 1000 indices are 89 of them for 8 slots.
      CHECK(num_changes < 89);
    }
  }
}

TEST(a_nested_loop_runs_on_its_thread) {
  const Threads setting(4);
  std::atomic<int> elsewhere = 0;
  std::atomic<int> inner = 0;
  parallel_for(16, 1, kHeavy, [&](int64_t, int64_t) {
    const auto outer = std::this_thread::get_id();
    parallel_for(16, 1, kHeavy, [&](int64_t, int64_t) {
      ++inner;
      if (std::this_thread::get_id() != outer) ++elsewhere;
    });
  });
  CHECK_EQ(inner.load(), 256);
  CHECK_EQ(elsewhere.load(), 0);
}

TEST(an_exception_reaches_the_caller) {
  for (const int threads : {1, 4}) {
    const Threads setting(threads);
    for (int loop = 0; loop < 100; ++loop) {
      CHECK_THROWS(parallel_for(64, 1, kHeavy,
                                [](int64_t begin, int64_t) {
                                  if (begin % 8 == 5) throw std::runtime_error("range failed");
                                }),
                   std::runtime_error, "range failed");
    }
    CHECK(counts(64, 1, kHeavy) == std::vector<int>(64, 1));
  }
}

TEST(several_callers_all_finish) {
  const Threads setting(3);
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int loop = 0; loop < 500; ++loop) {
        parallel_for(10, 1, kHeavy, [&](int64_t begin, int64_t) { sum += begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK_EQ(sum.load(), 4 * 500 * 45);
}

TEST(the_number_of_threads_is_checked) {
  const Threads setting(2);
  CHECK_EQ(num_threads(), 2);
  CHECK_THROWS(set_num_threads(0), Error, "set_num_threads: count must be from 1 to 1024: got 0");
  CHECK_THROWS(set_num_threads(1025), Error, "1025");
  CHECK_EQ(num_threads(), 2);
}

#if !defined(__SANITIZE_THREAD__)
TEST(a_forked_child_has_one_thread) {
  const Threads setting(4);
  CHECK(counts(64, 1, kHeavy) == std::vector<int>(64, 1));
  const pid_t child = fork();
  if (child == 0) {
    bool good = num_threads() == 1 && counts(64, 1, kHeavy) == std::vector<int>(64, 1);
    set_num_threads(2);  // a team of its own
    good = good && counts(64, 1, kHeavy) == std::vector<int>(64, 1);
    _exit(good ? 0 : 1);
  }
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  CHECK(counts(64, 1, kHeavy) == std::vector<int>(64, 1));
}
#endif

}  // namespace
}  // namespace lucid::cpu

// Parallel loops whose body owns one of a few slots of scratch memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "backends/cpu/threads/team.h"

namespace lucid::cpu {

/// Calls `body(slot)` for every slot. `cost_ns` is the work of all on one core.
template <class Body>
void for_each_slot(int num_slots, double cost_ns, const Body& body) {
  parallel_for(num_slots, 1, cost_ns / num_slots, [&](int64_t begin, int64_t end) {
    for (int64_t slot = begin; slot < end; ++slot) body(slot);
  });
}

/// Calls `body(slot, index)` for every index below `count`, with 0 <= slot < num_slots; no slot is
/// used by two calls at once. `cost_ns` is the work of one index on one core.
template <class Body>
void for_each_in_slots(int64_t count, int num_slots, double cost_ns, const Body& body) {
  std::atomic<int64_t> next = 0;
  for_each_slot(num_slots, cost_ns * static_cast<double>(count), [&](int64_t slot) {
    for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) body(slot, i);
  });
}

/// The same in runs of neighbours, for bodies of which neighbours touch the same or adjacent cache
/// lines: on two cores at once they would take these from each other. Runs are long at first and
/// shorter towards the end, so that the slots end together.
template <class Body>
void for_each_run_in_slots(int64_t count, int num_slots, double cost_ns, const Body& body) {
  std::atomic<int64_t> next = 0;
  for_each_slot(num_slots, cost_ns * static_cast<double>(count), [&](int64_t slot) {
    int64_t begin = next.load();
    while (begin < count) {
      const int64_t end = begin + std::max<int64_t>(1, (count - begin) / (2 * num_slots));
      if (!next.compare_exchange_weak(begin, end)) continue;
      for (int64_t i = begin; i < end; ++i) body(slot, i);
      begin = next.load();
    }
  });
}

}  // namespace lucid::cpu

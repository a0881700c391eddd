// A parallel loop whose body owns one of a few slots of scratch memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "backends/cpu/threads/team.h"

namespace lucid::cpu {

/// Calls `body(slot, index)` for every index below `count`, with 0 <= slot < num_slots; no slot is
/// used by two calls at once. `cost_ns` is the work of one index on one core.
template <class Body>
void for_each_in_slots(int64_t count, int num_slots, double cost_ns, const Body& body) {
  std::atomic<int64_t> next = 0;
  const double slot_cost_ns = cost_ns * static_cast<double>(count) / num_slots;
  parallel_for(num_slots, 1, slot_cost_ns, [&](int64_t begin, int64_t end) {
    for (int64_t slot = begin; slot < end; ++slot) {
      for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) body(slot, i);
    }
  });
}

}  // namespace lucid::cpu

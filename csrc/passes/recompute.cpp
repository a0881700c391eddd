#include "passes/recompute.h"

namespace lucid::passes {

Repeats repeats(const MemoryModel& model, const Order& order) {
  Repeats result;
  std::vector<bool> has_run(model.work().size(), false);
  for (const uint32_t place : order) {
    if (has_run[place]) {
      result.cost += model.work(place).cost;
      ++result.count;
    }
    has_run[place] = true;
  }
  return result;
}

}  // namespace lucid::passes

// Recomputation: values that are dropped and made again later, so that a step needs less memory.
#pragma once

#include <cstdint>
#include <optional>

#include "passes/memory_model.h"
#include "passes/order.h"

namespace lucid::passes {

/// An order in which values are made again where that costs no time: light work, such as
/// element-wise functions and normalisations, on values that are kept anyhow, of which the result
/// would come back from memory because the caches have lost it between two uses.
Order recompute_cheap(const MemoryModel& model);

/// How a value is chosen that is dropped: the one of the least
/// effort / (bytes * (distance to the next read) ^ distance_power).
struct EvictionPolicy {
  enum class Power : uint8_t { kNone, kRoot, kOne };
  Power distance_power = Power::kNone;
  /// The effort includes that of dropped values which are made from this one.
  bool counts_dependents = false;
};

/// An order in which live values and scratch take no more than the budget, as far as the policy
/// finds one: where no value is left to drop the budget is passed. Nothing if that would repeat
/// too much. The step is gone through once; a value is dropped when room is needed and made again,
/// with what it is made from, when it is read (Kirisame et al. 2021, arXiv:2006.09616, with reads
/// that are known in advance).
std::optional<Order> evict(const MemoryModel& model, int64_t budget_bytes, EvictionPolicy policy);

/// The order without those repeats that the budget has room for, the most expensive tried first,
/// and without runs that nobody reads.
Order keep_what_fits(const MemoryModel& model, Order order, int64_t budget_bytes);

/// Cost of the repeats of an order, and their number.
struct Repeats {
  ops::Cost cost;
  int64_t count = 0;
};
Repeats repeats(const MemoryModel& model, const Order& order);

}  // namespace lucid::passes

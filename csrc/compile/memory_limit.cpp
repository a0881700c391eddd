#include "compile/memory_limit.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "passes/recompute.h"
#include "passes/schedule.h"

namespace lucid::compile {
namespace {

using passes::EvictionPolicy;
using passes::Order;
using Power = EvictionPolicy::Power;

// Short-sighted ones drop the cheapest values; those that look at distances hold out longer.
constexpr std::array kPolicies = {
    EvictionPolicy{Power::kNone, false}, EvictionPolicy{Power::kRoot, false},
    EvictionPolicy{Power::kOne, false},  EvictionPolicy{Power::kNone, true},
    EvictionPolicy{Power::kRoot, true},  EvictionPolicy{Power::kOne, true},
};
// Plans that are laid out exactly near the limit, before the search goes down step by step.
constexpr int kMaxPlans = 16;
// Each step aims at so much of the one before; they end after so many that brought nothing.
constexpr double kRung = 0.9;
constexpr double kSmallRung = 0.98;
constexpr int kMaxVainRungs = 4;

struct Candidate {
  size_t policy = 0;
  int64_t budget_bytes = 0;
  double effort = 0;
  Order order;
};

// A graph, the bytes of scratch of its nodes, and those that the planner gives it.
struct Planned {
  ir::Graph graph;
  std::vector<int64_t> scratch_sizes;
  int64_t peak = 0;
};

// The graph of an order, laid out; `scratch_sizes` are those of the nodes of `graph`.
Planned laid_out(const ir::Graph& graph, const passes::MemoryModel& model, const Order& order,
                 std::span<const int64_t> scratch_sizes, const ArenaOf& arena_of) {
  Planned result{passes::reordered(graph, model, order), {}, 0};
  std::vector<int64_t>& sizes = result.scratch_sizes;
  sizes.reserve(result.graph.nodes().size());
  size_t step = 0;
  for (const ir::Node& node : result.graph.nodes()) {
    sizes.push_back(node.op->is(ir::kAlias) ? 0 : scratch_sizes[order[step++]]);
  }
  result.peak = arena_of(result.graph, sizes);
  return result;
}

bool is_longer(const passes::MemoryModel& model, const Order& order) {
  return order.size() > passes::original_order(model).size();
}

// A graph in which every node runs once, and what it becomes without a limit.
struct Base {
  Planned plain;
  Planned free;
};

Planned with_cheap_repeats(const Planned& plain, const ArenaOf& arena_of) {
  const passes::MemoryModel model(plain.graph, plain.scratch_sizes);
  const Order order = passes::recompute_cheap(model);
  if (!is_longer(model, order)) return plain;
  Planned repeated = laid_out(plain.graph, model, order, plain.scratch_sizes, arena_of);
  return repeated.peak < plain.peak ? std::move(repeated) : plain;
}

// The graph as it is and, if that is another one, in the order that was scheduled.
std::vector<Base> bases_of(const ir::Graph& graph, const passes::MemoryModel& model,
                           const Order& scheduled, std::span<const int64_t> scratch_sizes,
                           const ArenaOf& arena_of) {
  std::vector<Base> bases;
  const auto add = [&](Planned plain) {
    Planned free = with_cheap_repeats(plain, arena_of);
    bases.push_back({std::move(plain), std::move(free)});
  };
  add({graph, {scratch_sizes.begin(), scratch_sizes.end()}, arena_of(graph, scratch_sizes)});
  if (scheduled != passes::original_order(model)) {
    add(laid_out(graph, model, scheduled, scratch_sizes, arena_of));
  }
  return bases;
}

// Of equal ones the graph as it is.
const Planned& smallest(const std::vector<Base>& bases) {
  const auto peak = [](const Base& base) { return base.free.peak; };
  return std::ranges::min_element(bases, {}, peak)->free;
}

class Search {
 public:
  Search(const Base& base, int64_t limit_bytes, const ArenaOf& arena_of, Recomputation& done)
      : graph_(base.plain.graph),
        scratch_sizes_(base.plain.scratch_sizes),
        model_(graph_, scratch_sizes_),
        free_peak_(base.free.peak),
        limit_bytes_(limit_bytes),
        arena_of_(arena_of),
        done_(done) {}

  std::optional<ir::Graph> run() {
    for (size_t policy = 0; policy < kPolicies.size(); ++policy) open(policy, limit_bytes_);
    for (int i = 0; i < kMaxPlans && !candidates_.empty(); ++i) {
      const Candidate candidate = take_cheapest();
      Planned planned = laid_out(candidate.order);
      if (planned.peak <= limit_bytes_) return finished(candidate, std::move(planned));
      // The layout has gaps, or the policy found no more to drop: aim lower by as much.
      const int64_t excess = planned.peak - limit_bytes_;
      open(candidate.policy, candidate.budget_bytes - std::max(excess, limit_bytes_ / 128));
    }
    return go_down();
  }

  /// The smallest peak that was found, if none keeps to the limit.
  int64_t smallest() const { return smallest_; }

 private:
  // Looks for an order within the budget; the policy has none if it repeats too much.
  void open(size_t policy, int64_t budget_bytes) {
    if (budget_bytes <= 0) return;
    std::optional<Order> order = passes::evict(model_, budget_bytes, kPolicies[policy]);
    if (!order) return;
    *order = passes::keep_what_fits(model_, std::move(*order), budget_bytes);
    const double effort = passes::repeats(model_, *order).cost.effort();
    candidates_.push_back({policy, budget_bytes, effort, std::move(*order)});
  }

  Candidate take_cheapest() {
    const auto cheapest = std::ranges::min_element(candidates_, {}, &Candidate::effort);
    Candidate taken = std::move(*cheapest);
    candidates_.erase(cheapest);
    return taken;
  }

  Planned laid_out(const Order& order) const {
    return compile::laid_out(graph_, model_, order, scratch_sizes_, arena_of_);
  }

  ir::Graph finished(const Candidate& candidate, Planned planned) {
    const passes::Repeats repeats = passes::repeats(model_, candidate.order);
    done_.peak = planned.peak;
    done_.num_repeated = repeats.count;
    done_.repeated = repeats.cost;
    return std::move(planned.graph);
  }

  // Goes down from the peak without a limit, then from the best budget in small steps. Neither
  // depends on the limit: the peak that a message names is reached when it is asked for.
  std::optional<ir::Graph> go_down() {
    smallest_ = free_peak_;
    best_budget_ = static_cast<double>(free_peak_);
    int num_vain = 0;
    for (double budget = kRung * best_budget_; num_vain < kMaxVainRungs; budget *= kRung) {
      const int64_t before = smallest_;
      if (auto found = try_budget(budget)) return found;
      num_vain = smallest_ < before ? 0 : num_vain + 1;
    }
    const double highest = best_budget_;
    for (double budget = highest; budget > kRung * kRung * highest; budget *= kSmallRung) {
      if (auto found = try_budget(budget)) return found;
    }
    return std::nullopt;
  }

  // Lays out what every policy makes of a budget, the cheapest first; the first that fits.
  std::optional<ir::Graph> try_budget(double budget) {
    candidates_.clear();
    for (size_t policy = 0; policy < kPolicies.size(); ++policy) {
      open(policy, static_cast<int64_t>(budget));
    }
    while (!candidates_.empty()) {
      const Candidate candidate = take_cheapest();
      Planned planned = laid_out(candidate.order);
      if (planned.peak <= limit_bytes_) return finished(candidate, std::move(planned));
      if (planned.peak >= smallest_) continue;
      smallest_ = planned.peak;
      best_budget_ = budget;
    }
    return std::nullopt;
  }

  const ir::Graph& graph_;
  std::span<const int64_t> scratch_sizes_;
  passes::MemoryModel model_;
  const int64_t free_peak_;
  const int64_t limit_bytes_;
  const ArenaOf& arena_of_;
  Recomputation& done_;
  std::vector<Candidate> candidates_;
  int64_t smallest_ = 0;    // peak that going down has reached
  double best_budget_ = 0;  // and the budget that it was aimed at
};

}  // namespace

LimitError::LimitError(int64_t limit, int64_t smallest, int64_t before)
    : Error(ErrorKind::kUser, "make_step: memory_limit=" + std::to_string(limit) +
                                  " bytes cannot be met: the smallest peak found is " +
                                  std::to_string(smallest) + " bytes, against " +
                                  std::to_string(before) +
                                  " without a limit; raise the limit or make the batch smaller"),
      smallest_(smallest),
      before_(before) {}

ir::Graph save_memory(ir::Graph graph, const ScratchOf& scratch_of, const ArenaOf& arena_of) {
  const std::vector<int64_t> no_scratch(graph.nodes().size(), 0);
  const passes::MemoryModel model(graph, no_scratch);
  const Order scheduled = passes::schedule(graph, model);
  const bool stays = scheduled == passes::original_order(model) &&
                     !is_longer(model, passes::recompute_cheap(model));
  if (stays) return graph;
  const std::vector<Base> bases = bases_of(graph, model, scheduled, scratch_of(graph), arena_of);
  return smallest(bases).graph;
}

ir::Graph fit_memory(const ir::Graph& graph, std::span<const int64_t> scratch_sizes,
                     int64_t limit_bytes, const ArenaOf& arena_of, Recomputation& done) {
  const passes::MemoryModel model(graph, scratch_sizes);
  for (const passes::Work& work : model.work()) done.whole += work.cost;
  std::vector<Base> bases =
      bases_of(graph, model, passes::schedule(graph, model), scratch_sizes, arena_of);
  const Planned& free = smallest(bases);
  done.peak_before = done.peak = free.peak;
  if (free.peak <= limit_bytes) return free.graph;
  // A schedule saves most where a limit leaves little else alive: it goes first if it is as good.
  int64_t least = free.peak;
  std::ranges::reverse(bases);
  std::ranges::stable_sort(bases, {}, [](const Base& base) { return base.free.peak; });
  for (const Base& base : bases) {
    Search search(base, limit_bytes, arena_of, done);
    if (auto found = search.run()) return std::move(*found);
    least = std::min(least, search.smallest());
  }
  throw LimitError(limit_bytes, least, done.peak_before);
}

}  // namespace lucid::compile

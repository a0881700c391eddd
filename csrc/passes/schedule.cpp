#include "passes/schedule.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace lucid::passes {
namespace {

// Element-wise neighbours move together, so that a backend can fuse them; of a longer run, so many.
constexpr size_t kMaxMembers = 64;

// Nodes that move as one. A storage lives from the first unit that opens it to the last that closes
// it: from its producer to its readers, or backwards from its readers to its producer.
struct Unit {
  std::vector<uint32_t> nodes;
  std::vector<uint32_t> opens;
  std::vector<uint32_t> closes;
  bool may_move = true;
};

class Grouping {
 public:
  Grouping(const ir::Graph& graph, const MemoryModel& model)
      : graph_(graph), model_(model), unit_of_(model.work().size(), 0) {}

  std::vector<Unit> run() {
    for (const uint32_t node : original_order(model_)) {
      if (!joins_last(node)) units_.emplace_back();
      units_.back().nodes.push_back(node);
      unit_of_[node] = units_.size() - 1;
    }
    for (size_t i = 0; i < units_.size(); ++i) describe(i);
    return std::move(units_);
  }

 private:
  bool joins_last(uint32_t node) const {
    if (units_.empty() || units_.back().nodes.size() == kMaxMembers) return false;
    const uint32_t last = units_.back().nodes.back();
    return is_elementwise(last) && is_elementwise(node) && shape(last) == shape(node);
  }
  bool is_elementwise(uint32_t node) const { return graph_.nodes()[node].op->is(ir::kElementwise); }
  const Shape& shape(uint32_t node) const {
    return graph_.type(graph_.nodes()[node].outputs.front()).shape;
  }

  bool is_own(size_t unit, uint32_t node) const { return unit_of_[node] == unit; }

  void describe(size_t place) {
    Unit& unit = units_[place];
    for (const uint32_t node : unit.nodes) {
      const Work& work = model_.work(node);
      unit.may_move = unit.may_move && work.is_repeatable;
      for (const uint32_t read : work.reads) {
        const int producer = model_.storage(read).producer;
        if (producer >= 0 && is_own(place, static_cast<uint32_t>(producer))) continue;
        unit.closes.push_back(read);
      }
      for (const uint32_t made : work.makes) {
        const auto& readers = model_.storage(made).readers;
        const bool leaves =
            std::ranges::any_of(readers, [&](uint32_t reader) { return !is_own(place, reader); });
        if (leaves) unit.opens.push_back(made);
      }
    }
    std::ranges::sort(unit.closes);
    unit.closes.erase(std::ranges::unique(unit.closes).begin(), unit.closes.end());
  }

  const ir::Graph& graph_;
  const MemoryModel& model_;
  std::vector<Unit> units_;
  std::vector<size_t> unit_of_;  // by node
};

// Takes units in their order, but each that leaves no more memory alive as soon as it can run. A
// unit waits until whatever it closes is open.
class Sweep {
 public:
  // The first `num_fixed` units stay where they are.
  Sweep(const MemoryModel& model, std::vector<Unit> units, size_t num_fixed)
      : units_(std::move(units)),
        num_fixed_(num_fixed),
        lives_(model.num_storages()),
        growths_(units_.size(), 0),
        num_awaited_(units_.size(), 0),
        is_done_(units_.size(), false) {
    for (uint32_t i = 0; i < units_.size(); ++i) {
      for (const uint32_t id : units_[i].opens) lives_[id].openers.push_back(i);
      for (const uint32_t id : units_[i].closes) lives_[id].closers.push_back(i);
    }
    for (uint32_t id = 0; id < lives_.size(); ++id) {
      Life& life = lives_[id];
      life.num_unopened = life.openers.size();
      life.num_unclosed = life.closers.size();
      if (life.num_unopened == 0 || life.num_unclosed == 0) continue;
      const Storage& storage = model.storage(id);
      if (storage.in_arena) life.size_bytes = storage.size_bytes;
      for (const uint32_t unit : life.openers) growths_[unit] += life.size_bytes;
      for (const uint32_t unit : life.closers) ++num_awaited_[unit];
    }
  }

  std::vector<Unit> run() {
    for (uint32_t i = 0; i < units_.size(); ++i) consider(i);
    for (uint32_t next = 0; next < units_.size();) {
      if (next >= num_fixed_ && !ready_.empty()) {
        take(*ready_.begin());
      } else if (is_done_[next]) {
        ++next;
      } else {
        take(next);
      }
    }
    return std::move(result_);
  }

 private:
  struct Life {
    std::vector<uint32_t> openers;
    std::vector<uint32_t> closers;
    size_t num_unopened = 0;
    size_t num_unclosed = 0;
    int64_t size_bytes = 0;  // in the arena
    bool is_open = false;
  };

  void consider(uint32_t unit) {
    if (is_done_[unit] || num_awaited_[unit] > 0 || !units_[unit].may_move) return;
    if (growths_[unit] <= 0) ready_.insert(unit);
  }

  // Units that open what is open by now, or are the last to close it, leave less alive.
  void shrink(const std::vector<uint32_t>& units, int64_t bytes) {
    for (const uint32_t unit : units) {
      growths_[unit] -= bytes;
      consider(unit);
    }
  }

  void take(uint32_t unit) {
    is_done_[unit] = true;
    ready_.erase(unit);
    for (const uint32_t id : units_[unit].opens) {
      Life& life = lives_[id];
      if (life.closers.empty()) continue;  // backwards, an input of the graph
      if (!std::exchange(life.is_open, true)) shrink(life.openers, life.size_bytes);
      if (--life.num_unopened > 0) continue;
      for (const uint32_t closer : life.closers) --num_awaited_[closer];
      shrink(life.closers, life.num_unclosed == 1 ? life.size_bytes : 0);
    }
    for (const uint32_t id : units_[unit].closes) {
      Life& life = lives_[id];
      if (--life.num_unclosed == 1) shrink(life.closers, life.size_bytes);
    }
    result_.push_back(std::move(units_[unit]));
  }

  std::vector<Unit> units_;
  const size_t num_fixed_;
  std::vector<Life> lives_;          // by storage
  std::vector<int64_t> growths_;     // by unit: bytes that live after it, less those before it
  std::vector<size_t> num_awaited_;  // by unit: storages that are not open yet
  std::vector<bool> is_done_;        // by unit
  std::set<uint32_t> ready_;
  std::vector<Unit> result_;
};

std::vector<Unit> reversed(std::vector<Unit> units) {
  std::ranges::reverse(units);
  for (Unit& unit : units) std::swap(unit.opens, unit.closes);
  return units;
}

// Units at the end that are element-wise: updates, which may be written into buffers that the run
// was given as long as nothing that can fail comes after them.
size_t count_updates(const ir::Graph& graph, const std::vector<Unit>& units) {
  size_t count = 0;
  for (size_t i = units.size(); i-- > 0; ++count) {
    if (!graph.nodes()[units[i].nodes.back()].op->is(ir::kElementwise)) break;
  }
  return count;
}

}  // namespace

Order schedule(const ir::Graph& graph, const MemoryModel& model) {
  std::vector<Unit> units = Grouping(graph, model).run();
  const size_t num_updates = count_updates(graph, units);
  for (size_t i = units.size() - num_updates; i < units.size(); ++i) units[i].may_move = false;
  units = reversed(Sweep(model, reversed(std::move(units)), num_updates).run());
  units = Sweep(model, std::move(units), 0).run();
  Order order;
  for (const Unit& unit : units) std::ranges::copy(unit.nodes, std::back_inserter(order));
  return order;
}

}  // namespace lucid::passes

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <utility>

#include "passes/recompute.h"

namespace lucid::passes {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();
constexpr double kImpossible = std::numeric_limits<double>::infinity();
// A chain of dropped values that is longer is not made anew: it bounds search and recursion.
constexpr size_t kMaxChain = 512;
// Repeats may cost so many times the step itself before a search is given up.
constexpr double kMaxRepeatedEffort = 3.0;
constexpr size_t kMaxLength = 8;

// Goes through the step once and decides what is in memory when.
class Evictor {
 public:
  Evictor(const MemoryModel& model, int64_t budget_bytes, EvictionPolicy policy)
      : model_(model),
        budget_bytes_(budget_bytes),
        policy_(policy),
        states_(model.num_storages()),
        visits_(model.num_storages(), 0),
        node_visits_(model.work().size(), 0) {}

  std::optional<Order> run() {
    for (size_t place = 0; place < model_.work().size(); ++place) {
      if (model_.work(place).is_alias) continue;
      now_ = static_cast<int>(place);
      execute(place);
      if (gave_up_) return std::nullopt;
      pass_reads(place);
    }
    return std::move(order_);
  }

 private:
  struct State {
    bool is_resident = false;
    bool is_computed = false;
    bool is_missed = false;   // dropped, and needed again
    int missed_children = 0;  // missed values whose makers read it
    int locks = 0;            // nodes about to run that read it
    size_t next_reader = 0;   // place among the storage's readers
    uint32_t stamp = 0;       // of its newest entry in the queue
  };
  struct Entry {
    double key;
    uint32_t storage;
    uint32_t stamp;
    bool operator<(const Entry& other) const {  // the least key is the queue's top
      return key != other.key ? key > other.key : storage > other.storage;
    }
  };

  const Storage& storage(uint32_t id) const { return model_.storage(id); }

  bool is_present(uint32_t id) const { return !storage(id).in_arena || states_[id].is_resident; }

  // Node that reads the storage next.
  int next_read(uint32_t id) const {
    const auto& readers = storage(id).readers;
    const size_t next = states_[id].next_reader;
    return next < readers.size() ? static_cast<int>(readers[next]) : kNever;
  }

  // ------------------------------------------------------------ running

  void execute(size_t place) {
    const Work& work = model_.work(place);
    for (const uint32_t read : work.reads) ++states_[read].locks;
    for (const uint32_t read : work.reads) {
      if (!is_present(read) && !gave_up_) repeat(static_cast<size_t>(storage(read).producer));
    }
    if (gave_up_) return;
    const std::optional<uint32_t> taken = taken_over(work);
    make_room(bytes_needed(work, taken));
    order_.push_back(static_cast<uint32_t>(place));
    if (taken) release(*taken);  // it is not missed: this read was its last
    for (const uint32_t made : work.makes) {
      states_[made].is_computed = true;
      if (storage(made).in_arena) keep(made);
    }
    for (const uint32_t read : work.reads) {
      --states_[read].locks;
      offer(read);
    }
  }

  void repeat(size_t place) {
    repeated_effort_ += model_.work(place).cost.effort();
    gave_up_ = gave_up_ || !model_.work(place).is_repeatable ||
               repeated_effort_ > kMaxRepeatedEffort * model_.effort() ||
               order_.size() > kMaxLength * model_.work().size();
    if (gave_up_) return;
    execute(place);
    for (const uint32_t made : model_.work(place).makes) {
      const bool is_wanted = states_[made].locks > 0 || is_needed(made);
      if (states_[made].is_resident && !is_wanted) drop(made);
    }
  }

  // An operand whose memory the first output takes: this is its last use.
  std::optional<uint32_t> taken_over(const Work& work) const {
    if (!work.overwrites) return std::nullopt;
    const uint32_t id = *work.overwrites;
    const State& state = states_[id];
    if (!storage(id).in_arena || state.locks > 1 || !state.is_resident) return std::nullopt;
    const auto& readers = storage(id).readers;
    const size_t later = state.next_reader + (next_read(id) == now_ ? 1 : 0);
    if (later != readers.size() || state.missed_children > 0) return std::nullopt;
    return work.overwrites;
  }

  int64_t bytes_needed(const Work& work, std::optional<uint32_t> taken) const {
    int64_t bytes = work.scratch_bytes;
    for (const uint32_t made : work.makes) {
      const bool is_result = !storage(made).in_arena && !states_[made].is_computed;
      if (!is_result) bytes += storage(made).size_bytes;
    }
    return taken ? bytes - storage(*taken).size_bytes : bytes;
  }

  void keep(uint32_t id) {
    if (!states_[id].is_resident) used_bytes_ += storage(id).size_bytes;
    states_[id].is_resident = true;
    update_missed(id);
    offer(id);
    // What it is made from, and what is made from it, is cheaper to drop now.
    for (const uint32_t read : model_.work(producer(id)).reads) offer(read);
    for (const uint32_t reader : storage(id).readers) {
      for (const uint32_t made : model_.work(reader).makes) offer(made);
    }
  }

  void release(uint32_t id) {
    used_bytes_ -= storage(id).size_bytes;
    states_[id].is_resident = false;
  }

  void drop(uint32_t id) {
    release(id);
    update_missed(id);
  }

  bool is_needed(uint32_t id) const {
    return next_read(id) != kNever || states_[id].missed_children > 0;
  }

  // Brings is_missed up to date, and that of dropped values which this one is made from.
  void update_missed(uint32_t first) {
    std::vector<uint32_t> open = {first};
    while (!open.empty()) {
      const uint32_t id = open.back();
      open.pop_back();
      State& state = states_[id];
      const bool is_missed = state.is_computed && !is_present(id) && is_needed(id);
      if (std::exchange(state.is_missed, is_missed) == is_missed) continue;
      for (const uint32_t read : model_.work(producer(id)).reads) {
        states_[read].missed_children += is_missed ? 1 : -1;
        if (!is_present(read)) open.push_back(read);
      }
    }
  }

  // The node has run in its own place: its reads have one reader less to come.
  void pass_reads(size_t place) {
    const Work& work = model_.work(place);
    for (const uint32_t read : work.reads) {
      ++states_[read].next_reader;
      update_missed(read);
      offer(read);
    }
  }

  size_t producer(uint32_t id) const { return static_cast<size_t>(storage(id).producer); }

  // ------------------------------------------------------------ choosing

  // The first node that needs the storage: to read it, or to make a missed value anew.
  int next_need(uint32_t id) const {
    int first = next_read(id);
    for_missed_dependents(id, [&](uint32_t child) { first = std::min(first, next_read(child)); });
    return first;
  }

  // Missed values that are made from this one, directly or through other missed ones.
  template <class Visit>
  void for_missed_dependents(uint32_t id, Visit visit) const {
    if (states_[id].missed_children == 0) return;
    ++visit_;
    open_.assign(1, id);
    for (size_t i = 0; i < open_.size() && i < kMaxChain; ++i) {
      if (states_[open_[i]].missed_children == 0) continue;
      for (const uint32_t reader : storage(open_[i]).readers) {
        for (const uint32_t made : model_.work(reader).makes) {
          const bool is_new = states_[made].is_missed && visits_[made] != visit_;
          if (!is_new) continue;
          visits_[made] = visit_;
          open_.push_back(made);
          visit(made);
        }
      }
    }
  }

  // Effort of making a value anew; if it is more than `bound`, some number above it.
  double effort_to_repeat(uint32_t id, double bound) const {
    ++visit_;
    double effort = 0;
    open_.assign(1, static_cast<uint32_t>(storage(id).producer));
    node_visits_[open_.front()] = visit_;
    for (size_t i = 0; i < open_.size(); ++i) {
      const Work& work = model_.work(open_[i]);
      effort += work.cost.effort();
      if (!work.is_repeatable || i >= kMaxChain) return kImpossible;
      if (effort > bound) return effort;
      for (const uint32_t read : work.reads) {
        if (is_present(read)) continue;
        const auto maker = static_cast<uint32_t>(storage(read).producer);
        if (std::exchange(node_visits_[maker], visit_) != visit_) open_.push_back(maker);
      }
    }
    if (!policy_.counts_dependents) return effort;
    for_missed_dependents(
        id, [&](uint32_t child) { effort += model_.work(producer(child)).cost.effort(); });
    return effort;
  }

  double key(uint32_t id, double bound) const {
    if (!is_needed(id)) return 0;
    const int need = next_need(id);
    double weight = static_cast<double>(storage(id).size_bytes);
    const double distance = std::max(1, need - now_);
    if (policy_.distance_power == EvictionPolicy::Power::kOne) weight *= distance;
    if (policy_.distance_power == EvictionPolicy::Power::kRoot) weight *= std::sqrt(distance);
    return effort_to_repeat(id, bound * weight) / weight;
  }

  // Puts a value into the queue with what dropping it costs now.
  void offer(uint32_t id) {
    const Storage& offered = storage(id);
    State& state = states_[id];
    if (!offered.in_arena || !state.is_resident || offered.size_bytes == 0) return;
    ++state.stamp;
    queue_.push({0, id, state.stamp});  // a key is worked out when it comes to the top
  }

  void make_room(int64_t bytes) {
    while (used_bytes_ + bytes > budget_bytes_ && drop_one()) {
    }
  }

  // Drops the value of the least key. Keys in the queue are lower bounds, as long as nothing was
  // made anew near them; the true one is worked out for the top only.
  bool drop_one() {
    std::vector<Entry> locked;
    bool has_dropped = false;
    while (!queue_.empty() && !has_dropped) {
      Entry entry = queue_.top();
      queue_.pop();
      const State& state = states_[entry.storage];
      if (entry.stamp != state.stamp || !state.is_resident) continue;
      if (state.locks > 0) {
        locked.push_back(entry);
        continue;
      }
      entry.key = key(entry.storage, queue_.empty() ? kImpossible : queue_.top().key);
      if (entry.key == kImpossible) continue;  // offered again when it is next read
      if (!queue_.empty() && entry < queue_.top()) {
        queue_.push(entry);
        continue;
      }
      drop(entry.storage);
      has_dropped = true;
    }
    for (const Entry& entry : locked) queue_.push(entry);
    return has_dropped;
  }

  const MemoryModel& model_;
  const int64_t budget_bytes_;
  const EvictionPolicy policy_;
  int now_ = 0;  // node of the step that is to run
  int64_t used_bytes_ = 0;
  double repeated_effort_ = 0;
  bool gave_up_ = false;
  std::vector<State> states_;
  std::priority_queue<Entry> queue_;
  Order order_;
  // Marks of the walks over dropped values.
  mutable std::vector<uint32_t> visits_;       // by storage
  mutable std::vector<uint32_t> node_visits_;  // by node
  mutable std::vector<uint32_t> open_;
  mutable uint32_t visit_ = 0;
};

}  // namespace

std::optional<Order> evict(const MemoryModel& model, int64_t budget_bytes, EvictionPolicy policy) {
  return Evictor(model, budget_bytes, policy).run();
}

}  // namespace lucid::passes

#include <algorithm>
#include <optional>
#include <utility>

#include "passes/recompute.h"

namespace lucid::passes {
namespace {

constexpr uint32_t kNone = ~0u;
// When so many bytes went by since the last use of a value, the caches have lost it.
constexpr double kCacheBytes = 32e6;
// Smaller values are left alone.
constexpr int64_t kLeastBytes = 1 << 16;
// A node that does at most so many operations for a byte waits for memory, not for arithmetic.
constexpr double kMostFlopsPerByte = 4;
// Operations in the time in which a byte moves between caches and cores, and to or from memory.
constexpr double kFlopsPerCachedByte = 4;
constexpr double kFlopsPerMemoryByte = 8;
constexpr size_t kMaxChain = 4;

// Decides which values are dropped, and before which node each is made again.
class CheapDropper {
 public:
  explicit CheapDropper(const MemoryModel& model)
      : model_(model),
        made_before_(model.work().size()),
        back_(model.num_storages(), kNone),
        moved_(model.work().size() + 1, 0) {
    for (size_t i = 0; i < model.work().size(); ++i) {
      moved_[i + 1] = moved_[i] + model.work(i).cost.bytes;
    }
  }

  Order run() {
    for (size_t place = 0; place < model_.work().size(); ++place) {
      for (const uint32_t made : model_.work(place).makes) consider(made);
    }
    Order order;
    for (size_t place = 0; place < model_.work().size(); ++place) {
      if (model_.work(place).is_alias) continue;
      order.insert(order.end(), made_before_[place].begin(), made_before_[place].end());
      order.push_back(static_cast<uint32_t>(place));
    }
    return order;
  }

 private:
  // Bytes that nodes between the two move.
  double moved_between(uint32_t first, uint32_t second) const {
    return moved_[second] - moved_[first + 1];
  }

  void consider(uint32_t id) {
    const Storage& storage = model_.storage(id);
    if (!storage.in_arena || storage.size_bytes < kLeastBytes) return;
    const uint32_t place = return_of(storage);
    if (place == kNone) return;
    std::optional<Order> chain = chain_for(id, place);
    if (!chain) return;
    // A node of several results may be there already, for another of them.
    Order& before = made_before_[place];
    std::erase_if(*chain, [&](uint32_t node) { return std::ranges::count(before, node) > 0; });
    if (effort_of(*chain, place) > effort_saved(storage)) return;
    back_[id] = place;
    // Values that a later one is made from come first: they were considered before it.
    before.insert(before.end(), chain->begin(), chain->end());
  }

  // The reader before which most is moved since the value was used, if the caches have lost it.
  uint32_t return_of(const Storage& storage) const {
    auto last = static_cast<uint32_t>(storage.producer);
    uint32_t found = kNone;
    double most = kCacheBytes;
    for (const uint32_t reader : storage.readers) {
      const double moved = moved_between(last, reader);
      if (moved > most) {
        most = moved;
        found = reader;
      }
      last = reader;
    }
    return found;
  }

  // A value that is in memory when that node runs, whatever is decided here.
  bool is_kept_until(uint32_t id, uint32_t place) const {
    const Storage& storage = model_.storage(id);
    if (!storage.in_arena) return true;
    if (back_[id] != kNone && place < back_[id]) return false;
    return !storage.readers.empty() && storage.readers.back() >= place;
  }

  // The nodes that make a value anew from what is kept, in order; values that died on the way are
  // made again with it, those that were dropped here are not.
  std::optional<Order> chain_for(uint32_t id, uint32_t place) const {
    Order chain = {static_cast<uint32_t>(model_.storage(id).producer)};
    for (size_t i = 0; i < chain.size(); ++i) {
      const Work& work = model_.work(chain[i]);
      const bool is_light = work.cost.busy_flops <= kMostFlopsPerByte * work.cost.bytes;
      if (!work.is_repeatable || !is_light || chain.size() > kMaxChain) return std::nullopt;
      for (const uint32_t read : work.reads) {
        if (is_kept_until(read, place)) continue;
        if (back_[read] != kNone) return std::nullopt;
        const auto maker = static_cast<uint32_t>(model_.storage(read).producer);
        if (std::ranges::find(chain, maker) == chain.end()) chain.push_back(maker);
      }
    }
    std::ranges::sort(chain);
    return chain;
  }

  // Only the last value and what is read from outside move; the rest stays in the caches.
  double effort_of(const Order& chain, uint32_t place) const {
    if (chain.empty()) return 0;
    double effort = 0;
    std::vector<uint32_t> seen;
    for (const uint32_t node : chain) {
      const Work& work = model_.work(node);
      effort += work.cost.busy_flops;
      seen.insert(seen.end(), work.makes.begin(), work.makes.end());
      for (const uint32_t read : work.reads) {
        if (std::ranges::find(seen, read) != seen.end()) continue;
        seen.push_back(read);
        effort += effort_to_read(read, place);
      }
    }
    for (const uint32_t made : model_.work(chain.back()).makes) {
      effort += kFlopsPerCachedByte * static_cast<double>(model_.storage(made).size_bytes);
    }
    return effort;
  }

  // What the nodes nearby read as well comes from memory only once.
  double effort_to_read(uint32_t id, uint32_t place) const {
    const Storage& storage = model_.storage(id);
    const auto next = std::ranges::lower_bound(storage.readers, place);
    const bool is_near = next != storage.readers.end() &&
                         moved_between(place, std::max(*next, place + 1)) < kCacheBytes;
    const double per_byte = is_near ? kFlopsPerCachedByte : kFlopsPerMemoryByte;
    return per_byte * static_cast<double>(storage.size_bytes);
  }

  // The value goes to memory and comes back no more.
  static double effort_saved(const Storage& storage) {
    return 2 * kFlopsPerMemoryByte * static_cast<double>(storage.size_bytes);
  }

  const MemoryModel& model_;
  std::vector<Order> made_before_;  // by node: what is made again before it runs
  std::vector<uint32_t> back_;      // by storage: the node before which it is made again
  std::vector<double> moved_;       // bytes of all nodes before that one
};

}  // namespace

Order recompute_cheap(const MemoryModel& model) { return CheapDropper(model).run(); }

}  // namespace lucid::passes

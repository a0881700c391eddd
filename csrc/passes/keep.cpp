#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "passes/recompute.h"

namespace lucid::passes {
namespace {

constexpr int kMaxRounds = 4;
constexpr uint32_t kNone = ~0u;

// Numbers by place: adds to a range, and asks for the greatest of a range, in O(log n).
class Profile {
 public:
  explicit Profile(const std::vector<int64_t>& values)
      : size_(std::bit_ceil(std::max<size_t>(values.size(), 1))),
        highest_(2 * size_, 0),
        added_(2 * size_, 0) {
    std::ranges::copy(values, highest_.begin() + static_cast<int64_t>(size_));
    for (size_t i = size_ - 1; i > 0; --i) {
      highest_[i] = std::max(highest_[2 * i], highest_[2 * i + 1]);
    }
  }

  /// Places [begin, end).
  void add(size_t begin, size_t end, int64_t value) { add(1, 0, size_, begin, end, value); }
  int64_t highest(size_t begin, size_t end) const { return highest(1, 0, size_, begin, end); }

 private:
  void add(size_t node, size_t low, size_t high, size_t begin, size_t end, int64_t value) {
    if (end <= low || high <= begin) return;
    if (begin <= low && high <= end) {
      highest_[node] += value;
      added_[node] += value;
      return;
    }
    const size_t middle = (low + high) / 2;
    add(2 * node, low, middle, begin, end, value);
    add(2 * node + 1, middle, high, begin, end, value);
    highest_[node] = std::max(highest_[2 * node], highest_[2 * node + 1]) + added_[node];
  }

  int64_t highest(size_t node, size_t low, size_t high, size_t begin, size_t end) const {
    if (end <= low || high <= begin) return 0;
    if (begin <= low && high <= end) return highest_[node];
    const size_t middle = (low + high) / 2;
    return std::max(highest(2 * node, low, middle, begin, end),
                    highest(2 * node + 1, middle, high, begin, end)) +
           added_[node];
  }

  size_t size_;
  std::vector<int64_t> highest_;
  std::vector<int64_t> added_;
};

// One value that a run of a node makes, and the steps of the order during which it lives.
struct Version {
  uint32_t storage = 0;
  size_t made = 0;
  size_t last_read = 0;
  bool is_read = false;
  bool is_overwritten = false;  // the last reader's output takes its memory
};

// Takes repeats out of an order, as long as the values they make can be kept instead.
class Keeper {
 public:
  Keeper(const MemoryModel& model, Order order, int64_t budget_bytes)
      : model_(model), order_(std::move(order)), budget_bytes_(budget_bytes) {}

  Order run() {
    is_gone_.assign(order_.size(), false);
    drop_unread();
    for (int round = 0; round < kMaxRounds; ++round) {
      find_versions();
      if (!keep_round()) break;
      drop_unread();
    }
    return std::move(order_);
  }

 private:
  // Versions of step i stand at [first_version_[i], first_version_[i + 1]).
  std::span<Version> versions(size_t step) {
    return std::span(versions_).subspan(first_version_[step],
                                        first_version_[step + 1] - first_version_[step]);
  }

  void find_versions() {
    versions_.clear();
    first_version_.assign(1, 0);
    earlier_.assign(order_.size(), kNone);
    std::vector<uint32_t> newest(model_.num_storages(), kNone);
    std::vector<uint32_t> newest_step(model_.work().size(), kNone);
    for (size_t step = 0; step < order_.size(); ++step) {
      const Work& work = model_.work(order_[step]);
      for (const uint32_t read : work.reads) {
        if (!model_.storage(read).in_arena) continue;
        Version& version = versions_[newest[read]];
        version.last_read = step;
        version.is_read = true;
      }
      for (const uint32_t made : work.makes) {
        newest[made] = static_cast<uint32_t>(versions_.size());
        versions_.push_back({.storage = made, .made = step, .last_read = step});
      }
      first_version_.push_back(versions_.size());
      earlier_[step] = std::exchange(newest_step[order_[step]], static_cast<uint32_t>(step));
    }
    note_overwritten(newest);
  }

  void note_overwritten(std::vector<uint32_t>& newest) {
    std::ranges::fill(newest, kNone);
    for (size_t step = 0; step < order_.size(); ++step) {
      const std::optional<uint32_t> taken = model_.work(order_[step]).overwrites;
      if (taken && model_.storage(*taken).in_arena && !is_result(step, 0)) {
        Version& version = versions_[newest[*taken]];
        version.is_overwritten = version.last_read == step;
      }
      for (size_t i = first_version_[step]; i < first_version_[step + 1]; ++i) {
        newest[versions_[i].storage] = static_cast<uint32_t>(i);
      }
    }
  }

  // A result of the graph, made in a buffer of its own; a later copy of it lives in the arena.
  bool is_result(size_t step, size_t output) {
    const uint32_t made = model_.work(order_[step]).makes[output];
    return !model_.storage(made).in_arena && earlier_[step] == kNone;
  }

  Profile profile() {
    std::vector<int64_t> changes(order_.size() + 1, 0);
    std::vector<int64_t> bytes(order_.size(), 0);
    for (size_t step = 0; step < order_.size(); ++step) {
      bytes[step] += model_.work(order_[step]).scratch_bytes;
      const std::span<Version> made = versions(step);
      for (size_t i = 0; i < made.size(); ++i) {
        if (is_result(step, i)) continue;
        const int64_t size = model_.storage(made[i].storage).size_bytes;
        changes[step] += size;
        changes[made[i].last_read + 1] -= size;
        if (made[i].is_overwritten) bytes[made[i].last_read] -= size;
      }
    }
    int64_t live = 0;
    for (size_t step = 0; step < order_.size(); ++step) bytes[step] += live += changes[step];
    return Profile(bytes);
  }

  bool keep_round() {
    std::vector<size_t> repeats;
    for (size_t step = 0; step < order_.size(); ++step) {
      if (earlier_[step] != kNone) repeats.push_back(step);
    }
    std::ranges::stable_sort(repeats,
                             [&](size_t lhs, size_t rhs) { return effort(lhs) > effort(rhs); });
    Profile bytes = profile();
    is_gone_.assign(order_.size(), false);
    bool has_kept = false;
    for (const size_t step : repeats) has_kept = try_keep(step, bytes) || has_kept;
    return has_kept;
  }

  double effort(size_t step) const { return model_.work(order_[step]).cost.effort(); }

  size_t earlier_run(size_t step) const {
    size_t earlier = earlier_[step];
    while (is_gone_[earlier]) earlier = earlier_[earlier];
    return earlier;
  }

  // Lets the values of an earlier run of the node live on and takes this run out.
  bool try_keep(size_t step, Profile& bytes) {
    const std::span<Version> old = versions(earlier_run(step));
    const std::span<Version> made = versions(step);
    int64_t added = 0;
    size_t begin = step;
    for (size_t i = 0; i < made.size(); ++i) {
      if (!made[i].is_read) continue;
      added += model_.storage(made[i].storage).size_bytes;
      begin = std::min(begin, first_kept(old[i]));
    }
    if (begin < step && bytes.highest(begin, step) + added > budget_bytes_) return false;
    for (size_t i = 0; i < made.size(); ++i) {
      if (!made[i].is_read) continue;
      bytes.add(first_kept(old[i]), step, model_.storage(made[i].storage).size_bytes);
      old[i].last_read = made[i].last_read;
      old[i].is_read = true;
      old[i].is_overwritten = made[i].is_overwritten;
    }
    bytes.add(step, step + 1, -model_.work(order_[step]).scratch_bytes);
    is_gone_[step] = true;
    return true;
  }

  // The first step at which a version that lives on takes memory that it did not take before.
  static size_t first_kept(const Version& version) {
    return version.is_overwritten ? version.last_read : version.last_read + 1;
  }

  // Takes out what was kept, and runs whose values nobody reads. If that is the first run of a
  // node, the next one takes its place: the node runs later, and once less.
  void drop_unread() {
    std::vector<bool> is_wanted(model_.num_storages(), false);
    std::vector<bool> runs_later(model_.work().size(), false);
    std::vector<int> runs(model_.work().size(), 0);
    for (const uint32_t place : order_) ++runs[place];
    Order kept;
    for (size_t step = order_.size(); step-- > 0;) {
      const uint32_t place = order_[step];
      const bool is_first = --runs[place] == 0;
      if (is_gone_[step]) continue;
      const Work& work = model_.work(place);
      const bool is_read = std::ranges::any_of(
          work.makes, [&](uint32_t id) { return is_wanted[id] && model_.storage(id).in_arena; });
      if (!is_read && (!is_first || (runs_later[place] && makes_no_result(work)))) continue;
      runs_later[place] = true;
      for (const uint32_t made : work.makes) is_wanted[made] = false;
      for (const uint32_t read : work.reads) is_wanted[read] = true;
      kept.push_back(place);
    }
    std::ranges::reverse(kept);
    order_ = std::move(kept);
  }

  bool makes_no_result(const Work& work) const {
    return std::ranges::all_of(work.makes,
                               [&](uint32_t id) { return model_.storage(id).in_arena; });
  }

  const MemoryModel& model_;
  Order order_;
  const int64_t budget_bytes_;
  std::vector<Version> versions_;
  std::vector<size_t> first_version_;
  std::vector<uint32_t> earlier_;  // by step: the run of the same node before, or kNone
  std::vector<bool> is_gone_;
};

}  // namespace

Order keep_what_fits(const MemoryModel& model, Order order, int64_t budget_bytes) {
  return Keeper(model, std::move(order), budget_bytes).run();
}

}  // namespace lucid::passes

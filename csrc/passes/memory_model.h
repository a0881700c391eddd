// What a search for recomputation knows of a graph: memory that values share, who reads and makes
// it, and what each node costs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/graph.h"
#include "ops/cost.h"

namespace lucid::passes {

/// Memory of one value and of its aliases, by the id of the value that is no alias.
struct Storage {
  int64_t size_bytes = 0;
  int producer = -1;  ///< node, or -1 for an input of the graph
  /// Lives in the arena: neither in an input's buffer nor in that of a result.
  bool in_arena = false;
  std::vector<uint32_t> readers;  ///< nodes that read it, ascending, aliases left out
};

/// A node as memory sees it: each storage stands once.
struct Work {
  std::vector<uint32_t> reads;
  std::vector<uint32_t> makes;
  int64_t scratch_bytes = 0;
  ops::Cost cost;
  /// May run twice: the operation is pure, a random one given its counters.
  bool is_repeatable = false;
  bool is_alias = false;
  /// Storage whose memory the first output may take if nobody reads it later.
  std::optional<uint32_t> overwrites;
};

class MemoryModel {
 public:
  /// `scratch_sizes[i]` bytes are needed while node i runs.
  MemoryModel(const ir::Graph& graph, std::span<const int64_t> scratch_sizes);

  const std::vector<Work>& work() const { return work_; }
  const Work& work(size_t node) const { return work_[node]; }
  size_t num_storages() const { return storages_.size(); }
  const Storage& storage(uint32_t id) const { return storages_[id]; }
  /// Storage of a value.
  uint32_t root(ir::ValueId value) const { return roots_[index(value)]; }
  /// Sum over all nodes, each run once.
  double effort() const { return effort_; }

 private:
  void find_roots(const ir::Graph& graph);
  void describe_node(const ir::Graph& graph, size_t place, int64_t scratch_bytes);
  std::optional<uint32_t> overwritten(const ir::Graph& graph, const ir::Node& node) const;

  std::vector<uint32_t> roots_;    // by value
  std::vector<Storage> storages_;  // by value; those of aliases are empty
  std::vector<Work> work_;
  double effort_ = 0;
};

}  // namespace lucid::passes

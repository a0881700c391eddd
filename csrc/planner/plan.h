// Static memory plan of a graph: where every value lives during a run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace lucid::planner {

/// Alignment of every place, in bytes: one cache line.
inline constexpr int64_t kAlignment = 64;

enum class PlaceKind : uint8_t {
  kInput,   ///< in the buffer of graph input `slot`
  kOutput,  ///< in the buffer of graph output `slot`
  kArena,   ///< in the arena at `offset_bytes`
};

struct Place {
  PlaceKind kind = PlaceKind::kArena;
  uint32_t slot = 0;
  int64_t offset_bytes = 0;
};

/// A graph output whose value lives elsewhere and is copied there at the end of the run.
struct Copy {
  ir::ValueId from;
  uint32_t output;
};

struct Plan {
  std::vector<Place> places;             ///< by value id
  std::vector<int64_t> scratch_offsets;  ///< by node: where its scratch lies in the arena
  std::vector<Copy> copies;
  /// Exact bytes of the arena: the peak of all values and scratch that live in it.
  int64_t arena_bytes = 0;
};

/// Lays out the values of `graph`; `scratch_sizes[i]` bytes are needed while node i runs.
/// Throws OutOfMemoryError if no address space could hold them.
Plan plan(const ir::Graph& graph, std::span<const int64_t> scratch_sizes);

}  // namespace lucid::planner

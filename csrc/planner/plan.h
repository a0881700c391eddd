// Static memory plan of a graph: where every value lives during a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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

/// A graph output whose run may be given the buffer of a graph input to write into.
struct Given {
  uint32_t output;
  uint32_t input;
};

/// Such a pair that fits: from node `node` on, which writes the output, nobody reads the input.
struct Donation {
  uint32_t output;
  uint32_t input;
  size_t node;
};

struct Plan {
  std::vector<Place> places;             ///< by value id
  std::vector<int64_t> scratch_offsets;  ///< by node: where its scratch lies in the arena
  std::vector<Copy> copies;
  std::vector<Donation> donations;
  /// Exact bytes of the arena: the peak of all values and scratch that live in it.
  int64_t arena_bytes = 0;
};

/// True if a node may write that output into the memory of that input, element by element.
using MayOverwrite = std::function<bool(size_t node, size_t output, size_t input)>;

/// What an operation's traits say of that: the first output may take the memory of
/// `in_place_input`, of an element-wise operation that of any input.
bool allows_overwrite(const ir::Op& op, size_t output, size_t input);

/// Lays out the values of `graph`; `scratch_sizes[i]` bytes are needed while node i runs. Without
/// `may_overwrite` the operations' traits tell.
/// `given` says which outputs may be written into the buffers of which inputs, if that is sound;
/// of two pairs with one output or one input the first is taken.
/// Throws OutOfMemoryError if no address space could hold them.
Plan plan(const ir::Graph& graph, std::span<const int64_t> scratch_sizes,
          const MayOverwrite& may_overwrite = {}, std::span<const Given> given = {});

}  // namespace lucid::planner

// Compiling under a memory limit: what to keep and what to recompute, on the whole graph.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ir/graph.h"
#include "ops/cost.h"
#include "support/errors.h"

namespace lucid::compile {

/// What the arena of a graph takes whose nodes take those bytes of scratch.
using ArenaOf = std::function<int64_t(const ir::Graph&, std::span<const int64_t>)>;

/// Bytes of scratch that each node of a graph takes.
using ScratchOf = std::function<std::vector<int64_t>(const ir::Graph&)>;

/// The graph whose arena is the smallest of four: nodes in their own order or as `passes::schedule`
/// has them, and cheap values made again (`passes::recompute_cheap`) or not. Results are the same,
/// bit for bit. Scratch is asked for only where there is something to decide: that makes the
/// kernels of the whole graph.
ir::Graph save_memory(ir::Graph graph, const ScratchOf& scratch_of, const ArenaOf& arena_of);

/// What a memory limit did to a graph.
struct Recomputation {
  int64_t peak_before = 0;   ///< bytes of the arena without a limit, cheap values made again or not
  int64_t peak = 0;          ///< bytes of the arena now
  int64_t num_repeated = 0;  ///< none where the peak without a limit fits
  ops::Cost repeated;        ///< cost of the nodes that run again
  ops::Cost whole;           ///< cost of the graph with every node run once
};

/// A limit that cannot be met, and the smallest peak that was found.
class LimitError : public Error {
 public:
  LimitError(int64_t limit, int64_t smallest, int64_t before);
  int64_t smallest() const { return smallest_; }
  int64_t before() const { return before_; }

 private:
  int64_t smallest_;
  int64_t before_;
};

/// A graph of the same results, bit for bit, whose arena takes no more than `limit_bytes`: some
/// nodes are computed again, the cheapest for the memory they free. `scratch_sizes` are those of
/// the nodes of `graph`. Throws LimitError if there is none.
ir::Graph fit_memory(const ir::Graph& graph, std::span<const int64_t> scratch_sizes,
                     int64_t limit_bytes, const ArenaOf& arena_of, Recomputation& done);

}  // namespace lucid::compile

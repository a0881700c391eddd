// Orders in which the nodes of a graph run, and the graphs that run in them.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"
#include "passes/memory_model.h"

namespace lucid::passes {

/// The nodes by place, in the order in which they run, aliases left out. Each stands there at least
/// once; one that stands again is computed again, and reads see what was computed last.
using Order = std::vector<uint32_t>;

/// The order of the graph itself.
Order original_order(const MemoryModel& model);

/// The graph that runs in that order: reads see what was made last, results of the graph what was
/// made first. No later pass may merge equal nodes.
ir::Graph reordered(const ir::Graph& graph, const MemoryModel& model, const Order& order);

}  // namespace lucid::passes

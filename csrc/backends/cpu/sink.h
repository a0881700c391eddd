// Sinking: small updates of given buffers run last, where nothing can fail any more.
#pragma once

#include <span>

#include "ir/graph.h"
#include "planner/plan.h"

namespace lucid::cpu {

/// The graph with the element-wise nodes that only make given outputs behind all others. Nodes that
/// would keep more than a little alive for that stay where they are. Results are the same.
ir::Graph sink_updates(const ir::Graph& graph, std::span<const planner::Given> given);

}  // namespace lucid::cpu

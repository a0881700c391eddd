// Reading through views: a kernel that takes strided operands reads a permuted or cut value where
// it came from, and what nobody reads any more is not made. What is put together from all results
// of one node is made by it.
#pragma once

#include <optional>
#include <vector>

#include "backends/cpu/strided_view.h"
#include "ir/graph.h"

namespace lucid::cpu {

/// Where a node's old inputs and outputs lie in the new ones; empty for all dense ones. A node with
/// several outputs and a single new one makes all of them in it.
struct NodeViews {
  std::vector<std::optional<StridedView>> inputs;
  std::vector<std::optional<StridedView>> outputs;
};

/// A graph whose nodes may read and make other values than those of the graph that it was made of.
struct ViewedGraph {
  ir::Graph graph;
  std::vector<size_t> origins;   ///< by node: its place in the old graph
  std::vector<NodeViews> views;  ///< by node
};

/// Nodes keep their order.
ViewedGraph use_views(const ir::Graph& graph);

}  // namespace lucid::cpu

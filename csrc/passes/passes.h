// The passes: each one function, old graph in, new graph out, and the list in which they run.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "ir/graph.h"

namespace lucid::passes {

struct Pass {
  std::string_view name;
  ir::Graph (*run)(const ir::Graph& graph);
  std::string_view doc;
};

/// Local rewrites that are exact for every value, -0, inf and nan included.
ir::Graph simplify(const ir::Graph& graph);
/// Evaluates shape and dtype operations on constants.
ir::Graph fold_constants(const ir::Graph& graph);
/// Merges pure nodes of equal operation, operands and attributes into the first of them.
ir::Graph merge_common(const ir::Graph& graph);
/// Masks a gradient of maximum pooling before it is spread instead of after: relu before pooling.
ir::Graph mask_pooled(const ir::Graph& graph);
/// Drops pure nodes whose outputs nobody reads.
ir::Graph drop_dead(const ir::Graph& graph);

/// The passes of a compilation, in order.
std::span<const Pass> pipeline();

/// Runs the pipeline; verifies the graph after every pass and shows it to `after`, if any.
ir::Graph run_pipeline(ir::Graph graph,
                       const std::function<void(std::string_view, const ir::Graph&)>& after = {});

}  // namespace lucid::passes

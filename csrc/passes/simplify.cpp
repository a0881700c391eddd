#include <utility>
#include <vector>

#include "passes/passes.h"
#include "passes/patterns.h"
#include "passes/rewrite.h"

namespace lucid::passes {

ir::Graph simplify(const ir::Graph& graph) {
  Rewriter rewriter(graph);
  for (const ir::Node& node : graph.nodes()) {
    ir::Node renamed = rewriter.renamed(node);
    while (auto simpler = shorter(rewriter.graph(), renamed)) renamed = *std::move(simpler);
    const std::vector<ir::ValueId> values = handed_on(renamed);
    for (size_t i = 0; i < values.size(); ++i) rewriter.replace(node.outputs[i], values[i]);
    if (!values.empty()) continue;
    const ir::ValueType& type = graph.type(node.outputs.front());
    const auto equal = equal_operand(rewriter.graph(), renamed, type);
    if (equal) {
      rewriter.replace(node.outputs.front(), *equal);
      continue;
    }
    if (const auto pieces = summed_pieces(rewriter.graph(), renamed, type)) {
      rewriter.replace(node.outputs.front(),
                       append_joined(rewriter.graph(), *pieces, type, node.location));
      continue;
    }
    rewriter.append(node, std::move(renamed));
  }
  return std::move(rewriter).finish();
}

ir::Graph fold_constants(const ir::Graph& graph) {
  Rewriter rewriter(graph);
  for (const ir::Node& node : graph.nodes()) {
    ir::Node renamed = rewriter.renamed(node);
    const ir::ValueType& type = graph.type(node.outputs.front());
    auto constant = folded(rewriter.graph(), renamed, type);
    rewriter.append(node, constant ? *std::move(constant) : std::move(renamed));
  }
  return std::move(rewriter).finish();
}

}  // namespace lucid::passes

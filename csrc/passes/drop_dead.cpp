#include <algorithm>
#include <vector>

#include "passes/passes.h"
#include "passes/rewrite.h"

namespace lucid::passes {

ir::Graph drop_dead(const ir::Graph& graph) {
  std::vector<bool> read(graph.num_values(), false);
  for (const ir::ValueId output : graph.outputs()) read[index(output)] = true;
  const auto is_read = [&](ir::ValueId id) { return static_cast<bool>(read[index(id)]); };
  const std::vector<ir::Node>& nodes = graph.nodes();
  std::vector<bool> live(nodes.size(), false);
  for (size_t i = nodes.size(); i-- > 0;) {
    const ir::Node& node = nodes[i];
    live[i] = !node.op->is(ir::kPure) || std::ranges::any_of(node.outputs, is_read);
    if (!live[i]) continue;
    for (const auto& input : node.inputs) {
      if (input) read[index(*input)] = true;
    }
  }
  Rewriter rewriter(graph);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (live[i]) rewriter.copy(nodes[i]);
  }
  return std::move(rewriter).finish();
}

}  // namespace lucid::passes

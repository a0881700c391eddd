#include <utility>
#include <vector>

#include "passes/passes.h"
#include "passes/patterns.h"
#include "passes/rewrite.h"

namespace lucid::passes {
namespace {

/// By value: how many operands and outputs of the graph it is.
std::vector<int> count_uses(const ir::Graph& graph) {
  std::vector<int> uses(graph.num_values(), 0);
  for (const ir::Node& node : graph.nodes()) {
    for (const auto& input : node.inputs) {
      if (input) ++uses[index(*input)];
    }
  }
  for (const ir::ValueId output : graph.outputs()) ++uses[index(output)];
  return uses;
}

ir::ValueId append(Rewriter& rewriter, ir::Node node, const ir::ValueType& type) {
  return rewriter.graph().add_node(std::move(node), {&type, 1}).front();
}

}  // namespace

// The gradient goes to the places of the maxima and is 0 elsewhere, as a masked one is. At such a
// place x is the maximum, so the mask may ask that instead; all that meets there is masked alike.
ir::Graph mask_pooled(const ir::Graph& graph) {
  const std::vector<int> uses = count_uses(graph);
  Rewriter rewriter(graph);
  for (const ir::Node& node : graph.nodes()) {
    const auto found = pooled_mask(graph, node);
    if (!found || uses[index(node.in(2))] != 1) {
      rewriter.copy(node);
      continue;
    }
    const ir::ValueType& grad = graph.type(found->pool_grad->in(0));
    ir::Node comparison = rewriter.renamed(*found->comparison);
    comparison.inputs[0] = rewriter.mapped(found->pooled);
    ir::Node masked = rewriter.renamed(node);
    masked.inputs[0] = append(rewriter, std::move(comparison), {DType::kBool, grad.shape});
    masked.inputs[2] = rewriter.mapped(found->pool_grad->in(0));
    ir::Node spread = rewriter.renamed(*found->pool_grad);
    spread.inputs[0] = append(rewriter, std::move(masked), grad);
    rewriter.append(node, std::move(spread));
  }
  return std::move(rewriter).finish();
}

}  // namespace lucid::passes

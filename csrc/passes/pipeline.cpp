#include <array>
#include <utility>

#include "passes/passes.h"

namespace lucid::passes {
namespace {

constexpr std::array kPipeline = {
    Pass{"simplify", simplify, "exact local rewrites"},
    Pass{"fold_constants", fold_constants, "shape and dtype operations on constants"},
    Pass{"merge_common", merge_common, "equal pure nodes become one"},
    Pass{"mask_pooled", mask_pooled, "masks of pooled gradients, before they are spread"},
    Pass{"drop_dead", drop_dead, "pure nodes that nobody reads go"},
};

}  // namespace

std::span<const Pass> pipeline() { return kPipeline; }

ir::Graph run_pipeline(ir::Graph graph,
                       const std::function<void(std::string_view, const ir::Graph&)>& after) {
  for (const Pass& pass : kPipeline) {
    graph = pass.run(graph);
    ir::verify(graph, pass.name);
    if (after) after(pass.name, graph);
  }
  return graph;
}

}  // namespace lucid::passes

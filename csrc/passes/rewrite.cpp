#include "passes/rewrite.h"

#include <utility>

namespace lucid::passes {

Rewriter::Rewriter(const ir::Graph& old) : old_(old), values_(old.num_values()) {
  for (const ir::Input& input : old.inputs()) {
    replace(input.value, new_.add_input(input.role, old.type(input.value)));
  }
}

ir::Node Rewriter::renamed(const ir::Node& node) const {
  ir::Node result = node;
  for (auto& input : result.inputs) {
    if (input) input = mapped(*input);
  }
  return result;
}

void Rewriter::append(const ir::Node& node, ir::Node replacement) {
  std::vector<ir::ValueType> types;
  for (const ir::ValueId output : node.outputs) types.push_back(old_.type(output));
  const std::vector<ir::ValueId> made = new_.add_node(std::move(replacement), types);
  for (size_t i = 0; i < made.size(); ++i) replace(node.outputs[i], made[i]);
}

ir::Graph Rewriter::finish() && {
  std::vector<ir::ValueId> outputs;
  for (const ir::ValueId output : old_.outputs()) outputs.push_back(mapped(output));
  new_.set_outputs(std::move(outputs));
  return std::move(new_);
}

}  // namespace lucid::passes

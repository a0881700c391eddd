#include <string>
#include <unordered_map>
#include <vector>

#include "passes/passes.h"
#include "passes/rewrite.h"

namespace lucid::passes {
namespace {

std::string key_of(const ir::Node& node) {
  std::string key(node.op->name);
  key += '(';
  for (const auto& input : node.inputs) {
    key += input ? std::to_string(index(*input)) : "_";
    key += ',';
  }
  key += ')';
  for (const ir::AttrValue& value : node.attrs) ir::append_key(key, value);
  return key;
}

}  // namespace

ir::Graph merge_common(const ir::Graph& graph) {
  Rewriter rewriter(graph);
  std::unordered_map<std::string, std::vector<ir::ValueId>> first;
  for (const ir::Node& node : graph.nodes()) {
    ir::Node renamed = rewriter.renamed(node);
    if (!node.op->is(ir::kPure)) {
      rewriter.append(node, std::move(renamed));
      continue;
    }
    const auto [it, is_new] = first.try_emplace(key_of(renamed));
    if (is_new) {
      rewriter.append(node, std::move(renamed));
      for (const ir::ValueId output : node.outputs) it->second.push_back(rewriter.mapped(output));
      continue;
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      rewriter.replace(node.outputs[i], it->second[i]);
    }
  }
  return std::move(rewriter).finish();
}

}  // namespace lucid::passes

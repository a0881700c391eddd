#include "backends/cpu/sink.h"

#include <optional>
#include <vector>

#include "backends/cpu/kernels/pointwise.h"

namespace lucid::cpu {
namespace {

using ir::Graph;
using ir::Node;
using ir::ValueId;

// What one sunk node may keep alive: running statistics of 4096 channels fit twice.
constexpr int64_t kMostBytes = 32768;

bool is_small(const Graph& graph, const Node& node) {
  int64_t bytes = 0;
  for (const auto& input : node.inputs) {
    if (input && graph.producer(*input) >= 0) bytes += graph.type(*input).size_bytes();
  }
  return bytes <= kMostBytes;
}

// By node: does it make nothing but given outputs, element by element?
std::vector<bool> sunk_nodes(const Graph& graph, std::span<const planner::Given> given) {
  std::vector<bool> is_free(graph.num_values(), true);  // nobody but sunk nodes needs it early
  std::vector<bool> is_given(graph.num_values(), false);
  for (const ValueId output : graph.outputs()) is_free[index(output)] = false;
  for (const planner::Given& pair : given) is_given[index(graph.outputs()[pair.output])] = true;
  std::vector<bool> result(graph.nodes().size(), false);
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    bool may_sink = pointwise_tile({node, graph}).function != nullptr && is_small(graph, node);
    for (const ValueId output : node.outputs) {
      may_sink = may_sink && (is_free[index(output)] || is_given[index(output)]);
    }
    result[i] = may_sink;
    if (may_sink) continue;
    for (const auto& input : node.inputs) {
      if (input) is_free[index(*input)] = is_given[index(*input)] = false;
    }
  }
  return result;
}

}  // namespace

Graph sink_updates(const Graph& graph, std::span<const planner::Given> given) {
  if (given.empty()) return graph;
  const std::vector<bool> is_sunk = sunk_nodes(graph, given);
  Graph result;
  std::vector<std::optional<ValueId>> ids(graph.num_values());
  for (const ir::Input& input : graph.inputs()) {
    ids[index(input.value)] = result.add_input(input.role, graph.type(input.value));
  }
  for (const bool sinks : {false, true}) {
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      if (is_sunk[i] != sinks) continue;
      Node node = graph.nodes()[i];
      for (auto& input : node.inputs) {
        if (input) input = ids[index(*input)];
      }
      ir::ValueTypes types;
      for (const ValueId output : node.outputs) types.push_back(graph.type(output));
      const std::vector<ValueId> made = result.add_node(std::move(node), types);
      for (size_t j = 0; j < made.size(); ++j) {
        ids[index(graph.nodes()[i].outputs[j])] = made[j];
      }
    }
  }
  std::vector<ValueId> outputs;
  for (const ValueId output : graph.outputs()) outputs.push_back(*ids[index(output)]);
  result.set_outputs(std::move(outputs));
  return result;
}

}  // namespace lucid::cpu

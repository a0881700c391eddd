#include "passes/memory_model.h"

#include <algorithm>
#include <numeric>

namespace lucid::passes {

MemoryModel::MemoryModel(const ir::Graph& graph, std::span<const int64_t> scratch_sizes)
    : roots_(graph.num_values()), storages_(graph.num_values()), work_(graph.nodes().size()) {
  find_roots(graph);
  for (size_t i = 0; i < graph.nodes().size(); ++i) describe_node(graph, i, scratch_sizes[i]);
  for (const ir::ValueId output : graph.outputs()) storages_[root(output)].in_arena = false;
}

void MemoryModel::find_roots(const ir::Graph& graph) {
  std::iota(roots_.begin(), roots_.end(), 0u);
  for (const ir::Node& node : graph.nodes()) {
    if (node.op->is(ir::kAlias)) roots_[index(node.outputs.front())] = root(node.in(0));
  }
}

void MemoryModel::describe_node(const ir::Graph& graph, size_t place, int64_t scratch_bytes) {
  const ir::Node& node = graph.nodes()[place];
  Work& work = work_[place];
  work.is_alias = node.op->is(ir::kAlias);
  if (work.is_alias) return;
  work.is_repeatable = node.op->is(ir::kPure);
  work.scratch_bytes = scratch_bytes;
  work.cost = ops::node_cost(graph, node);
  effort_ += work.cost.effort();
  for (const auto& input : node.inputs) {
    if (!input || std::ranges::find(work.reads, root(*input)) != work.reads.end()) continue;
    work.reads.push_back(root(*input));
    storages_[work.reads.back()].readers.push_back(static_cast<uint32_t>(place));
  }
  for (const ir::ValueId output : node.outputs) {
    Storage& made = storages_[index(output)];
    made.size_bytes = graph.type(output).size_bytes();
    made.producer = static_cast<int>(place);
    made.in_arena = true;
    work.makes.push_back(index(output));
  }
  work.overwrites = overwritten(graph, node);
}

// The planner's rule, but for the end of the operand's life.
std::optional<uint32_t> MemoryModel::overwritten(const ir::Graph& graph,
                                                 const ir::Node& node) const {
  const size_t taken = node.op->in_place_input;
  if (!node.op->is(ir::kInPlace) || !node.has(taken)) return std::nullopt;
  const uint32_t operand = root(node.in(taken));
  const ir::ValueType& input = graph.type(node.in(taken));
  const ir::ValueType& output = graph.type(node.outputs.front());
  if (input.dtype != output.dtype || input.size_bytes() != output.size_bytes()) return std::nullopt;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (i == taken || !node.has(i) || root(node.in(i)) != operand) continue;
    if (!node.op->is(ir::kElementwise) || graph.type(node.in(i)) != input) return std::nullopt;
  }
  return operand;
}

}  // namespace lucid::passes

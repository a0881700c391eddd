#include "compile/recorded.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "support/errors.h"

namespace lucid::compile {
namespace {

using ir::Graph;
using ir::ValueId;

// By value of the whole graph: its id in a part.
using Ids = std::vector<std::optional<ValueId>>;

void copy_node(const Graph& whole, const ir::Node& node, Graph& part, Ids& ids) {
  ir::Node copy = node;
  for (auto& input : copy.inputs) {
    if (!input) continue;
    input = ids[index(*input)];
    if (input) continue;
    throw Error(ErrorKind::kTrace,
                "compile: the backward of an autograd.Function reads what another backward "
                "computed; compute it in the forward and save it");
  }
  ir::ValueTypes types;
  for (const ValueId output : node.outputs) types.push_back(whole.type(output));
  const std::vector<ValueId> made = part.add_node(std::move(copy), types);
  for (size_t i = 0; i < made.size(); ++i) ids[index(node.outputs[i])] = made[i];
}

// The inputs that runs fetch, and the forward's nodes.
Graph forward_of(const Graph& whole, size_t num_nodes, Ids& ids) {
  Graph forward;
  auto input = whole.inputs().begin();
  const auto add_inputs_before = [&](size_t value) {
    for (; input != whole.inputs().end() && index(input->value) < value; ++input) {
      if (input->role == ir::Role::kSeed) continue;
      ids[index(input->value)] = forward.add_input(input->role, whole.type(input->value));
    }
  };
  for (size_t i = 0; i < num_nodes; ++i) {
    const ir::Node& node = whole.nodes()[i];
    if (!node.outputs.empty()) add_inputs_before(index(node.outputs.front()));
    copy_node(whole, node, forward, ids);
  }
  add_inputs_before(whole.num_values());
  return forward;
}

RecordedGraph backward_of(const Graph& whole, const runtime::RecordedBackward& recorded,
                          const Graph& forward, Ids ids) {
  RecordedGraph result{.mask = recorded.mask, .graph = forward, .gradients = {}};
  for (const ValueId seed : recorded.seeds) {
    ids[index(seed)] = result.graph.add_input(ir::Role::kSeed, whole.type(seed));
  }
  for (size_t i = 0; i < recorded.origins.size(); ++i) {
    copy_node(whole, whole.nodes()[recorded.first_node + i], result.graph, ids);
  }
  for (const auto& gradient : recorded.grads) {
    result.gradients.push_back(gradient ? ids[index(*gradient)] : std::nullopt);
  }
  return result;
}

void rename(ValueId& value, const Ids& ids) {
  const std::optional<ValueId> found = ids[index(value)];
  if (!found) {
    throw Error(ErrorKind::kTrace,
                "compile: the backward of an autograd.Function changed a tensor that outlives the "
                "step; change it in the forward, or outside of the step");
  }
  value = *found;
}

}  // namespace

std::vector<RecordedGraph> take_backwards(runtime::Trace& trace) {
  if (trace.backwards.empty()) return {};
  const Graph whole = std::move(trace.graph);
  Ids ids(whole.num_values());
  trace.graph = forward_of(whole, trace.backwards.front().first_node, ids);
  std::vector<RecordedGraph> result;
  for (const runtime::RecordedBackward& recorded : trace.backwards) {
    result.push_back(backward_of(whole, recorded, trace.graph, ids));
  }
  trace.backwards.clear();
  for (ValueId& value : trace.results) rename(value, ids);
  for (ValueId& value : trace.arguments) rename(value, ids);
  for (ValueId& value : trace.scalars) rename(value, ids);
  for (runtime::Capture& capture : trace.captures) rename(capture.value, ids);
  for (runtime::StateWrite& write : trace.writes) rename(write.value, ids);
  for (runtime::Draw& draw : trace.draws) rename(draw.value, ids);
  for (runtime::GradTarget& target : trace.targets) rename(target.value, ids);
  return result;
}

}  // namespace lucid::compile

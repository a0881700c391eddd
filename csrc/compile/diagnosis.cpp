#include "compile/diagnosis.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "autodiff/autodiff.h"
#include "backends/backend.h"
#include "passes/passes.h"
#include "support/errors.h"

namespace lucid::compile {
namespace {

using ir::Graph;
using ir::Node;
using ir::ValueId;

std::string attributes_of(const Node& node) {
  std::string text;
  for (size_t i = 0; i < node.attrs.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::string(node.op->attrs[i].name) + "=" + ir::to_string(node.attrs[i]);
  }
  return text;
}

GradientFlow flow_of(const Node& node, const std::vector<bool>& active) {
  const auto is_active = [&](const auto& value) { return value && active[index(*value)]; };
  if (std::ranges::none_of(node.inputs, is_active)) return GradientFlow::kNone;
  const auto is_active_output = [&](ValueId value) { return bool{active[index(value)]}; };
  if (std::ranges::none_of(node.outputs, is_active_output)) return GradientFlow::kStops;
  const bool has_rule = node.op->vjp != nullptr || node.op->decompose != nullptr;
  return has_rule ? GradientFlow::kFlows : GradientFlow::kMissing;
}

std::vector<ValueId> targets_of(const runtime::Trace& trace) {
  std::vector<ValueId> targets;
  for (const runtime::GradTarget& target : trace.targets) targets.push_back(target.value);
  return targets;
}

OperationRow row_of(const Graph& graph, const Node& node, const std::vector<bool>& active) {
  OperationRow row;
  row.node = &node;
  for (const auto& input : node.inputs) {
    row.inputs.push_back(input ? std::optional(graph.type(*input)) : std::nullopt);
  }
  for (const ValueId output : node.outputs) row.outputs.push_back(graph.type(output));
  row.attributes = attributes_of(node);
  row.gradient = flow_of(node, active);
  row.has_rule = node.op->vjp != nullptr || node.op->decompose != nullptr;
  row.cost = ops::node_cost(graph, node);
  return row;
}

// The trace's graph with the gradients of its results, and the origins of what was appended.
struct Differentiated {
  Graph graph;
  std::vector<size_t> origins;
};

// Nothing where a rule refuses: the compiler says so itself.
std::optional<Differentiated> differentiated(const runtime::Trace& trace,
                                             const DiagnosisOptions& options) {
  if (!trace.backwards.empty()) {
    return Differentiated{trace.graph, trace.backwards.front().origins};
  }
  Differentiated result{.graph = trace.graph, .origins = {}};
  std::vector<ValueId> roots;
  std::vector<ValueId> seeds;
  for (size_t i = 0; i < trace.results.size() && !(options.is_step && i > 0); ++i) {
    const ir::ValueType type = result.graph.type(trace.results[i]);
    if (!trace.result_tracks[i] || !is_floating(type.dtype)) continue;
    roots.push_back(trace.results[i]);
    seeds.push_back(result.graph.add_input(ir::Role::kSeed, type));
  }
  try {
    autodiff::differentiate(result.graph, roots, seeds, targets_of(trace), &result.origins);
  } catch (const Error& error) {
    const bool is_refusal =
        error.kind() == ErrorKind::kUnsupported || error.kind() == ErrorKind::kTrace;
    if (!is_refusal) throw;
    return std::nullopt;
  }
  return result;
}

void add_backward(const Differentiated& found, std::vector<OperationRow>& rows) {
  for (OperationRow& row : rows) row.backward = ops::Cost{};
  for (size_t i = 0; i < found.origins.size(); ++i) {
    const Node& node = found.graph.nodes()[rows.size() + i];
    OperationRow& row = rows[found.origins[i]];
    *row.backward += ops::node_cost(found.graph, node);
    row.backward_ops.push_back(node.op->name);
  }
}

// Equal for nodes of one line that do the same to operands of the same types.
std::string key_of(const Graph& graph, const Node& node) {
  std::string key = std::string(node.op->name) + "{" + attributes_of(node) + "}";
  for (const auto& input : node.inputs) {
    key += input ? ir::to_string(graph.type(*input)) + ";" : "_;";
  }
  if (node.location != nullptr) key += node.location->file + std::to_string(node.location->line);
  return key;
}

using Counts = std::unordered_map<std::string, int64_t>;

Counts counts_of(const Graph& graph) {
  Counts counts;
  for (const Node& node : graph.nodes()) ++counts[key_of(graph, node)];
  return counts;
}

// Runs the passes on the forward and notes after which of them an operation is gone. Of equal ones
// on a line the last go first: passes keep the first.
void note_removed(const runtime::Trace& trace, std::vector<OperationRow>& rows) {
  Graph forward = trace.graph;
  std::vector<ValueId> outputs = trace.results;
  for (const runtime::StateWrite& write : trace.writes) outputs.push_back(write.value);
  forward.set_outputs(std::move(outputs));
  std::unordered_map<std::string, std::vector<OperationRow*>> there;
  for (OperationRow& row : rows) there[key_of(trace.graph, *row.node)].push_back(&row);
  passes::run_pipeline(std::move(forward), [&](std::string_view pass, const Graph& after) {
    Counts counts = counts_of(after);
    for (auto& [key, same] : there) {
      while (static_cast<int64_t>(same.size()) > counts[key]) {
        same.back()->removed_by = pass;
        same.pop_back();
      }
    }
  });
}

// The node alone, its operands as inputs.
Graph alone(const Graph& graph, const Node& node) {
  Graph result;
  Node copy = node;
  copy.location = nullptr;  // what one is refused for holds for equal ones on other lines
  for (auto& input : copy.inputs) {
    if (input) input = result.add_input(ir::Role::kArgument, graph.type(*input));
  }
  ir::ValueTypes types;
  for (const ValueId output : node.outputs) types.push_back(graph.type(output));
  result.set_outputs(result.add_node(std::move(copy), types));
  return result;
}

// Asks a backend for each node, and once for equal ones, by letting it compile the node alone.
class Gaps {
 public:
  explicit Gaps(backends::Backend& backend) : backend_(backend) {}

  const std::string& of(const Graph& graph, const Node& node) {
    const Graph one = alone(graph, node);
    const auto [known, is_new] = known_.try_emplace(ir::structure_key(one));
    if (!is_new) return known->second;
    try {
      backend_.compile(one);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUnsupported) throw;
      known->second = error.what();
    }
    return known->second;
  }

 private:
  backends::Backend& backend_;
  std::unordered_map<std::string, std::string> known_;
};

void find_gaps(const Graph& graph, const Differentiated* found, Device device, Diagnosis& result) {
  backends::Backend* backend = nullptr;
  try {
    backend = &backends::backend_for(device);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDeviceUnavailable) throw;
    result.unavailable = error.what();
    return;
  }
  Gaps gaps(*backend);
  for (OperationRow& row : result.rows) row.gap = gaps.of(graph, *row.node);
  if (found == nullptr) return;
  for (size_t i = 0; i < found->origins.size(); ++i) {
    OperationRow& row = result.rows[found->origins[i]];
    if (!row.gap.empty()) continue;
    row.gap = gaps.of(found->graph, found->graph.nodes()[result.rows.size() + i]);
  }
}

}  // namespace

std::string_view name(GradientFlow flow) {
  switch (flow) {
    case GradientFlow::kFlows:
      return "flows";
    case GradientFlow::kStops:
      return "stops";
    case GradientFlow::kMissing:
      return "missing";
    case GradientFlow::kNone:
      break;
  }
  return "none";
}

Diagnosis diagnose(const runtime::Trace& trace, const DiagnosisOptions& options) {
  Diagnosis result;
  const std::vector<ValueId> targets =
      options.with_gradients ? targets_of(trace) : std::vector<ValueId>();
  const std::vector<bool> active = autodiff::active_values(trace.graph, targets);
  const std::vector<Node>& nodes = trace.graph.nodes();
  const size_t num_forward =
      trace.backwards.empty() ? nodes.size() : trace.backwards.front().first_node;
  for (size_t i = 0; i < num_forward; ++i) {
    result.rows.push_back(row_of(trace.graph, nodes[i], active));
  }
  std::optional<Differentiated> found;
  if (options.is_whole) {
    if (options.with_gradients) {
      found = differentiated(trace, options);
    } else {
      found = Differentiated{.graph = trace.graph, .origins = {}};
    }
    if (found) add_backward(*found, result.rows);
    note_removed(trace, result.rows);
  }
  if (options.device) {
    find_gaps(trace.graph, found ? &*found : nullptr, *options.device, result);
  }
  return result;
}

}  // namespace lucid::compile

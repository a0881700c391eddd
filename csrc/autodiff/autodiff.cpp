#include "autodiff/autodiff.h"

#include <algorithm>
#include <string>
#include <utility>

#include "autodiff/graph_builder.h"

namespace lucid::autodiff {
namespace {

using ir::Grads;
using ir::Graph;
using ir::Node;
using ir::ValueId;

bool is_differentiable_output(const Node& node, size_t output) {
  return (node.op->nondifferentiable_outputs >> output & 1u) == 0;
}

bool reads_any(const Node& node, const std::vector<bool>& active) {
  for (const auto& input : node.inputs) {
    if (input && active[index(*input)]) return true;
  }
  return false;
}

class Differentiator {
 public:
  Differentiator(Graph& graph, std::span<const ValueId> targets, ops::GradientRules* rules)
      : graph_(graph),
        builder_(graph, rules),
        active_(active_values(graph, targets)),
        grads_(graph.num_values()) {}

  void contribute(ValueId value, ValueId grad) {
    std::optional<ValueId>& slot = grads_[index(value)];
    slot = slot ? builder_.add(*slot, grad) : grad;
  }

  void run(size_t num_nodes, std::vector<size_t>* origins) {
    for (size_t i = num_nodes; i-- > 0;) {
      const Node node = graph_.nodes()[i];  // a copy: the emits below move the nodes
      if (!node.stop_gradient) visit(node);
      if (origins != nullptr) origins->resize(graph_.nodes().size() - num_nodes, i);
    }
  }

  std::optional<ValueId> grad(ValueId value) const { return grads_[index(value)]; }

 private:
  void visit(const Node& node) {
    Grads grads;
    bool any = false;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId output = node.outputs[i];
      grads.push_back(active_[index(output)] ? grads_[index(output)] : std::nullopt);
      any = any || grads.back().has_value();
    }
    if (!any) return;
    std::vector<bool> wanted;
    for (const auto& input : node.inputs) wanted.push_back(input && active_[index(*input)]);
    if (std::ranges::find(wanted, true) == wanted.end()) return;  // the node makes a target
    builder_.set_location(node.location);
    const Grads contributions = apply_vjp(builder_, node, grads, wanted);
    for (size_t i = 0; i < contributions.size(); ++i) {
      if (contributions[i] && wanted[i]) contribute(*node.inputs[i], *contributions[i]);
    }
  }

  Graph& graph_;
  GraphBuilder builder_;
  std::vector<bool> active_;
  Grads grads_;
};

// Emits into `builder` the nodes of `graph` that `outputs` depend on; `values` maps its inputs.
void replay(ops::Builder& builder, const Graph& graph, const Grads& outputs,
            std::vector<std::optional<ValueId>>& values) {
  std::vector<bool> live(graph.num_values(), false);
  for (const auto& output : outputs) {
    if (output) live[index(*output)] = true;
  }
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    bool used = false;
    for (const ValueId output : node.outputs) used = used || live[index(output)];
    if (!used) continue;
    for (const ValueId output : node.outputs) live[index(output)] = true;
    for (const auto& input : node.inputs) {
      if (input) live[index(*input)] = true;
    }
  }
  for (const Node& node : graph.nodes()) {
    if (!live[index(node.outputs.front())]) continue;
    std::vector<std::optional<ValueId>> inputs;
    for (const auto& input : node.inputs) {
      inputs.push_back(input ? values[index(*input)] : std::nullopt);
    }
    const std::vector<ValueId> made = builder.emit(*node.op, std::move(inputs), node.attrs);
    for (size_t i = 0; i < made.size(); ++i) values[index(node.outputs[i])] = made[i];
  }
}

Grads vjp_by_decomposition(ops::Builder& builder, const Node& node, const Grads& grads,
                           const std::vector<bool>& wanted) {
  Graph graph;
  Node local = node;
  std::vector<std::optional<ValueId>> outer;  // by local input id: the builder's value
  const auto add_input = [&](ValueId value) {
    outer.push_back(value);
    return graph.add_input(ir::Role::kArgument, builder.type(value));
  };
  for (auto& input : local.inputs) {
    if (input) input = add_input(*input);
  }
  std::vector<ValueId> targets;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i]) targets.push_back(*local.inputs[i]);
  }
  std::vector<std::optional<ValueId>> local_grads;
  for (const auto& grad : grads) {
    local_grads.push_back(grad ? std::optional(add_input(*grad)) : std::nullopt);
  }
  GraphBuilder local_builder(graph);
  const std::vector<ValueId> outputs = node.op->decompose(local_builder, local);
  std::vector<ValueId> roots;
  std::vector<ValueId> seeds;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!local_grads[i]) continue;
    roots.push_back(outputs[i]);
    seeds.push_back(*local_grads[i]);
  }
  const Grads found = differentiate(graph, roots, seeds, targets);
  outer.resize(graph.num_values());
  replay(builder, graph, found, outer);
  Grads result(node.inputs.size());
  size_t next = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i]) continue;
    const std::optional<ValueId> grad = found[next++];
    if (grad) result[i] = outer[index(*grad)];
  }
  return result;
}

}  // namespace

std::vector<bool> active_values(const Graph& graph, std::span<const ValueId> targets) {
  std::vector<bool> active(graph.num_values(), false);
  for (const ValueId target : targets) active[index(target)] = true;
  for (const Node& node : graph.nodes()) {
    if (node.stop_gradient || !reads_any(node, active)) continue;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const bool floating = is_floating(graph.type(node.outputs[i]).dtype);
      if (floating && is_differentiable_output(node, i)) active[index(node.outputs[i])] = true;
    }
  }
  return active;
}

Grads apply_vjp(ops::Builder& builder, const Node& node, const Grads& grads,
                const std::vector<bool>& wanted) {
  if (node.op->vjp != nullptr) return node.op->vjp(builder, node, grads, wanted);
  if (node.op->decompose != nullptr) return vjp_by_decomposition(builder, node, grads, wanted);
  throw Error(ErrorKind::kUnsupported,
              std::string(node.op->name) + ": has no gradient; detach its input if none is meant");
}

Grads differentiate(Graph& graph, std::span<const ValueId> roots, std::span<const ValueId> seeds,
                    std::span<const ValueId> targets, std::vector<size_t>* origins,
                    ops::GradientRules* rules) {
  const size_t num_nodes = graph.nodes().size();
  Differentiator differentiator(graph, targets, rules);
  for (size_t i = 0; i < roots.size(); ++i) differentiator.contribute(roots[i], seeds[i]);
  differentiator.run(num_nodes, origins);
  Grads result;
  for (const ValueId target : targets) result.push_back(differentiator.grad(target));
  return result;
}

}  // namespace lucid::autodiff

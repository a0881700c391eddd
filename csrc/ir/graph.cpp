#include "ir/graph.h"

#include <algorithm>
#include <array>
#include <string>

namespace lucid::ir {
namespace {

constexpr std::array<std::string_view, 6> kRoleNames = {"argument", "parameter", "captured",
                                                        "state",    "random",    "seed"};

void append_id(std::string& key, uint32_t id) {
  key.append(reinterpret_cast<const char*>(&id), sizeof(id));
}

void append_type(std::string& key, const ValueType& type) {
  key += static_cast<char>(type.dtype);
  key += static_cast<char>(type.shape.rank());
  for (const int64_t size : type.shape.sizes()) {
    key.append(reinterpret_cast<const char*>(&size), sizeof(size));
  }
}

/// "1 input", "2 to 3 inputs", "1 or more inputs": what an operation takes.
std::string input_counts(const Op& op) {
  std::string text = std::to_string(op.min_inputs);
  if (op.max_inputs < 0) text += " or more";
  if (op.max_inputs > op.min_inputs) text += " to " + std::to_string(op.max_inputs);
  return text + (op.max_inputs == 1 ? " input" : " inputs");
}

}  // namespace

std::string_view name(Role role) { return kRoleNames[static_cast<size_t>(role)]; }

ValueId Graph::add_input(Role role, ValueType type) {
  const ValueId id{static_cast<uint32_t>(types_.size())};
  types_.push_back(std::move(type));
  producers_.push_back(-1);
  inputs_.push_back({id, role});
  return id;
}

void Graph::move_input_last(ValueId id) {
  const auto found = std::ranges::find(inputs_, id, &Input::value);
  std::rotate(found, found + 1, inputs_.end());
}

std::vector<ValueId> Graph::add_node(Node node, std::span<const ValueType> output_types) {
  node.outputs.clear();
  for (const ValueType& type : output_types) {
    node.outputs.push_back(ValueId{static_cast<uint32_t>(types_.size())});
    types_.push_back(type);
    producers_.push_back(static_cast<int>(nodes_.size()));
  }
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

std::string structure_key(const Graph& graph) {
  std::string key;
  for (const Input& input : graph.inputs()) {
    key += 'i';
    key += static_cast<char>(input.role);
    append_id(key, index(input.value));
    append_type(key, graph.type(input.value));
  }
  for (const Node& node : graph.nodes()) {
    key += 'n';
    key += node.op->name;
    append_id(key, static_cast<uint32_t>(node.inputs.size()));
    for (const auto& input : node.inputs) append_id(key, input ? index(*input) : ~0u);
    for (const AttrValue& value : node.attrs) append_key(key, value);
    for (const ValueId output : node.outputs) {
      append_id(key, index(output));
      append_type(key, graph.type(output));
    }
  }
  key += 'o';
  for (const ValueId output : graph.outputs()) append_id(key, index(output));
  return key;
}

ValueTypes infer(const Op& op, std::span<const std::optional<ValueType>> inputs, const Attrs& attrs,
                 const LocationRef& location) {
  const InferArgs args(op, inputs, attrs);
  try {
    const auto count = static_cast<int>(inputs.size());
    if (count < op.min_inputs || (op.max_inputs >= 0 && count > op.max_inputs)) {
      args.fail(ErrorKind::kUser, "takes " + input_counts(op) + ": got " + std::to_string(count));
    }
    const int num_required = op.max_inputs < 0 ? count : op.min_inputs;
    for (int i = 0; i < num_required; ++i) {
      if (!args.has(static_cast<size_t>(i))) {
        args.fail(ErrorKind::kUser, "input " + std::to_string(i) + " is missing");
      }
    }
    if (attrs.size() != op.attrs.size()) {
      args.fail(ErrorKind::kInternal, "has " + std::to_string(op.attrs.size()) +
                                          " attributes: got " + std::to_string(attrs.size()));
    }
    for (size_t i = 0; i < attrs.size(); ++i) {
      if (fits(attrs[i], op.attrs[i].type)) continue;
      args.fail(ErrorKind::kType, "attribute " + std::string(op.attrs[i].name) +
                                      " has the wrong type: got " + to_string(attrs[i]));
    }
    return op.infer(args);
  } catch (const Error& error) {
    if (location == nullptr) throw;
    throw Error(error.kind(), std::string(error.what()) + "\n  at " + location->file + ":" +
                                  std::to_string(location->line));
  }
}

}  // namespace lucid::ir

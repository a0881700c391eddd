// The graph: nodes in topological order over integer value ids (static single assignment).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/op.h"
#include "ir/value.h"

namespace lucid::ir {

/// The user's line that made a node; shared by the nodes of one line.
struct Location {
  std::string file;
  int line = 0;
};
using LocationRef = std::shared_ptr<const Location>;

/// What an input of a graph stands for.
enum class Role : uint8_t { kArgument, kParameter, kCaptured, kState, kRandom, kSeed };
std::string_view name(Role role);

struct Node {
  const Op* op = nullptr;
  std::vector<std::optional<ValueId>> inputs;
  std::vector<ValueId> outputs;
  Attrs attrs;
  LocationRef location;
  /// Made where gradients were off: a gradient never flows through this node.
  bool stop_gradient = false;

  const AttrValue& attr(std::string_view name) const;
  bool flag(std::string_view name) const { return std::get<bool>(attr(name)); }
  int64_t integer(std::string_view name) const { return std::get<int64_t>(attr(name)); }
  double real(std::string_view name) const;
  DType dtype_attr(std::string_view name) const { return std::get<DType>(attr(name)); }
  const std::string& string(std::string_view name) const {
    return std::get<std::string>(attr(name));
  }
  const Ints& ints(std::string_view name) const { return std::get<Ints>(attr(name)); }
  /// The value of a present input.
  ValueId in(size_t index) const { return *inputs[index]; }
  bool has(size_t index) const { return index < inputs.size() && inputs[index].has_value(); }
};

struct Input {
  ValueId value;
  Role role;
};

/// Append-only list of nodes. A rewrite reads an old graph and fills a new one.
class Graph {
 public:
  ValueId add_input(Role role, ValueType type);
  /// Appends a node whose outputs have the given types; returns its outputs.
  std::vector<ValueId> add_node(Node node, std::span<const ValueType> output_types);
  void set_outputs(std::vector<ValueId> outputs) { outputs_ = std::move(outputs); }
  /// Lists that input after all others.
  void move_input_last(ValueId id);

  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<ValueId>& outputs() const { return outputs_; }
  /// The reference stays valid while nodes are added.
  const ValueType& type(ValueId id) const { return types_[index(id)]; }
  size_t num_values() const { return types_.size(); }
  /// Index of the node that makes the value, or -1 for an input.
  int producer(ValueId id) const { return producers_[index(id)]; }

 private:
  std::vector<Input> inputs_;
  std::vector<Node> nodes_;
  std::vector<ValueId> outputs_;
  std::deque<ValueType> types_;  // references stay valid while it grows
  std::vector<int> producers_;
};

/// One line an input and a node:
///     %0 = input argument float32[2, 3]
///     %1 = tanh(%0) : float32[2, 3]
///     return %1
std::string to_string(const Graph& graph);

/// The graph that the text describes. Throws UserError with the line's number.
Graph parse(std::string_view text, const std::function<const Op*(std::string_view)>& find_op);

/// Bytes equal exactly for graphs of the same structure (locations left out).
std::string structure_key(const Graph& graph);

/// Throws InternalError that names `stage` and shows the graph unless: values are made once and
/// before use, arities and attributes fit the schema, and the types are what infer says.
void verify(const Graph& graph, std::string_view stage);

/// Types of a call's outputs; checks arity and attributes first. Errors carry the location.
ValueTypes infer(const Op& op, std::span<const std::optional<ValueType>> inputs, const Attrs& attrs,
                 const LocationRef& location);

}  // namespace lucid::ir

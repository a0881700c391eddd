// Rewriter: copies an old graph into a new one, with values replaced on the way.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace lucid::passes {

/// Reads an old graph and fills a new one. Inputs are copied first and keep their order.
class Rewriter {
 public:
  explicit Rewriter(const ir::Graph& old);

  const ir::Graph& old_graph() const { return old_; }
  /// The new value that stands for an old one.
  ir::ValueId mapped(ir::ValueId old_id) const { return *values_[index(old_id)]; }
  /// The node with its inputs renamed to new values.
  ir::Node renamed(const ir::Node& node) const;
  /// Appends the node as it is.
  void copy(const ir::Node& node) { append(node, renamed(node)); }
  /// Appends `replacement`, whose inputs are new values, in place of an old node.
  void append(const ir::Node& node, ir::Node replacement);
  /// Lets an old value be a new one.
  void replace(ir::ValueId old_id, ir::ValueId new_id) { values_[index(old_id)] = new_id; }
  ir::Graph& graph() { return new_; }
  /// Sets the outputs and gives the new graph away.
  ir::Graph finish() &&;

 private:
  const ir::Graph& old_;
  ir::Graph new_;
  std::vector<std::optional<ir::ValueId>> values_;
};

}  // namespace lucid::passes

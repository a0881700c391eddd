// The rewrites that know operations by name; the only place among the passes that may.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace lucid::passes {

/// The value of `graph` that equals the only output of `node` bit for bit, if there is one: the
/// operand of detach, of a reshape to its own shape, of a product with 1, ... `node` has inputs
/// of `graph`; `type` is its output's.
std::optional<ir::ValueId> equal_operand(const ir::Graph& graph, const ir::Node& node,
                                         const ir::ValueType& type);

/// The values that equal the outputs of `node`, which hands them on; empty for other nodes.
std::vector<ir::ValueId> handed_on(const ir::Node& node);

/// A node that makes the same bits from an earlier value (reshape of a reshape, permute of a
/// permute), if there is one.
std::optional<ir::Node> shorter(const ir::Graph& graph, const ir::Node& node);

/// Pieces of one axis, in its order.
struct Pieces {
  std::vector<ir::ValueId> values;
  int64_t dim = 0;
};

/// The pieces that `node` adds up, each in zeros of its own, if they cover the whole axis and do
/// not overlap: the gradient of a value that was split. The sum is what stands side by side, plus
/// 0.
std::optional<Pieces> summed_pieces(const ir::Graph& graph, const ir::Node& node,
                                    const ir::ValueType& type);

/// Appends the pieces side by side, plus 0.
ir::ValueId append_joined(ir::Graph& graph, const Pieces& pieces, const ir::ValueType& type,
                          const ir::LocationRef& location);

/// The `full` node that makes the same constant, if all operands are constants.
std::optional<ir::Node> folded(const ir::Graph& graph, const ir::Node& node,
                               const ir::ValueType& type);

}  // namespace lucid::passes

// What a node costs to run: a count that follows from its operation and shapes, not a measurement.
#pragma once

#include "ir/graph.h"

namespace lucid::ops {

/// Work of one run of a node.
struct Cost {
  double flops = 0;  ///< floating-point operations; a function like exp counts as several
  double bytes = 0;  ///< read and written, each operand once
  /// Operations of a large product that take the time of `flops` (`Op::effort_per_flop`).
  double busy_flops = 0;

  Cost& operator+=(const Cost& other);
  /// One number for both: the operations of a large product that take as long. Work done while
  /// bytes move is not taken off, as kernels here seldom overlap the two.
  double effort() const;
};

/// Cost of a node of `graph`, by its row's `flops` or, where it has none, by its traits: an
/// element-wise operation works on each output element, a reduction on each input element, and
/// what is left moves elements. An alias costs nothing.
Cost node_cost(const ir::Graph& graph, const ir::Node& node);

/// Rules that rows share: `count` operations for each element of the first input or output.
template <int count>
double flops_per_input(const ir::Graph& graph, const ir::Node& node) {
  return count * static_cast<double>(graph.type(node.in(0)).num_elements());
}
template <int count>
double flops_per_output(const ir::Graph& graph, const ir::Node& node) {
  return count * static_cast<double>(graph.type(node.outputs.front()).num_elements());
}

}  // namespace lucid::ops

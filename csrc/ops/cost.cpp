#include "ops/cost.h"

#include <algorithm>

namespace lucid::ops {
namespace {

// Floating-point operations of a large product in the time in which one byte moves: 4 on the
// machine of bench/RESULTS.md (460 GFLOP/s, 110 GB/s between activations that miss the caches).
constexpr double kFlopsPerByte = 4;
// exp, log, erf and the like, and a counter-based draw, against a multiplication.
constexpr double kFunctionFlops = 24;
constexpr double kDrawFlops = 40;

double elements(const ir::Graph& graph, ir::ValueId value) {
  return static_cast<double>(graph.type(value).num_elements());
}

double flops_by_traits(const ir::Graph& graph, const ir::Node& node) {
  const double made = elements(graph, node.outputs.front());
  if (node.op->is(ir::kRandom)) return kDrawFlops * made;
  if (node.op->is(ir::kReduction)) return elements(graph, node.in(0));
  if (node.op->is(ir::kElementwise)) return made * (node.op->is(ir::kCheap) ? 1 : kFunctionFlops);
  return 0;
}

double bytes_of(const ir::Graph& graph, const ir::Node& node) {
  double written = 0;
  for (const ir::ValueId output : node.outputs) {
    written += static_cast<double>(graph.type(output).size_bytes());
  }
  // What only moves elements (a slice, a look-up in a table) reads no more than it writes.
  const bool only_moves = node.op->flops == nullptr && !node.op->is(ir::kReduction);
  double read = 0;
  for (const auto& input : node.inputs) {
    if (!input) continue;
    const auto size = static_cast<double>(graph.type(*input).size_bytes());
    read += only_moves ? std::min(size, written) : size;
  }
  return read + written;
}

}  // namespace

Cost& Cost::operator+=(const Cost& other) {
  flops += other.flops;
  bytes += other.bytes;
  busy_flops += other.busy_flops;
  return *this;
}

double Cost::effort() const { return busy_flops + kFlopsPerByte * bytes; }

Cost node_cost(const ir::Graph& graph, const ir::Node& node) {
  if (node.op->is(ir::kAlias) || node.outputs.empty()) return {};
  Cost cost;
  cost.flops =
      node.op->flops != nullptr ? node.op->flops(graph, node) : flops_by_traits(graph, node);
  cost.bytes = bytes_of(graph, node);
  cost.busy_flops = cost.flops * node.op->effort_per_flop;
  return cost;
}

}  // namespace lucid::ops

// Fusion: runs of element-wise nodes become one node that computes them tile by tile, so that
// what they pass to each other stays in the cache. Every element is computed by the same tile
// functions as without fusion: the bits are the same.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/cpu/kernel.h"
#include "backends/cpu/kernels/pointwise.h"
#include "ir/graph.h"
#include "ops/cost.h"

namespace lucid::cpu {

/// What one fused node computes: a list of instructions over the tiles of its operands.
struct TileProgram {
  /// Where an operand of an instruction is, or its result goes.
  struct Place {
    enum class In : uint8_t { kInput, kOutput, kRegister };
    In in = In::kRegister;
    uint32_t number = 0;
  };
  struct Instruction {
    PointwiseTile tile;
    std::array<Place, 3> operands{};
    Place result;
  };
  std::vector<Instruction> instructions;
  size_t num_registers = 0;
  int64_t register_item_bytes = 0;  ///< of the widest element in a register
  std::string label;                ///< the operations in order
  ops::Cost cost;                   ///< of all members; bytes of what enters and leaves

  /// True if an output may take the memory of an input of the same shape and size: whoever reads
  /// the input does so no later than the output is written.
  bool may_overwrite(size_t output, size_t input) const;
};

/// A graph whose fused nodes have the operation of fused_op() and a program.
struct FusedGraph {
  ir::Graph graph;
  std::vector<std::optional<TileProgram>> programs;  ///< by node
  std::vector<size_t> origins;                       ///< by node: its place, or its last member's
};

/// Nodes keep their order, but that a fused node stands where the last of its members stood.
FusedGraph fuse_elementwise(const ir::Graph& graph);

/// The operation of fused nodes; it is in no registry and no graph outside of an executable.
const ir::Op& fused_op();

std::unique_ptr<Kernel> make_fused_kernel(const NodeView& view, TileProgram program);

}  // namespace lucid::cpu

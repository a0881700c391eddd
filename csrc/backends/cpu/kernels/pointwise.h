// What other parts of the backend need of element-wise nodes: their tile function and its
// parameters, as the kernels here use them.
#pragma once

#include <array>

#include "backends/cpu/kernel.h"
#include "backends/cpu/simd/tile.h"

namespace lucid::cpu {

/// An element-wise node as a tile function. None stands for a node that looks at its operands
/// before it writes (integer division by 0): it runs by its own kernel only.
struct PointwiseTile {
  TileFn function = nullptr;  ///< nullptr if the node is none or has no function for its dtypes
  std::array<double, 2> parameters{};
  double cost_ns = 0.0;  ///< estimate for one element on one core
};

PointwiseTile pointwise_tile(const NodeView& view);

}  // namespace lucid::cpu

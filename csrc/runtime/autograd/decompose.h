// An operation run as its own decomposition: the reference of fused operations in tests.
#pragma once

#include <span>
#include <vector>

#include "runtime/dispatch/dispatch.h"

namespace lucid::runtime {

/// The operation's outputs as its simpler nodes give them. Inputs are tensors or absent, of the
/// dtypes that the operation takes (nothing is promoted); gradients are off.
/// Throws UserError if the operation has no decomposition, and what infer throws.
std::vector<Variable> decompose(const ir::Op& op, std::span<const Operand> operands,
                                ir::Attrs attrs);

}  // namespace lucid::runtime

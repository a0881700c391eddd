// Mixed precision: the casts that dispatch puts in front of an operation by its row's policy.
#pragma once

#include <span>
#include <vector>

#include "runtime/dispatch/dispatch.h"

namespace lucid::runtime {

/// True if this thread's mode on that device asks for casts in front of the operation.
bool casts_operands(const ir::Op& op, Device device);

/// The operands of a call as its policy wants them. The casts are ordinary operations: they are
/// recorded in a trace and have gradients.
std::vector<Operand> autocast_operands(const ir::Op& op, std::span<const Operand> operands,
                                       Device device);

}  // namespace lucid::runtime

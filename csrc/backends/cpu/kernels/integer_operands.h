// Integer operands for which an operation has no value: a divisor of 0, a negative exponent.
#pragma once

#include <memory>

#include "backends/cpu/kernel.h"

namespace lucid::cpu {

/// True for floor_divide, remainder, fmod and pow of integers: their second operand must be
/// looked at in each run.
bool has_refused_operands(const NodeView& view);

/// A kernel that looks at the second operand, then runs `inner`. Its run throws UserError for a
/// divisor of 0 or a negative exponent before anything is written.
std::unique_ptr<Kernel> with_checked_operand(const NodeView& view, std::unique_ptr<Kernel> inner);

}  // namespace lucid::cpu

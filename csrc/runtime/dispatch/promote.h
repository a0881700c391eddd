// Type promotion of element-wise operands, by PyTorch's rules.
#pragma once

#include <span>

#include "runtime/dispatch/dispatch.h"

namespace lucid::runtime {

/// The dtype that operands [first, end) meet in: the highest class (bool < integer < floating)
/// decides, and within it tensors with axes before 0-d tensors before numbers. Integers go to
/// the default floating dtype if `to_float`.
DType common_dtype(std::span<const Operand> operands, bool to_float);

}  // namespace lucid::runtime

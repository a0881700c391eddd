// Matrix products that are right on every GPU.
#pragma once

#include "backends/metal/lowering.h"

namespace lucid::metal {

/// (..., M, K) times (..., K, N) of equal ranks of 2 or 3. Inner sizes that some GPUs read past are
/// added up from parts, in float32.
Tensor multiplied(Lowering& b, Tensor lhs, const Shape& lhs_shape, Tensor rhs,
                  const Shape& rhs_shape);

}  // namespace lucid::metal

// A shape seen from one axis.
#pragma once

#include <cstddef>
#include <cstdint>

#include "support/shape.h"

namespace lucid::cpu {

/// (outer, length, inner) around an axis; a scalar counts as one axis of size 1.
struct AxisSplit {
  AxisSplit(const Shape& shape, int64_t dim) {
    if (shape.rank() == 0) return;
    const auto axis = static_cast<size_t>(dim);
    outer = product(shape.sizes().first(axis));
    length = shape.sizes()[axis];
    inner = product(shape.sizes().subspan(axis + 1));
  }

  int64_t outer = 1;
  int64_t length = 1;
  int64_t inner = 1;
};

}  // namespace lucid::cpu

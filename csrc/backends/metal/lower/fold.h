// An axis in the middle of three: (outer, size, inner). Sorting, scanning and scattering take only
// some axes on Metal; in this form every axis is one of the last four.
#pragma once

#include "support/shape.h"

namespace lucid::metal {

struct Fold {
  int64_t outer = 1;
  int64_t size = 1;
  int64_t inner = 1;

  Fold(const Shape& shape, int64_t dim) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      int64_t& part = axis < dim ? outer : axis == dim ? size : inner;
      part *= shape[axis];
    }
  }
  Shape shape() const { return Shape{outer, size, inner}; }
};

}  // namespace lucid::metal

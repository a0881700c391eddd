// Where the elements of a value lie inside another one's memory.
#pragma once

#include <array>
#include <cstdint>

#include "support/shape.h"

namespace lucid::cpu {

/// Element (i, j, ...) lies at offset + i strides[0] + j strides[1] + ..., in elements.
struct StridedView {
  int64_t offset = 0;
  std::array<int64_t, kMaxRank> strides{};
};

inline StridedView dense_view(const Shape& shape) { return {0, shape.strides()}; }

}  // namespace lucid::cpu

// Where the elements of a value lie inside another one's memory.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "support/shape.h"

namespace lucid::cpu {

/// Element (i, j, ...) lies at offset + i strides[0] + j strides[1] + ..., in elements.
struct StridedView {
  int64_t offset = 0;
  std::array<int64_t, kMaxRank> strides{};
};

inline StridedView dense_view(const Shape& shape) { return {0, shape.strides()}; }

/// Where the elements of a value of shape `from` lie, seen as one of shape `to`, if strides can
/// tell. Both have the same number of elements.
std::optional<StridedView> reshaped_view(const Shape& from, const StridedView& view,
                                         const Shape& to);

}  // namespace lucid::cpu

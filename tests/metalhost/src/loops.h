// Loops and checks that the operations share.
#pragma once

#include <string>
#include <vector>

#include "node.h"
#include "refuse.h"

namespace metalhost {

/// Right-aligned as in NumPy; ends the process if the shapes do not fit.
Shape broadcast_shape(const std::string& op, const Shape& lhs, const Shape& rhs);

/// For each element of `target`, the offset in a packed array of `source` that broadcasts to it.
std::vector<int64_t> broadcast_offsets(const Shape& source, const Shape& target);

/// For each index of `shape` in row-major order, the dot product with `strides` plus `base`.
std::vector<int64_t> strided_offsets(const Shape& shape, const Shape& strides, int64_t base);

/// Takes elements by offset, whatever their type; a negative offset takes zero bytes.
Array take(const Array& source, Type type, const std::vector<int64_t>& offsets);

void require_axis(const std::string& op, int64_t axis, int64_t rank);
/// MPSNDArray's scans and sorts know the last four axes only.
void require_inner_axis(const std::string& op, int64_t axis, int64_t rank);
void require_float(const std::string& op, const Type& type);
void require_same_type(const std::string& op, const Type& lhs, const Type& rhs);

/// One axis seen as outer x length x inner.
struct AxisView {
  int64_t outer = 1;
  int64_t length = 1;
  int64_t inner = 1;

  AxisView(const Shape& shape, int64_t axis);
  int64_t at(int64_t before, int64_t position, int64_t after) const {
    return (before * length + position) * inner + after;
  }
};

}  // namespace metalhost

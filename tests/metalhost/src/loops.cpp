#include "loops.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace metalhost {

Shape broadcast_shape(const std::string& op, const Shape& lhs, const Shape& rhs) {
  const size_t rank = std::max(lhs.size(), rhs.size());
  Shape result(rank, 1);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t left = i < lhs.size() ? lhs[lhs.size() - 1 - i] : 1;
    const int64_t right = i < rhs.size() ? rhs[rhs.size() - 1 - i] : 1;
    if (left != right && left != 1 && right != 1) {
      refuse(op,
             "requires broadcast compatible shapes, got " + text_of(lhs) + " and " + text_of(rhs));
    }
    result[rank - 1 - i] = left == 1 ? right : left;
  }
  return result;
}

std::vector<int64_t> strided_offsets(const Shape& shape, const Shape& strides, int64_t base) {
  std::vector<int64_t> offsets = {base};
  offsets.reserve(static_cast<size_t>(num_elements(shape)));
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    std::vector<int64_t> finer;
    finer.reserve(offsets.size() * static_cast<size_t>(shape[axis]));
    for (const int64_t offset : offsets) {
      for (int64_t i = 0; i < shape[axis]; ++i) finer.push_back(offset + i * strides[axis]);
    }
    offsets = std::move(finer);
  }
  return offsets;
}

std::vector<int64_t> broadcast_offsets(const Shape& source, const Shape& target) {
  const Shape packed = packed_strides(source);
  Shape strides(target.size(), 0);
  const size_t skipped = target.size() - source.size();
  for (size_t i = 0; i < source.size(); ++i) {
    strides[skipped + i] = source[i] == 1 ? 0 : packed[i];
  }
  return strided_offsets(target, strides, 0);
}

Array take(const Array& source, Type type, const std::vector<int64_t>& offsets) {
  const auto size = static_cast<size_t>(size_of(type.data_type));
  std::vector<uint8_t> bytes(offsets.size() * size);
  const uint8_t* const from = source.bytes().data();
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] < 0) continue;
    std::memcpy(bytes.data() + i * size, from + static_cast<size_t>(offsets[i]) * size, size);
  }
  return {std::move(type), std::move(bytes)};
}

void require_axis(const std::string& op, int64_t axis, int64_t rank) {
  if (axis >= 0 && axis < rank) return;
  refuse(op, "axis " + std::to_string(axis) + " is out of range for rank " + std::to_string(rank));
}

void require_inner_axis(const std::string& op, int64_t axis, int64_t rank) {
  require_axis(op, axis, rank);
  if (rank - axis <= 4) return;
  fail_assertion("MPSNDArrayScan.mm",
                 "[" + op + "] Error: This class only supports axis = 0, 1, 2, 3");
}

void require_float(const std::string& op, const Type& type) {
  if (is_float(type.data_type)) return;
  refuse(op, "operand #0 must be tensor of floating point values, but got '" + text_of(type) + "'");
}

void require_same_type(const std::string& op, const Type& lhs, const Type& rhs) {
  if (lhs.data_type == rhs.data_type) return;
  refuse(op, "requires the same element type for all operands and results, got '" + text_of(lhs) +
                 "' and '" + text_of(rhs) + "'");
}

AxisView::AxisView(const Shape& shape, int64_t axis) {
  for (int64_t i = 0; i < static_cast<int64_t>(shape.size()); ++i) {
    const int64_t extent = shape[static_cast<size_t>(i)];
    (i < axis ? outer : i > axis ? inner : length) *= extent;
  }
}

}  // namespace metalhost

// Constants and index grids.
#include <cmath>
#include <utility>

#include "loops.h"
#include "ops.h"

namespace metalhost {

Op constant(const Type& type, double value) {
  if (!is_known(type.data_type)) refuse("constant", "has an unknown element type");
  // As a Bool 1.0 is stored as 255: https://github.com/pytorch/pytorch, operation Fill.
  if (type.data_type == DataType::kBool) {
    const auto byte = static_cast<uint8_t>(value != 0 ? 0xff : 0);
    return constant_data(type, std::vector<uint8_t>(static_cast<size_t>(type.size_bytes()), byte));
  }
  const auto count = static_cast<size_t>(num_elements(type.shape));
  const Array filled =
      is_float(type.data_type)
          ? Array::from_floats(type, std::vector<float>(count, static_cast<float>(value)))
          : Array::from_integers(type, std::vector<int64_t>(count, static_cast<int64_t>(value)));
  return single("constant", type, [=](Inputs) { return filled; });
}

Op constant_data(const Type& type, std::vector<uint8_t> bytes) {
  if (static_cast<int64_t>(bytes.size()) != type.size_bytes()) {
    refuse("constant", "has " + std::to_string(bytes.size()) + " bytes for '" + text_of(type) +
                           "', which takes " + std::to_string(type.size_bytes()));
  }
  const Array data(type, std::move(bytes));
  return single("constant", type, [=](Inputs) { return data; });
}

Op coordinate(int64_t axis, const Shape& shape) {
  const auto rank = static_cast<int64_t>(shape.size());
  if (axis < 0) axis += rank;
  require_axis("coordinate", axis, rank);
  const Type type{DataType::kInt32, shape};
  return single("coordinate", type, [=](Inputs) {
    Shape strides(shape.size(), 0);
    strides[static_cast<size_t>(axis)] = 1;
    return Array::from_integers(type, strided_offsets(shape, strides, 0));
  });
}

Op shape_of(const Type& operand) {
  if (operand.shape.empty()) refuse("shape", "does not take a tensor of rank 0");
  const Type type{DataType::kInt32, {operand.rank()}};
  return single("shape", type, [=](Inputs) { return Array::from_integers(type, operand.shape); });
}

}  // namespace metalhost

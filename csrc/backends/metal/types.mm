#include "backends/metal/types.h"

#include <limits>
#include <string>

#include "support/errors.h"

namespace lucid::metal {

MPSDataType mps_type(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return MPSDataTypeBool;
    case DType::kUInt8:
      return MPSDataTypeUInt8;
    case DType::kInt8:
      return MPSDataTypeInt8;
    case DType::kInt16:
      return MPSDataTypeInt16;
    case DType::kInt32:
      return MPSDataTypeInt32;
    case DType::kInt64:
      return MPSDataTypeInt64;
    case DType::kFloat16:
      return MPSDataTypeFloat16;
    case DType::kBFloat16:
      return MPSDataTypeBFloat16;
    case DType::kFloat32:
      return MPSDataTypeFloat32;
    case DType::kFloat64:
      break;
  }
  throw Error(ErrorKind::kUnsupported,
              "dtype does not exist on metal: float64; cast to float32, or use device cpu");
}

MPSShape* mps_shape(const Shape& shape) {
  if (shape.rank() == 0) return @[ @1 ];
  return mps_numbers(shape.sizes());
}

NSArray<NSNumber*>* mps_numbers(std::span<const int64_t> values) {
  NSMutableArray<NSNumber*>* numbers = [NSMutableArray arrayWithCapacity:values.size()];
  for (const int64_t value : values) [numbers addObject:[NSNumber numberWithLongLong:value]];
  return numbers;
}

void check_limits(const char* what, const ir::ValueType& type) {
  constexpr int64_t kMaxElements = std::numeric_limits<int32_t>::max();
  constexpr int64_t kMaxBytes = (int64_t{1} << 32) - 1;
  bool fits = type.num_elements() <= kMaxElements && type.size_bytes() <= kMaxBytes;
  for (const int64_t size : type.shape.sizes()) fits = fits && size <= kMaxElements;
  if (fits) return;
  throw Error(ErrorKind::kUnsupported,
              std::string(what) + ": tensor is too large for metal: " + ir::to_string(type) +
                  "; keep it under 2^31 elements and 4 GiB, split it or use device cpu");
}

}  // namespace lucid::metal

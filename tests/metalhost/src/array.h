// Typed arrays in host memory: what a graph of the double computes on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace metalhost {

/// Element types; the values are those of MPSDataType.
enum class DataType : uint32_t {
  kUInt8 = 0x00000008,
  kUInt16 = 0x00000010,
  kUInt32 = 0x00000020,
  kUInt64 = 0x00000040,
  kFloat16 = 0x10000010,
  kFloat32 = 0x10000020,
  kInt8 = 0x20000008,
  kInt16 = 0x20000010,
  kInt32 = 0x20000020,
  kInt64 = 0x20000040,
  kBool = 0x80000008,
  kBFloat16 = 0x90000010,
};

using Shape = std::vector<int64_t>;

bool is_known(DataType type);
bool is_float(DataType type);
bool is_unsigned(DataType type);
int64_t size_of(DataType type);
/// As in the framework's messages: "f32", "si32", "i1".
const char* name_of(DataType type);
std::string text_of(const Shape& shape);
int64_t num_elements(const Shape& shape);
/// Elements to step for one step along each axis of a packed array.
Shape packed_strides(const Shape& shape);

struct Type {
  DataType data_type = DataType::kFloat32;
  Shape shape;

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  int64_t size_bytes() const { return num_elements(shape) * size_of(data_type); }
};
std::string text_of(const Type& type);

/// A packed array; copies share the bytes, which nobody writes after construction.
class Array {
 public:
  Array() = default;
  Array(Type type, std::vector<uint8_t> bytes);
  /// Rounds to the element type: to nearest even for floats, as a cast for integers.
  static Array from_floats(Type type, const std::vector<float>& values);
  /// Keeps the low bits; a bool is value != 0.
  static Array from_integers(Type type, const std::vector<int64_t>& values);

  const Type& type() const { return type_; }
  const Shape& shape() const { return type_.shape; }
  const std::vector<uint8_t>& bytes() const { return *bytes_; }
  std::vector<float> floats() const;
  /// UInt64 keeps its bits.
  std::vector<int64_t> integers() const;
  /// The same bytes under another type of equal size.
  Array as(Type type) const;

 private:
  Type type_;
  std::shared_ptr<const std::vector<uint8_t>> bytes_;
};

}  // namespace metalhost

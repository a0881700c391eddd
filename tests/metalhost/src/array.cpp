#include "array.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

namespace metalhost {
namespace {

struct Traits {
  DataType type;
  const char* name;
};

constexpr Traits kTraits[] = {
    {DataType::kUInt8, "ui8"},   {DataType::kUInt16, "ui16"}, {DataType::kUInt32, "ui32"},
    {DataType::kUInt64, "ui64"}, {DataType::kFloat16, "f16"}, {DataType::kFloat32, "f32"},
    {DataType::kInt8, "si8"},    {DataType::kInt16, "si16"},  {DataType::kInt32, "si32"},
    {DataType::kInt64, "si64"},  {DataType::kBool, "i1"},     {DataType::kBFloat16, "bf16"},
};

uint32_t bits_of(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float float_of(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint16_t to_bfloat(float value) {
  const uint32_t bits = bits_of(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float from_bfloat(uint16_t half) { return float_of(uint32_t{half} << 16); }

// IEEE 754 binary16: 5 bits of exponent, 10 of fraction.
uint16_t to_half(float value) {
  const uint32_t sign = (bits_of(value) >> 16) & 0x8000;
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 65520.0F) return static_cast<uint16_t>(sign | 0x7c00);
  // One step of the half's grid at this magnitude; below 2^-14 the grid is that of subnormals.
  const int exponent = magnitude < 0x1p-14F ? -14 : std::ilogb(magnitude);
  const float steps = std::nearbyint(std::ldexp(magnitude, 10 - exponent));
  const auto fraction = static_cast<uint32_t>(steps);  // 1024..2048, or below for subnormals
  const uint32_t biased = static_cast<uint32_t>(exponent + 14) << 10;
  return static_cast<uint16_t>(sign | (biased + fraction));
}

float from_half(uint16_t half) {
  const int exponent = (half >> 10) & 0x1f;
  const int fraction = half & 0x3ff;
  float magnitude = 0;
  if (exponent == 0x1f) {
    magnitude = fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                              : std::numeric_limits<float>::infinity();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  }
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

// Out of range the nearest value is taken, NaN gives 0.
template <class Integer>
int64_t truncated(float value) {
  if (std::isnan(value)) return 0;
  const auto low = static_cast<float>(std::numeric_limits<Integer>::min());
  const auto high = static_cast<float>(std::numeric_limits<Integer>::max());
  if (value <= low) return static_cast<int64_t>(std::numeric_limits<Integer>::min());
  if (value >= high) return static_cast<int64_t>(std::numeric_limits<Integer>::max());
  return static_cast<int64_t>(static_cast<Integer>(value));
}

int64_t to_integer(float value, DataType type) {
  switch (type) {
    case DataType::kUInt8:
      return truncated<uint8_t>(value);
    case DataType::kUInt16:
      return truncated<uint16_t>(value);
    case DataType::kUInt32:
      return truncated<uint32_t>(value);
    case DataType::kUInt64:
      return truncated<uint64_t>(value);
    case DataType::kInt8:
      return truncated<int8_t>(value);
    case DataType::kInt16:
      return truncated<int16_t>(value);
    case DataType::kInt32:
      return truncated<int32_t>(value);
    case DataType::kBool:
      return value != 0 ? 1 : 0;
    default:
      return truncated<int64_t>(value);
  }
}

template <class Stored, class Value, class Convert>
std::vector<uint8_t> pack(const std::vector<Value>& values, Convert convert) {
  std::vector<uint8_t> bytes(values.size() * sizeof(Stored));
  for (size_t i = 0; i < values.size(); ++i) {
    const Stored stored = convert(values[i]);
    std::memcpy(bytes.data() + i * sizeof stored, &stored, sizeof stored);
  }
  return bytes;
}

template <class Stored, class Value, class Convert>
std::vector<Value> unpack(const std::vector<uint8_t>& bytes, Convert convert) {
  std::vector<Value> values(bytes.size() / sizeof(Stored));
  for (size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof stored, sizeof stored);
    values[i] = static_cast<Value>(convert(stored));
  }
  return values;
}

template <class Stored>
std::vector<int64_t> widen(const std::vector<uint8_t>& bytes) {
  return unpack<Stored, int64_t>(bytes, [](Stored value) { return value; });
}

}  // namespace

bool is_known(DataType type) {
  for (const Traits& traits : kTraits) {
    if (traits.type == type) return true;
  }
  return false;
}

bool is_float(DataType type) {
  return type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBFloat16;
}

bool is_unsigned(DataType type) {
  return type == DataType::kUInt8 || type == DataType::kUInt16 || type == DataType::kUInt32 ||
         type == DataType::kUInt64;
}

int64_t size_of(DataType type) { return (static_cast<uint32_t>(type) & 0xffff) >> 3; }

const char* name_of(DataType type) {
  for (const Traits& traits : kTraits) {
    if (traits.type == type) return traits.name;
  }
  return "unknown";
}

std::string text_of(const Shape& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + ")";
}

std::string text_of(const Type& type) {
  std::string text = "tensor<";
  for (const int64_t length : type.shape) text += std::to_string(length) + "x";
  return text + name_of(type.data_type) + ">";
}

int64_t num_elements(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t length : shape) count *= length;
  return count;
}

Shape packed_strides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

Array::Array(Type type, std::vector<uint8_t> bytes)
    : type_(std::move(type)),
      bytes_(std::make_shared<const std::vector<uint8_t>>(std::move(bytes))) {
  if (static_cast<int64_t>(bytes_->size()) != type_.size_bytes()) std::abort();
}

Array Array::as(Type type) const {
  Array result = *this;
  result.type_ = std::move(type);
  if (static_cast<int64_t>(bytes_->size()) != result.type_.size_bytes()) std::abort();
  return result;
}

Array Array::from_floats(Type type, const std::vector<float>& values) {
  switch (type.data_type) {
    case DataType::kFloat32: {
      std::vector<uint8_t> bytes(values.size() * sizeof(float));
      if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
      return {std::move(type), std::move(bytes)};
    }
    case DataType::kFloat16:
      return {std::move(type), pack<uint16_t>(values, to_half)};
    case DataType::kBFloat16:
      return {std::move(type), pack<uint16_t>(values, to_bfloat)};
    default: {
      std::vector<int64_t> integers(values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        integers[i] = to_integer(values[i], type.data_type);
      }
      return from_integers(std::move(type), integers);
    }
  }
}

Array Array::from_integers(Type type, const std::vector<int64_t>& values) {
  if (type.data_type == DataType::kBool) {
    return {std::move(type), pack<uint8_t>(values, [](int64_t value) { return value != 0; })};
  }
  if (is_float(type.data_type)) {
    std::vector<float> floats(values.size());
    for (size_t i = 0; i < values.size(); ++i) floats[i] = static_cast<float>(values[i]);
    return from_floats(std::move(type), floats);
  }
  switch (size_of(type.data_type)) {
    case 1:
      return {std::move(type),
              pack<uint8_t>(values, [](int64_t value) { return static_cast<uint8_t>(value); })};
    case 2:
      return {std::move(type),
              pack<uint16_t>(values, [](int64_t value) { return static_cast<uint16_t>(value); })};
    case 4:
      return {std::move(type),
              pack<uint32_t>(values, [](int64_t value) { return static_cast<uint32_t>(value); })};
    default:
      return {std::move(type), pack<int64_t>(values, [](int64_t value) { return value; })};
  }
}

std::vector<float> Array::floats() const {
  switch (type_.data_type) {
    case DataType::kFloat32: {
      std::vector<float> values(bytes_->size() / sizeof(float));
      if (!values.empty()) std::memcpy(values.data(), bytes_->data(), bytes_->size());
      return values;
    }
    case DataType::kFloat16:
      return unpack<uint16_t, float>(*bytes_, from_half);
    case DataType::kBFloat16:
      return unpack<uint16_t, float>(*bytes_, from_bfloat);
    case DataType::kUInt64:
      return unpack<uint64_t, float>(*bytes_, [](uint64_t value) { return value; });
    default: {
      const std::vector<int64_t> values = integers();
      std::vector<float> result(values.size());
      for (size_t i = 0; i < values.size(); ++i) result[i] = static_cast<float>(values[i]);
      return result;
    }
  }
}

std::vector<int64_t> Array::integers() const {
  switch (type_.data_type) {
    case DataType::kUInt8:
    case DataType::kBool:
      return widen<uint8_t>(*bytes_);
    case DataType::kUInt16:
      return widen<uint16_t>(*bytes_);
    case DataType::kUInt32:
      return widen<uint32_t>(*bytes_);
    case DataType::kInt8:
      return widen<int8_t>(*bytes_);
    case DataType::kInt16:
      return widen<int16_t>(*bytes_);
    case DataType::kInt32:
      return widen<int32_t>(*bytes_);
    case DataType::kInt64:
    case DataType::kUInt64:
      return widen<int64_t>(*bytes_);
    default: {
      const std::vector<float> values = floats();
      std::vector<int64_t> result(values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        result[i] = to_integer(values[i], DataType::kInt64);
      }
      return result;
    }
  }
}

}  // namespace metalhost

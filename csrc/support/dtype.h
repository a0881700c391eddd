// Element types: their names, sizes and classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lucid {

/// Type of one element. Order within a class is the promotion order.
enum class DType : uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
};

inline constexpr int kNumDTypes = 10;

/// Bytes of one element.
constexpr int64_t size_bytes(DType dtype) {
  constexpr int64_t kSizes[kNumDTypes] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};
  return kSizes[static_cast<size_t>(dtype)];
}

constexpr bool is_floating(DType dtype) { return dtype >= DType::kFloat16; }
constexpr bool is_integer(DType dtype) { return dtype >= DType::kUInt8 && dtype <= DType::kInt64; }
constexpr bool is_half(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

/// "float32", "int64", "bool", ...
std::string_view name(DType dtype);

/// The dtype of that name, or nothing.
std::optional<DType> dtype_from_name(std::string_view name);

/// The smallest dtype that holds values of both: bool < integers < floating.
DType promote(DType lhs, DType rhs);

}  // namespace lucid

#include "support/dtype.h"

#include <algorithm>
#include <array>

namespace lucid {
namespace {

constexpr std::array<std::string_view, kNumDTypes> kNames = {
    "bool",  "uint8",   "int8",     "int16",   "int32",
    "int64", "float16", "bfloat16", "float32", "float64"};

}  // namespace

std::string_view name(DType dtype) { return kNames[static_cast<size_t>(dtype)]; }

std::optional<DType> dtype_from_name(std::string_view name) {
  const auto it = std::find(kNames.begin(), kNames.end(), name);
  if (it == kNames.end()) return std::nullopt;
  return static_cast<DType>(it - kNames.begin());
}

DType promote(DType lhs, DType rhs) {
  const auto [low, high] = std::minmax(lhs, rhs);
  if (low == DType::kUInt8 && high == DType::kInt8) return DType::kInt16;
  if (low == DType::kFloat16 && high == DType::kBFloat16) return DType::kFloat32;
  return high;
}

}  // namespace lucid

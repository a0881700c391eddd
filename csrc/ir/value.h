// Values of a graph: their ids and types.
#pragma once

#include <cstdint>
#include <string>

#include "support/dtype.h"
#include "support/shape.h"

namespace lucid::ir {

/// Index of a value in its graph.
enum class ValueId : uint32_t {};

constexpr uint32_t index(ValueId id) { return static_cast<uint32_t>(id); }

/// Element type and shape of a value; always dense and row-major.
struct ValueType {
  DType dtype = DType::kFloat32;
  Shape shape;

  int64_t num_elements() const { return shape.num_elements(); }
  int64_t size_bytes() const { return shape.num_elements() * lucid::size_bytes(dtype); }
  bool operator==(const ValueType&) const = default;
};

/// "float32[2, 3]".
std::string to_string(const ValueType& type);

}  // namespace lucid::ir

// Attribute values of nodes and the schema that an operation declares for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "support/dtype.h"

namespace lucid::ir {

using Ints = std::vector<int64_t>;

/// One attribute value. A kNumber attribute holds int64_t or double.
using AttrValue = std::variant<bool, int64_t, double, DType, std::string, Ints>;

enum class AttrType : uint8_t { kBool, kInt, kFloat, kNumber, kDType, kString, kInts };

/// What an operation declares of one attribute.
struct AttrSpec {
  std::string_view name;
  AttrType type;
  /// A run-time attribute is read by the kernel at each run and is no part of the eager key.
  bool run_time = false;
};

/// Values in the order of the operation's schema.
using Attrs = std::vector<AttrValue>;

/// True if the value may stand for an attribute of that type.
bool fits(const AttrValue& value, AttrType type);

/// `true`, `3`, `0.5`, `float32`, `"text"` (bytes escaped), `[1, 2]`; doubles keep every bit, but
/// a nan keeps its sign only.
std::string to_string(const AttrValue& value);

/// Equal type and bits: 0.0 and -0.0 differ, a nan equals itself.
bool identical(const AttrValue& lhs, const AttrValue& rhs);

/// Appends bytes that are equal exactly for identical values.
void append_key(std::string& key, const AttrValue& value);

}  // namespace lucid::ir

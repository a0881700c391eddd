// The registry: every operation of every family, found by name.
#pragma once

#include <span>
#include <string_view>

#include "ir/op.h"

namespace lucid::ops {

/// All operations, in the order of their families.
std::span<const ir::Op> all();

/// The operation of that name, or null.
const ir::Op* find(std::string_view name);

/// The operation of that name. Throws InternalError if there is none.
const ir::Op& get(std::string_view name);

}  // namespace lucid::ops

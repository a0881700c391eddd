// Cache of one-node executables: eager execution is a lookup here and a run.
#pragma once

#include <span>
#include <vector>

#include "backends/backend.h"
#include "ir/graph.h"

namespace lucid::runtime {

/// A compiled one-node graph.
struct EagerEntry {
  backends::ExecutableRef executable;
  ir::ValueTypes outputs;
  bool is_long = false;  ///< a run takes long enough to let other threads have the host
};

/// The entry of a call, compiled on a miss. Run-time attributes are no part of the key; the
/// output types are, so infer is called first where an operation has such attributes.
std::shared_ptr<const EagerEntry> eager_entry(const ir::Op& op,
                                              std::span<const std::optional<ir::ValueType>> inputs,
                                              const ir::Attrs& attrs, Device device);

/// Number of entries now, and the bound.
size_t eager_cache_size();
void clear_eager_cache();

}  // namespace lucid::runtime

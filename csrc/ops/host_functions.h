// What the core asks of functions that users write in the language above; bindings implement it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "ir/graph.h"

namespace lucid::ops {

/// A dense row-major array of the core's, lent for one call.
struct HostArray {
  void* data = nullptr;
  ir::ValueType type{};
};

/// Which gradients a call asks for. The inputs of the call are those of the function, then its
/// outputs, then the gradients of the outputs that `given` lists.
struct HostGradient {
  int64_t num_inputs = 0;
  const ir::Ints& given;
  const ir::Ints& wanted;  ///< inputs of the function whose gradients are the results
};

/// One call of a function or of its gradient rule.
struct HostCall {
  std::string_view function;   ///< the name it was defined under
  std::string_view arguments;  ///< its keyword arguments as text
  std::span<const HostArray> inputs;
  std::span<const HostArray> results;  ///< to be written, every element
  const HostGradient* gradient = nullptr;
  ir::LocationRef location;
  /// Shares the memory of all arrays, for a borrower that outlives a call that fails.
  std::function<std::shared_ptr<void>()> share_memory;
};

class HostFunctions {
 public:
  virtual ~HostFunctions() = default;
  /// Calls it. May be called from any thread. Throws what the function throws, and lucid::Error
  /// for results that do not have the types of `call.results`.
  virtual void call(const HostCall& call) const = 0;
};

/// True if a node of the operation calls the host.
bool calls_host(const ir::Op& op);

/// The process's host; null until bindings set it.
const HostFunctions* host_functions();
void set_host_functions(const HostFunctions* host);

}  // namespace lucid::ops

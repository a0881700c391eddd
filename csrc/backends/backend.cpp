#include "backends/backend.h"

#include "backends/cpu/cpu_backend.h"
#include "planner/plan.h"
#include "support/errors.h"

namespace lucid::backends {

int64_t Backend::arena_bytes(const ir::Graph& graph, std::span<const int64_t> scratch_sizes) {
  return planner::plan(graph, scratch_sizes).arena_bytes;
}

Backend& backend_for(Device device) {
  if (device == Device::kCpu) return cpu::backend();
  throw Error(ErrorKind::kDeviceUnavailable,
              "device metal: not available in this build; needs macOS 14 or later on an Apple GPU; "
              "available: cpu");
}

}  // namespace lucid::backends

#include "backends/backend.h"

#include "backends/cpu/cpu_backend.h"
#include "planner/plan.h"
#include "support/errors.h"
#if defined(LUCID_HAS_METAL)
#include "backends/metal/metal_backend.h"
#endif

namespace lucid::backends {

int64_t Backend::arena_bytes(const ir::Graph& graph, std::span<const int64_t> scratch_sizes) {
  return planner::plan(graph, scratch_sizes).arena_bytes;
}

bool is_available(Device device) {
#if defined(LUCID_HAS_METAL)
  if (device == Device::kMetal) return metal::is_available();
#endif
  return device == Device::kCpu;
}

Backend& backend_for(Device device) {
  if (device == Device::kCpu) return cpu::backend();
#if defined(LUCID_HAS_METAL)
  if (metal::is_available()) return metal::backend();
  const std::string where = metal::unavailable_where();
#else
  const std::string where = "in this build";
#endif
  throw Error(ErrorKind::kDeviceUnavailable,
              "device metal: not available " + where +
                  "; needs macOS 14 or later on an Apple GPU; available: cpu");
}

}  // namespace lucid::backends

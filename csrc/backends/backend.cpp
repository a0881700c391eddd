#include "backends/backend.h"

#include "backends/cpu/cpu_backend.h"
#include "support/errors.h"

namespace lucid::backends {

Backend& backend_for(Device device) {
  if (device == Device::kCpu) return cpu::backend();
  throw Error(ErrorKind::kDeviceUnavailable,
              "device metal: not available in this build; needs macOS 14 or later on an Apple GPU; "
              "available: cpu");
}

}  // namespace lucid::backends

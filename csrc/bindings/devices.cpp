// Devices: copies between them, their memory, and waiting for them.
#include <string>

#include "backends/backend.h"
#include "bindings/convert.h"
#include "runtime/tensor/transfer.h"
#include "support/errors.h"

namespace lucid::bindings {
namespace {

/// The backend of "metal", or null where there is none.
backends::Backend* metal() {
  return backends::is_available(Device::kMetal) ? &backends::backend_for(Device::kMetal) : nullptr;
}

}  // namespace

void bind_devices(py::module_& m) {
  m.def("to_device", [](const py::object& tensor, const std::string& device) {
    return runtime::to_device(require_tensor(tensor, "to: the tensor"),
                              device == "cpu" ? Device::kCpu : Device::kMetal);
  });
  m.def("metal_is_available", [] { return metal() != nullptr; });
  m.def("metal_device_name", [] { return backends::backend_for(Device::kMetal).device_name(); });
  m.def(
      "metal_synchronize",
      [] {
        if (metal() != nullptr) metal()->synchronize();
      },
      py::call_guard<py::gil_scoped_release>());
  m.def("metal_memory_allocated",
        [] { return metal() == nullptr ? int64_t{0} : metal()->allocated_bytes(); });
  m.def("metal_max_memory_allocated",
        [] { return metal() == nullptr ? int64_t{0} : metal()->peak_allocated_bytes(); });
  m.def("metal_reset_peak_memory", [] {
    if (metal() != nullptr) metal()->reset_peak();
  });
  m.def("metal_empty_cache", [] {
    if (metal() != nullptr) metal()->empty_cache();
  });
}

}  // namespace lucid::bindings

// Copies of tensors between devices.
#pragma once

#include "runtime/tensor/tensor.h"

namespace lucid::runtime {

/// The tensor on `device`: itself if it is there. A gradient is copied back.
/// Throws DeviceUnavailableError, UnsupportedError for a dtype that the device lacks, and
/// TraceError in a trace.
TensorRef to_device(const TensorRef& tensor, Device device);

}  // namespace lucid::runtime

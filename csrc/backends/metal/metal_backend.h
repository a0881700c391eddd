// The metal backend: graphs as MPSGraph executables over shared MTLBuffers.
#pragma once

#include <string>

#include "backends/backend.h"

namespace lucid::metal {

/// True if the system has a Metal device that can run graphs.
bool is_available();

/// Where the device was looked for, for the message that says there is none.
std::string unavailable_where();

/// The one backend of the process. Call only if is_available().
backends::Backend& backend();

}  // namespace lucid::metal

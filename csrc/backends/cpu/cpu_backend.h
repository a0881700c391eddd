// The cpu backend: kernels of all nodes, made once, run over a planned arena.
#pragma once

#include "backends/backend.h"

namespace lucid::cpu {

backends::Backend& backend();

}  // namespace lucid::cpu

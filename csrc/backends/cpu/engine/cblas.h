// Large float32 products by a CBLAS: Accelerate on macOS, OpenBLAS elsewhere.
#pragma once

#include <memory>

#include "backends/cpu/engine/gemm.h"

namespace lucid::cpu {

/// Present where LUCID_HAS_CBLAS is defined. Calls take slices of rows fixed by the shape.
std::unique_ptr<Gemm> make_cblas_gemm(const GemmSpec& spec);

}  // namespace lucid::cpu

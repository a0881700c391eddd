// Large float32 products by a library: oneDNN, else CBLAS, else none.
#pragma once

#include <memory>
#include <string>

#include "backends/cpu/engine/gemm.h"

namespace lucid::cpu {

/// Null if the build has no library or the library failed its self-check.
std::unique_ptr<Gemm> make_library_gemm(const GemmSpec& spec);

/// "oneDNN 3.2.0", "CBLAS" or "own"; says if a self-check failed.
std::string library_name();

}  // namespace lucid::cpu

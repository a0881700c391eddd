// Products by our own micro-kernels: any shape, float32 and float64.
#pragma once

#include <memory>

#include "backends/cpu/engine/gemm.h"

namespace lucid::cpu {

/// Every element is one chain of fused multiply-adds over k in ascending order, plus bias.
std::unique_ptr<Gemm> make_own_gemm(const GemmSpec& spec);

}  // namespace lucid::cpu

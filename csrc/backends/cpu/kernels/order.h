// Kernels that compare elements along an axis and give indices, and the running sum.
#pragma once

#include "backends/cpu/kernel.h"

namespace lucid::cpu {

std::unique_ptr<Kernel> make_argmax(const NodeView& view);
std::unique_ptr<Kernel> make_argmin(const NodeView& view);
std::unique_ptr<Kernel> make_cumsum(const NodeView& view);
/// Stable; a nan is greater than every number.
std::unique_ptr<Kernel> make_sort(const NodeView& view);

}  // namespace lucid::cpu

#include "backends/cpu/engine/winograd_tiles.h"

namespace lucid::cpu {

template <>
const WinogradKernels<float>& winograd_kernels<float>() {
  static const WinogradKernels<float>& kernels = LUCID_ISA_CALL(active_isa(), kWinogradF32);
  return kernels;
}

template <>
const WinogradKernels<double>& winograd_kernels<double>() {
  static const WinogradKernels<double>& kernels = LUCID_ISA_CALL(active_isa(), kWinogradF64);
  return kernels;
}

}  // namespace lucid::cpu

#include "backends/cpu/engine/window_product.h"

namespace lucid::cpu {

template <>
const WindowProductKernels<float>& window_product_kernels<float>() {
  static const WindowProductKernels<float>& kernels =
      LUCID_ISA_CALL(active_isa(), kWindowProductsF32);
  return kernels;
}

template <>
const WindowProductKernels<double>& window_product_kernels<double>() {
  static const WindowProductKernels<double>& kernels =
      LUCID_ISA_CALL(active_isa(), kWindowProductsF64);
  return kernels;
}

}  // namespace lucid::cpu

#include "backends/cpu/engine/block_product.h"

namespace lucid::cpu {

const BlockProductKernels& block_product_kernels() {
  static const BlockProductKernels& kernels = LUCID_ISA_CALL(active_isa(), kBlockProductKernels);
  return kernels;
}

}  // namespace lucid::cpu

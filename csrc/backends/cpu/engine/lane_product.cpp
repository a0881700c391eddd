#include "backends/cpu/engine/lane_product.h"

namespace lucid::cpu {

template <>
const LaneKernels<float>& lane_kernels<float>() {
  static const LaneKernels<float>& kernels = LUCID_ISA_CALL(active_isa(), kLaneKernelsF32);
  return kernels;
}

template <>
const LaneKernels<double>& lane_kernels<double>() {
  static const LaneKernels<double>& kernels = LUCID_ISA_CALL(active_isa(), kLaneKernelsF64);
  return kernels;
}

}  // namespace lucid::cpu

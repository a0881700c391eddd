// Kernels of floating-point operations for half types: the float32 kernel between conversions.
#pragma once

#include <memory>

#include "backends/cpu/kernel.h"

namespace lucid::cpu {

/// A kernel that converts half operands to float32, runs `inner` and rounds its outputs once.
std::unique_ptr<Kernel> with_half_operands(const NodeView& view, std::unique_ptr<Kernel> inner);

/// An input that may be absent: its pointer, or null. `present` was asked of the NodeView.
template <class T>
const T* input_if(const RunContext& context, bool present, size_t index) {
  return present ? context.in<T>(index) : nullptr;
}

/// The kernel `K<float>` or `K<double>` by the dtype of the first input, wrapped for halves;
/// nothing for other dtypes.
template <template <class> class K>
std::unique_ptr<Kernel> make_floating(const NodeView& view) {
  switch (view.input(0).dtype) {
    case DType::kFloat32:
      return std::make_unique<K<float>>(view);
    case DType::kFloat64:
      return std::make_unique<K<double>>(view);
    case DType::kFloat16:
    case DType::kBFloat16:
      return with_half_operands(view, std::make_unique<K<float>>(view));
    default:
      return nullptr;
  }
}

}  // namespace lucid::cpu

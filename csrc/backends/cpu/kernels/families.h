// The families of kernels, one file each.
#pragma once

#include <span>

#include "backends/cpu/kernel.h"

namespace lucid::cpu {

std::span<const KernelRow> pointwise_kernels();
std::span<const KernelRow> create_kernels();
std::span<const KernelRow> random_kernels();
std::span<const KernelRow> shape_kernels();
std::span<const KernelRow> index_kernels();
std::span<const KernelRow> reduction_kernels();
std::span<const KernelRow> matmul_kernels();
std::span<const KernelRow> convolution_kernels();
std::span<const KernelRow> pooling_kernels();
std::span<const KernelRow> normalization_kernels();
std::span<const KernelRow> loss_kernels();
std::span<const KernelRow> attention_kernels();
std::span<const KernelRow> recurrent_kernels();
std::span<const KernelRow> custom_kernels();

}  // namespace lucid::cpu

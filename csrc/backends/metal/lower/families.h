// The families of lowerings: each gives the rows of its file.
#pragma once

#include <span>

#include "backends/metal/lowering.h"

namespace lucid::metal {

std::span<const LoweringRow> unary_lowerings();
std::span<const LoweringRow> binary_lowerings();
std::span<const LoweringRow> comparison_lowerings();
std::span<const LoweringRow> create_lowerings();
std::span<const LoweringRow> random_lowerings();
std::span<const LoweringRow> shape_lowerings();
std::span<const LoweringRow> index_lowerings();
std::span<const LoweringRow> reduction_lowerings();
std::span<const LoweringRow> order_lowerings();
std::span<const LoweringRow> product_lowerings();
std::span<const LoweringRow> convolution_lowerings();
std::span<const LoweringRow> pooling_lowerings();
std::span<const LoweringRow> normalization_lowerings();
std::span<const LoweringRow> loss_lowerings();
std::span<const LoweringRow> attention_lowerings();

/// Outputs of a node with an empty input and an output that is not empty, which no graph holds:
/// sums of nothing, paddings of nothing. Refuses what it does not know.
Tensors lower_of_empty(Lowering& b, const Node& node);

}  // namespace lucid::metal

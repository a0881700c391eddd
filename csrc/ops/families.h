// The families of operations: each gives the rows of its file. registry.cpp lists them.
#pragma once

#include <vector>

#include "ir/op.h"

namespace lucid::ops {

/// Element-wise arithmetic and functions; made of the two tables below and the activations.
std::vector<ir::Op> pointwise_ops();
/// Element-wise functions of one input: part of pointwise_ops.
std::vector<ir::Op> pointwise_unary_ops();
/// Element-wise arithmetic of two inputs: part of pointwise_ops.
std::vector<ir::Op> pointwise_binary_ops();
/// Comparisons, tests, logic and bits.
std::vector<ir::Op> comparison_ops();
/// Tensors made from attributes alone.
std::vector<ir::Op> create_ops();
/// Draws from a counter-based generator, and dropout.
std::vector<ir::Op> random_ops();
/// Rearrangements of elements by position.
std::vector<ir::Op> shape_ops();
/// Reads and writes at indices held in tensors.
std::vector<ir::Op> index_ops();
/// Reductions along axes, scans and sorting.
std::vector<ir::Op> reduction_ops();
/// Matrix products.
std::vector<ir::Op> product_ops();
/// Convolutions and their gradients.
std::vector<ir::Op> convolution_ops();
/// Pooling and its gradients.
std::vector<ir::Op> pooling_ops();
/// Softmax and the normalisations.
std::vector<ir::Op> normalization_ops();
/// Fused losses.
std::vector<ir::Op> loss_ops();
/// Scaled dot-product attention.
std::vector<ir::Op> attention_ops();
/// Recurrent layers: LSTM, GRU and the plain RNN.
std::vector<ir::Op> recurrent_ops();
/// Operations and gradient rules written in the language above.
std::vector<ir::Op> custom_ops();

}  // namespace lucid::ops

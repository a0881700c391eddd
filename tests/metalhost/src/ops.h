// The operations of the double: operand types in, result types and plain loops out.
//
// Written from Apple's documented semantics, in float32 or 64-bit integers. What Apple leaves open
// is decided against the caller: ties are not stable, plain extrema drop NaN.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "node.h"

namespace metalhost {

// --- elementwise.cpp, binary.cpp
/// `op` is the builder's name without "WithTensor:name:".
Op unary(const std::string& op, const Type& operand);
/// `op` is the builder's name without "WithPrimaryTensor:secondaryTensor:name:".
Op binary(const std::string& op, const Type& lhs, const Type& rhs);
Op select(const Type& predicate, const Type& when_true, const Type& when_false);
Op clamp(const Type& operand, const Type& low, const Type& high);
Op cast(const Type& operand, DataType target);
Op reinterpret_cast_op(const Type& operand, DataType target);
Op leaky_relu(const Type& operand, double alpha);
Op relu_grad(const Type& grad, const Type& source);
Op sigmoid_grad(const Type& grad, const Type& source);
Op leaky_relu_grad(const Type& grad, const Type& source, const Type& alpha);

// --- create.cpp
Op constant(const Type& type, double value);
Op constant_data(const Type& type, std::vector<uint8_t> bytes);
Op coordinate(int64_t axis, const Shape& shape);
Op shape_of(const Type& operand);

// --- reduction.cpp
enum class Reduction { kSum, kProduct, kMax, kMin, kMaxNan, kMinNan, kMean, kAnd, kOr };
Op reduce(Reduction kind, const Type& operand, const Shape& axes);
Op arg_reduce(bool largest, const Type& operand, int64_t axis);
Op variance(const Type& operand, const Shape& axes);
Op variance_around(const Type& operand, const Type& mean, const Shape& axes);
Op softmax(const Type& operand, int64_t axis);
Op softmax_grad(const Type& grad, const Type& source, int64_t axis);
enum class Scan { kSum, kProduct, kMin, kMax };
Op cumulative(Scan kind, const Type& operand, int64_t axis, bool exclusive, bool reverse);
/// Operands: x, mean, variance, and gamma, beta where given.
Op normalization(const std::vector<Type>& operands, bool has_gamma, bool has_beta, float epsilon);

// --- shape.cpp
Op reshape(const Type& operand, const Shape& shape);
Op transpose(const Type& operand, const Shape& permutation);
/// TensorFlow's strided_slice; bit i of a mask is axis i.
struct SliceRange {
  Shape starts, ends, strides;
  uint32_t start_mask = 0, end_mask = 0, squeeze_mask = 0;
};
Op slice(const Type& operand, const SliceRange& range);
Op slice_length(const Type& operand, int64_t axis, int64_t start, int64_t length);
Op slice_update(const Type& operand, const Type& update, const SliceRange& range);
Op concat(const std::vector<Type>& operands, int64_t axis);
Op stack(const std::vector<Type>& operands, int64_t axis);
Op split(const Type& operand, const Shape& sizes, int64_t axis);
/// Modes are those of MPSGraphPaddingMode.
Op pad(const Type& operand, int64_t mode, const Shape& left, const Shape& right, double value);
Op tile(const Type& operand, const Shape& multiplier);
Op reverse(const Type& operand, const Shape& axes);
Op broadcast(const Type& operand, const Shape& shape);
Op flatten(const Type& operand, int64_t axis);
Op squeeze(const Type& operand, const Shape& axes);
Op squeeze_all(const Type& operand);
Op expand_dims(const Type& operand, const Shape& axes);
Op band_part(const Type& operand, int64_t num_lower, int64_t num_upper);

// --- index.cpp
enum class Scatter { kAdd, kSub, kMul, kDiv, kMin, kMax, kSet };
Op gather(const Type& updates, const Type& indices, int64_t axis, int64_t batch_dimensions);
Op gather_nd(const Type& updates, const Type& indices, int64_t batch_dimensions);
Op gather_along(const Type& updates, const Type& indices, int64_t axis);
/// Operands: data, updates, indices.
Op scatter(const Type& data, const Type& updates, const Type& indices, int64_t axis, Scatter mode);
Op scatter_nd(const Type& data, const Type& updates, const Type& indices, int64_t batch_dimensions,
              Scatter mode);
Op scatter_along(const Type& data, const Type& updates, const Type& indices, int64_t axis,
                 Scatter mode);
Op one_hot(const Type& indices, int64_t depth, int64_t axis, DataType type, double on, double off);

// --- order.cpp
Op sort(const Type& operand, int64_t axis, bool descending);
Op arg_sort(const Type& operand, int64_t axis, bool descending);
Op top_k(const Type& operand, int64_t axis, int64_t k, bool largest);

// --- product.cpp
Op matmul(const Type& lhs, const Type& rhs);

// --- convolution.cpp
/// Of 2 or 3 spatial axes, slowest first; layouts say where the axes stand.
struct Convolution {
  Shape strides, dilations, pads_before, pads_after;
  int64_t groups = 1;
  int64_t padding_style = 0;   // MPSGraphPaddingStyle
  bool channels_last = false;  // NHWC, NDHWC; else NCHW, NCDHW
  bool weights_last = false;   // HWIO, DHWIO; else OIHW, OIDHW
};
Op convolve(const Type& source, const Type& weights, const Convolution& window);
Op convolve_data_grad(const Type& grad, const Type& weights, const Shape& source_shape,
                      const Convolution& window);
Op convolve_weights_grad(const Type& grad, const Type& source, const Shape& weights_shape,
                         const Convolution& window);

// --- pooling.cpp
struct Pooling {
  Shape kernel, strides, dilations, pads_before, pads_after;  // of four axes
  int64_t padding_style = 0;
  bool ceil_mode = false;
  bool includes_padding = false;
  int64_t indices_mode = 0;  // MPSGraphPoolingReturnIndicesMode
  DataType indices_type = DataType::kInt32;
};
Op max_pool(const Type& source, const Pooling& window);
Op max_pool_indices(const Type& source, const Pooling& window);
Op max_pool_grad(const Type& grad, const Type& source, const Pooling& window);
Op max_pool_grad_indices(const Type& grad, const Type& indices, const Shape& source_shape,
                         const Pooling& window);
Op avg_pool(const Type& source, const Pooling& window);
Op avg_pool_grad(const Type& grad, const Type& source, const Pooling& window);

}  // namespace metalhost

// Element types, shapes and numbers as MPSGraph takes them.
#pragma once

#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>

#include <cstdint>
#include <span>

#include "ir/value.h"

namespace lucid::metal {

using Tensor = MPSGraphTensor*;

/// Throws UnsupportedError for float64, which no Apple GPU has.
MPSDataType mps_type(DType dtype);

/// Sizes of a tensor; a scalar is fed and kept as one axis of size 1, which broadcasts alike.
MPSShape* mps_shape(const Shape& shape);

NSArray<NSNumber*>* mps_numbers(std::span<const int64_t> values);

inline NSUInteger mps_size(int64_t value) { return static_cast<NSUInteger>(value); }

/// Refuses a value that no MPSNDArray may hold: an axis over 2^31 - 1, 2^31 elements or 4 GiB and
/// more. Metal would abort the process, or wrap around. Throws UnsupportedError that starts with
/// `what`.
void check_limits(const char* what, const ir::ValueType& type);

}  // namespace lucid::metal

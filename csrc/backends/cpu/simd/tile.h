// Tile functions: one element-wise operation over contiguous elements of one dtype.
//
// They are pure per element: the bits of an output element depend on its input elements and the
// parameters alone, not on count, position, alignment or instruction set. (Of a nan only that it
// is one is promised, not its payload.) float16 and bfloat16 are computed in float32 and rounded
// once. Integers wrap around; of an integer by 0, floor_divide, remainder and fmod give 0 (their
// kernel refuses it first).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backends/cpu/simd/isa.h"
#include "support/dtype.h"

namespace lucid::cpu {

/// `output[i] = op(inputs[0][i], ...)` for i < count. The output may be exactly one of the inputs
/// but must not overlap one otherwise. Pointers have the alignment of their element.
using TileFn = void (*)(const void* const* inputs, void* output, int64_t count,
                        const double* parameters);

/// The function of an operation of the element-wise families, or nullptr. `input_dtype` is that
/// of the first input; for `where` that of its second. Outputs have the same dtype, or bool for
/// comparisons, tests and logic. The parameters are the node's float attributes in schema order:
/// leaky_relu {negative_slope}, softplus {beta, threshold}; gelu and gelu_grad take {1} for "tanh"
/// and {0} for "none"; for the others the pointer is not read.
TileFn find_tile(std::string_view op, DType input_dtype);

/// Conversion of one input; nan becomes true, or the integer 0. A float beyond the range of int32
/// (of int64 for that target) saturates to it; narrower integers then keep the low bits.
TileFn find_cast(DType from, DType to);

/// As above, for a chosen instruction set, which must be supported. For tests.
TileFn find_tile(std::string_view op, DType input_dtype, Isa isa);
TileFn find_cast(DType from, DType to, Isa isa);

/// The functions of one operation, by dtype of the input.
struct TileRow {
  std::string_view op;
  std::array<TileFn, kNumDTypes> by_dtype{};
};

}  // namespace lucid::cpu

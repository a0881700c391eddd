// Hot loops of the reductions. Order of the arithmetic depends on the lengths alone.
#pragma once

#include <cstdint>

#include "backends/cpu/simd/isa.h"
#include "support/dtype.h"

namespace lucid::cpu {

enum class FoldKind : uint8_t { kSum, kProduct, kMaximum, kMinimum, kAny, kAll };

/// Dtype in which a fold keeps partial results: float32 for halves, bool for any and all.
DType fold_dtype(FoldKind kind, DType dtype);

/// Folds of one kind over one element type. Results have fold_dtype.
struct FoldLoops {
  /// out[r] = fold of x[r * length .. (r + 1) * length), in 16 lanes and a fixed tree.
  void (*rows)(const void* x, int64_t rows, int64_t length, void* out) = nullptr;
  /// out[j] = fold over r of x[r * stride + j], j < width: rows in order within chunks of 256,
  /// chunks in order.
  void (*columns)(const void* x, int64_t rows, int64_t stride, int64_t width, void* out) = nullptr;
};

/// Loops for this machine; null pointers where the fold has no meaning for the dtype.
FoldLoops fold_loops(FoldKind kind, DType dtype);

}  // namespace lucid::cpu

LUCID_ISA_DECLARE(FoldLoops fold_loops(FoldKind kind, DType dtype);)

// Hot loops of attention: a tile of query rows against all keys of one head.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/normalization_loops.h"

namespace lucid::cpu {

/// Query rows of a tile. They are the lanes of the inner loops.
inline constexpr int64_t kQueryTile = 32;

struct AttentionShape {
  int64_t queries;
  int64_t keys;
  int64_t depth;        ///< elements of a query and of a key
  int64_t value_depth;  ///< elements of a value
  bool causal;          ///< query i sees keys j <= i only
  double scale;

  /// Keys that some query before `end` sees.
  int64_t visible(int64_t end) const { return causal && end < keys ? end : keys; }
};

/// The mask of one head. Strides are 0 along broadcast axes.
struct AttentionMask {
  const void* data = nullptr;  ///< null without a mask
  bool is_bool = false;        ///< true: takes part; else numbers that are added
  int64_t query_stride = 0;
  int64_t key_stride = 0;
};

/// Operands of one head; pointers to its first row.
template <class T>
struct AttentionHead {
  const T* q;
  const T* k;
  const T* v;
  AttentionMask mask;
};

template <class T>
struct AttentionLoops {
  /// Rows [first, first + count) of out and log_sum_exp, count <= kQueryTile. A row whose keys are
  /// all masked gives zeros and a log_sum_exp of -inf.
  void (*forward)(const AttentionShape& shape, const AttentionHead<T>& head, int64_t first,
                  int64_t count, const MathTiles& tiles, T* out, T* log_sum_exp,
                  T* scratch) = nullptr;
  /// The whole head: tiles of queries in order, each adding to dk and dv.
  void (*backward)(const AttentionShape& shape, const AttentionHead<T>& head, const T* grad,
                   const T* out, const T* log_sum_exp, const MathTiles& tiles, T* dq, T* dk, T* dv,
                   T* scratch) = nullptr;
};

/// Elements of scratch that a call of forward or backward needs.
inline int64_t forward_scratch(const AttentionShape& shape) {
  return kQueryTile * (shape.depth + shape.keys + shape.value_depth);
}
inline int64_t backward_scratch(const AttentionShape& shape) {
  return kQueryTile * (2 * shape.depth + 2 * shape.keys + shape.value_depth);
}

}  // namespace lucid::cpu

LUCID_ISA_DECLARE(void get_loops(AttentionLoops<float>& loops);
                  void get_loops(AttentionLoops<double>& loops);)

// Hot loops of attention: blocks of queries against blocks of keys of one head.
#pragma once

#include <cstdint>

#include "backends/cpu/simd/isa.h"

namespace lucid::cpu {

/// Query rows that are worked on while their scores are in the first cache. A row's numbers depend
/// on the group that it is in, so groups start at multiples of this.
inline constexpr int64_t kQueryGroup = 12;
/// Keys that are taken at once; sums over keys go block by block, in order.
inline constexpr int64_t kKeyBlock = 16 * kQueryGroup;
/// Queries that the backward takes at once; sums over queries go block by block, in order.
inline constexpr int64_t kQueryBlock = 8 * kQueryGroup;
// So the keys that a group of queries has scores for are those that a group of keys asks for.
static_assert(kKeyBlock % kQueryGroup == 0 && kQueryBlock % kQueryGroup == 0);

/// Rows that may lie apart: more of them would share too few sets of the first cache.
inline constexpr int64_t kScatteredRows = 32;

struct AttentionShape {
  int64_t queries;
  int64_t keys;
  int64_t depth;        ///< elements of a query and of a key
  int64_t value_depth;  ///< elements of a value
  bool causal;          ///< query i sees keys j <= i only
  double scale;
  bool gathers;  ///< rows that are not neighbours are copied side by side first

  /// Keys that some query before `end` sees.
  [[gnu::always_inline]] int64_t visible(int64_t end) const {
    return causal && end < keys ? end : keys;
  }
};

/// Rows of one head: row i begins at data + i * step.
template <class T>
struct HeadRows {
  T* data;
  int64_t step;

  [[gnu::always_inline]] T* row(int64_t i) const { return data + i * step; }
};

/// The mask of one head. Strides are 0 along broadcast axes.
struct AttentionMask {
  const void* data = nullptr;  ///< null without a mask
  bool is_bool = false;        ///< true: takes part; else numbers that are added
  int64_t query_stride = 0;
  int64_t key_stride = 0;
};

/// Operands of one head.
template <class T>
struct AttentionHead {
  HeadRows<const T> q;
  HeadRows<const T> k;
  HeadRows<const T> v;
  AttentionMask mask;
};

/// What the backward reads and writes of one head beside its operands.
template <class T>
struct AttentionGradHead {
  HeadRows<const T> grad;
  HeadRows<const T> out;
  const T* log_sum_exp;
  HeadRows<T> dq;
  HeadRows<T> dk;
  HeadRows<T> dv;
};

template <class T>
struct AttentionLoops {
  /// Rows [first, first + count) of out and log_sum_exp; `first` is a multiple of kQueryGroup. A
  /// row whose keys are all masked gives zeros and a log_sum_exp of -inf.
  void (*forward)(const AttentionShape& shape, const AttentionHead<T>& head, int64_t first,
                  int64_t count, HeadRows<T> out, T* log_sum_exp, T* scratch) = nullptr;
  /// The whole head.
  void (*backward)(const AttentionShape& shape, const AttentionHead<T>& head,
                   const AttentionGradHead<T>& grads, T* scratch) = nullptr;
};

/// Elements rounded up to whole panels of the widest micro-kernel.
constexpr int64_t in_panels(int64_t count) { return (count + 31) / 32 * 32; }

constexpr int64_t at_most(int64_t count, int64_t block) { return count < block ? count : block; }

/// Keys of a block, and elements between rows of scores against them.
constexpr int64_t key_columns(const AttentionShape& shape) {
  return in_panels(at_most(shape.keys, kKeyBlock));
}

/// Elements of scratch that a call of forward with `count` rows needs, and one of backward. Neither
/// grows with the product of queries and keys.
constexpr int64_t forward_scratch(const AttentionShape& shape, int64_t count) {
  const int64_t copies = shape.gathers ? shape.value_depth : 0;
  const int64_t rows = shape.depth + at_most(count, kQueryGroup) + copies;
  return key_columns(shape) * rows + 2 * in_panels(count);
}
constexpr int64_t backward_scratch(const AttentionShape& shape) {
  const int64_t queries = at_most(shape.queries, kQueryBlock);
  const int64_t both = shape.depth + shape.value_depth;
  const int64_t copies =
      shape.gathers ? key_columns(shape) * (both + shape.depth) + queries * both : 0;
  return key_columns(shape) * (both + 2 * queries) + in_panels(shape.queries) + copies;
}

}  // namespace lucid::cpu

LUCID_ISA_DECLARE(void get_loops(AttentionLoops<float>& loops);
                  void get_loops(AttentionLoops<double>& loops);)

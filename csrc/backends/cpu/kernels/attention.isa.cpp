#include "backends/cpu/kernels/attention_loops.h"

#include <limits>

#include "backends/cpu/engine/micro_kernel.h"
#include "backends/cpu/kernels/lanes.h"
#include "backends/cpu/simd/exponential.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

template <class T>
constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();

constexpr int64_t in_lanes(int64_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

/// Rows of scores side by side: keys are columns, filled up to whole lanes.
template <class T>
struct Scores {
  T* data;
  int64_t step;     ///< elements between rows
  int64_t columns;  ///< keys
  int64_t padded;   ///< columns up to whole lanes
  T scale;          ///< still to be multiplied by; positive
};

/// c = a b, or added to it: `tile` tells where they start, b's columns are neighbours in memory or
/// lie in panels, `panel_step` elements apart.
template <class T>
void multiply(Tile<T> tile, int64_t rows, int64_t columns, int64_t panel_step) {
  for (int64_t column = 0; column < columns; column += kPanelColumns<T>) {
    multiply_panel(tile, rows, smaller(kPanelColumns<T>, columns - column));
    tile.b += panel_step;
    tile.c += kPanelColumns<T>;
  }
}

/// Panels of the transposed rows [first, first + count).
template <class T>
void pack_transposed(HeadRows<const T> rows, int64_t first, int64_t count, int64_t depth, T* to) {
  for (int64_t i = 0; i < count; i += kPanelColumns<T>) {
    pack(rows.row(first + i), 1, rows.step, depth, smaller(kPanelColumns<T>, count - i), to);
    to += depth * kPanelColumns<T>;
  }
}

/// c = a packed^T for `count` rows of a.
template <class T>
void multiply_packed(HeadRows<const T> a, int64_t first, int64_t count, int64_t depth,
                     const T* packed, const Scores<T>& c) {
  Tile<T> tile{};
  tile.a = a.row(first);
  tile.a_row = a.step;
  tile.a_depth = 1;
  tile.b = packed;
  tile.b_depth = kPanelColumns<T>;
  tile.c = c.data;
  tile.c_row = c.step;
  tile.depth = depth;
  multiply(tile, count, c.columns, depth * kPanelColumns<T>);
}

/// Rows from a place on.
template <class T>
struct Stretch {
  HeadRows<T> rows;
  int64_t first;
};

/// Rows [first, first + count), copied side by side to `memory` if need be.
template <class T>
Stretch<const T> gathered(const AttentionShape& shape, HeadRows<const T> rows, int64_t first,
                          int64_t count, int64_t depth, T* memory) {
  if (!shape.gathers || rows.step == depth) return {rows, first};
  for (int64_t i = 0; i < count; ++i) {
    const T* const from = rows.row(first + i);
    for (int64_t d = 0; d < depth; ++d) memory[i * depth + d] = from[d];
  }
  return {{memory, depth}, 0};
}

/// Rows [to_first, to_first + count) of `to` = a b, or added to it.
template <class T>
void multiply_rows(const Scores<T>& a, int64_t count, const Stretch<const T>& b, int64_t depth,
                   bool accumulate, HeadRows<T> to, int64_t to_first) {
  Tile<T> tile{};
  tile.a = a.data;
  tile.a_row = a.step;
  tile.a_depth = 1;
  tile.b = b.rows.row(b.first);
  tile.b_depth = b.rows.step;
  tile.c = to.row(to_first);
  tile.c_row = to.step;
  tile.depth = a.columns;
  tile.accumulate = accumulate;
  multiply(tile, count, depth, kPanelColumns<T>);
}

/// The mask of query i added to its scores against the keys from `first` on, or -inf where it
/// excludes one.
template <class T>
void mask_row(const AttentionMask& mask, int64_t i, int64_t first, int64_t count, T* scores) {
  const int64_t start = i * mask.query_stride + first * mask.key_stride;
  if (mask.is_bool) {
    const uint8_t* takes_part = static_cast<const uint8_t*>(mask.data) + start;
    for (int64_t j = 0; j < count; ++j) {
      if (takes_part[j * mask.key_stride] == 0) scores[j] = kMinusInfinity<T>;
    }
    return;
  }
  const T* bias = static_cast<const T*>(mask.data) + start;
  for (int64_t j = 0; j < count; ++j) scores[j] += bias[j * mask.key_stride];
}

/// What is left to multiply scores by when they are shifted. Numbers that are added ask for scaled
/// scores, and the maximum of scores is that of their multiples if the factor is positive.
template <class T>
T late_scale(const AttentionShape& shape, const AttentionMask& mask) {
  const bool is_early = shape.scale <= 0 || (mask.data != nullptr && !mask.is_bool);
  return is_early ? T{1} : static_cast<T>(shape.scale);
}

/// Masks the products of queries [first, first + count) and keys from `key` on, scaled if need be.
/// What a query does not see, and the columns beyond the last key, become -inf.
template <class T>
void finish_scores(const AttentionShape& shape, const AttentionMask& mask, int64_t first,
                   int64_t count, int64_t key, const Scores<T>& scores) {
  const bool is_early = scores.scale == 1;
  const Lanes<T> scale = fill(static_cast<T>(shape.scale));
  for (int64_t i = 0; i < count; ++i) {
    T* const row = scores.data + i * scores.step;
    for (int64_t j = scores.columns; j < scores.padded; ++j) row[j] = 0;
    for (int64_t j = 0; is_early && j < scores.padded; j += kLanes) {
      store(row + j, load(row + j) * scale);
    }
    if (mask.data != nullptr) mask_row(mask, first + i, key, scores.columns, row);
    const int64_t seen = smaller(scores.columns, shape.visible(first + i + 1) - key);
    for (int64_t j = seen < 0 ? 0 : seen; j < scores.padded; ++j) row[j] = kMinusInfinity<T>;
  }
}

/// e^x of a score less its row's maximum, x <= 88; what is below 2^-126 becomes 0.
LUCID_INLINE float exp_of_score(float x) {
  const ReducedExp e = reduce_exp(at_most(x, 88.0f), 0.0f);
  const float y = (e.expm1 + 1.0f) * power_of_two(e.exponent);
  return x < -87.0f ? 0.0f : y;
}
LUCID_INLINE double exp_of_score(double x) { return exp(x); }

/// row = exp(scale row - shift). The product is rounded as the shift was: a row's maximum gives 1
/// however large it is.
template <class T>
LUCID_INLINE void exponentiate(T* row, int64_t padded, T scale, T shift) {
  LUCID_LOOP
  for (int64_t j = 0; j < padded; ++j) row[j] = exp_of_score(row[j] * scale - shift);
}

/// The scores of a group of queries against one block of keys.
template <class T>
Scores<T> score_group(const AttentionShape& shape, const AttentionHead<T>& head, int64_t first,
                      int64_t count, int64_t key, int64_t keys, const T* packed, T* data,
                      int64_t step) {
  const int64_t columns = smaller(keys, shape.visible(first + count) - key);
  const int64_t padded = in_lanes(columns);
  const Scores<T> scores{data, step, columns, padded, late_scale<T>(shape, head.mask)};
  multiply_packed(head.q, first, count, shape.depth, packed, scores);
  finish_scores(shape, head.mask, first, count, key, scores);
  return scores;
}

/// Maxima and sums of exponentials of rows so far.
template <class T>
struct Running {
  T* top;
  T* sum;
};

/// The larger one; of a nan, any: it comes back in the exponentials.
struct Highest : Maximum {
  template <class V>
  LUCID_INLINE static V combine(V a, V b) {
    return a > b ? a : b;
  }
};

/// Turns scores into exponentials under each row's new maximum. What the rows summed before is
/// brought down to it: `factors` takes the numbers to multiply it by.
/// Source: Milakov and Gimelshein 2018, arXiv:1805.02867, algorithm 3.
template <class T>
void take_block(const Scores<T>& scores, int64_t count, bool first_block, Running<T> running,
                T* factors) {
  // One kind of work at a time: that of all rows overlaps, and vectors hold several rows.
  static_assert(kQueryGroup <= kLanes);
  T tops[kLanes] = {};
  T before[kLanes] = {};
  T shifts[kLanes];
  T decays[kLanes];
  for (int64_t i = 0; i < count; ++i) {
    tops[i] = fold_row<Highest, T>(scores.data + i * scores.step, scores.padded) * scores.scale;
    before[i] = first_block ? kMinusInfinity<T> : running.top[i];
  }
  for (int64_t i = 0; i < kLanes; ++i) {
    tops[i] = tops[i] > before[i] ? tops[i] : before[i];
    shifts[i] = tops[i] == kMinusInfinity<T> ? T{0} : tops[i];  // exp gives 0 for each key
    decays[i] = exp_of_score(before[i] - shifts[i]);
  }
  for (int64_t i = 0; i < count; ++i) {
    exponentiate(scores.data + i * scores.step, scores.padded, scores.scale, shifts[i]);
  }
  for (int64_t i = 0; i < count; ++i) {
    const T sum = fold_row<Sum, T>(scores.data + i * scores.step, scores.padded);
    running.sum[i] = first_block ? sum : running.sum[i] * decays[i] + sum;
    running.top[i] = tops[i];
    factors[i] = decays[i];
  }
}

template <class T>
void scale_rows(HeadRows<T> rows, int64_t first, int64_t count, int64_t depth, const T* scales) {
  for (int64_t i = 0; i < count; ++i) {
    T* const row = rows.row(first + i);
    const T scale = scales[i];
    for (int64_t d = 0; d < depth; ++d) row[d] *= scale;
  }
}

template <class T>
void forward(const AttentionShape& shape, const AttentionHead<T>& head, int64_t first,
             int64_t count, HeadRows<T> out, T* log_sum_exp, T* scratch) {
  T* const packed = scratch;
  T* const data = packed + key_columns(shape) * shape.depth;
  T* const tops = data + key_columns(shape) * smaller(count, kQueryGroup);
  T* const sums = tops + in_panels(count);
  T* const values = sums + in_panels(count);
  const int64_t end = first + count;
  for (int64_t key = 0; key < shape.visible(end); key += kKeyBlock) {
    const int64_t keys = smaller(kKeyBlock, shape.visible(end) - key);
    pack_transposed(head.k, key, keys, shape.depth, packed);
    const Stretch<const T> v = gathered(shape, head.v, key, keys, shape.value_depth, values);
    for (int64_t row = first; row < end; row += kQueryGroup) {
      const int64_t rows = smaller(kQueryGroup, end - row);
      const int64_t visible = shape.visible(row + rows);
      if (visible <= key) continue;
      const Running<T> running{tops + (row - first), sums + (row - first)};
      const Scores<T> scores = score_group(shape, head, row, rows, key, keys, packed, data,
                                           in_lanes(smaller(keys, visible - key)));
      T factors[kQueryGroup];
      take_block(scores, rows, key == 0, running, factors);
      if (key > 0) scale_rows(out, row, rows, shape.value_depth, factors);
      multiply_rows(scores, rows, v, shape.value_depth, key > 0, out, row);
      if (visible > key + keys) continue;
      for (int64_t i = 0; i < rows; ++i) {
        // No key at all. A score that overflows leaves no sum either, and divides by it.
        const bool is_empty = running.sum[i] == 0 && running.top[i] == kMinusInfinity<T>;
        factors[i] = is_empty ? T{0} : T{1} / running.sum[i];
        log_sum_exp[row + i] = is_empty ? kMinusInfinity<T> : running.top[i] + log(running.sum[i]);
      }
      scale_rows(out, row, rows, shape.value_depth, factors);
    }
  }
}

/// Parts of the scratch memory of a backward head.
template <class T>
struct BackwardScratch {
  BackwardScratch(const AttentionShape& shape, T* start)
      : step(key_columns(shape)),
        keys(start),
        values(keys + step * shape.depth),
        probabilities(values + step * shape.value_depth),
        score_grads(probabilities + step * smaller(shape.queries, kQueryBlock)),
        deltas(score_grads + step * smaller(shape.queries, kQueryBlock)),
        key_rows(deltas + in_panels(shape.queries)),
        key_grads(key_rows + step * shape.depth),
        value_grads(key_grads + step * shape.depth),
        query_rows(value_grads + step * shape.value_depth),
        grad_rows(query_rows + smaller(shape.queries, kQueryBlock) * shape.depth) {}

  int64_t step;
  T* keys;
  T* values;
  T* probabilities;
  T* score_grads;
  T* deltas;
  // Copies of strided rows.
  T* key_rows;
  T* key_grads;
  T* value_grads;
  T* query_rows;
  T* grad_rows;
};

/// Row sums of grad * out.
template <class T>
void find_deltas(const AttentionShape& shape, const AttentionGradHead<T>& grads, T* deltas) {
  for (int64_t i = 0; i < shape.queries; ++i) {
    const T* const g = grads.grad.row(i);
    const T* const y = grads.out.row(i);
    deltas[i] = fold_terms<Sum, T>(
        shape.value_depth, [=](int64_t d) { return load(g + d) * load(y + d); },
        [=](int64_t d, int64_t n) {
          return load_first(g + d, n, T{0}) * load_first(y + d, n, T{0});
        });
  }
}

template <class T>
void clear_rows(HeadRows<T> rows, int64_t first, int64_t count, int64_t depth) {
  for (int64_t i = first; i < first + count; ++i) {
    for (int64_t d = 0; d < depth; ++d) rows.row(i)[d] = 0;
  }
}

/// Probabilities from scores, and the gradients of the scores from those of the probabilities.
template <class T>
void finish_score_grads(T scale, const T* log_sum_exp, const T* deltas, int64_t count,
                        const Scores<T>& probabilities, const Scores<T>& grads) {
  for (int64_t i = 0; i < count; ++i) {
    T* const p = probabilities.data + i * probabilities.step;
    T* const ds = grads.data + i * grads.step;
    // A row without keys holds nothing but -inf: any finite shift gives zeros.
    const T shift = log_sum_exp[i] == kMinusInfinity<T> ? T{0} : log_sum_exp[i];
    for (int64_t j = grads.columns; j < grads.padded; ++j) ds[j] = 0;
    exponentiate(p, probabilities.padded, probabilities.scale, shift);
    const Lanes<T> delta = fill(deltas[i]);
    const Lanes<T> factor = fill(scale);
    for (int64_t j = 0; j < probabilities.padded; j += kLanes) {
      store(ds + j, load(p + j) * (load(ds + j) - delta) * factor);
    }
  }
}

/// A block of at most kQueryBlock queries and kKeyBlock keys.
struct Block {
  int64_t query;
  int64_t queries;
  int64_t key;
  int64_t keys;
};

/// Scores of the block's groups and their gradients; dq by the way.
template <class T>
void backward_queries(const AttentionShape& shape, const AttentionHead<T>& head,
                      const AttentionGradHead<T>& grads, const Block& block,
                      const Stretch<const T>& k, const BackwardScratch<T>& s) {
  const int64_t end = block.query + block.queries;
  for (int64_t row = block.query; row < end; row += kQueryGroup) {
    const int64_t rows = smaller(kQueryGroup, end - row);
    if (shape.visible(row + rows) <= block.key) continue;
    const int64_t offset = (row - block.query) * s.step;
    const Scores<T> p = score_group(shape, head, row, rows, block.key, block.keys, s.keys,
                                    s.probabilities + offset, s.step);
    const Scores<T> ds{s.score_grads + offset, s.step, p.columns, p.padded, 1};
    multiply_packed(grads.grad, row, rows, shape.value_depth, s.values, ds);
    finish_score_grads(static_cast<T>(shape.scale), grads.log_sum_exp + row, s.deltas + row, rows,
                       p, ds);
    multiply_rows(ds, rows, k, shape.depth, block.key > 0, grads.dq, row);
  }
}

/// to[keys] += scores^T rows[queries]; queries that see none of a group's keys are left out.
template <class T>
void backward_keys(const AttentionShape& shape, const Block& block, const T* scores, int64_t step,
                   const Stretch<const T>& from, int64_t depth, const Stretch<T>& to) {
  const int64_t end = smaller(block.keys, shape.visible(block.query + block.queries) - block.key);
  for (int64_t j = 0; j < end; j += kQueryGroup) {
    const int64_t before = shape.causal ? block.key + j - block.query : 0;
    const int64_t skipped = before < 0 ? 0 : before;
    Tile<T> tile{};
    tile.a = scores + skipped * step + j;
    tile.a_row = 1;
    tile.a_depth = step;
    tile.b = from.rows.row(from.first + skipped);
    tile.b_depth = from.rows.step;
    tile.c = to.rows.row(to.first + j);
    tile.c_row = to.rows.step;
    tile.depth = block.queries - skipped;
    tile.accumulate = true;
    multiply(tile, smaller(kQueryGroup, end - j), depth, kPanelColumns<T>);
  }
}

/// Zeroed rows for sums: those of the result, or `memory` if need be.
template <class T>
Stretch<T> start_sums(const AttentionShape& shape, HeadRows<T> result, int64_t first, int64_t count,
                      int64_t depth, T* memory) {
  const bool in_place = !shape.gathers || result.step == depth;
  const Stretch<T> sums = in_place ? Stretch<T>{result, first} : Stretch<T>{{memory, depth}, 0};
  clear_rows(sums.rows, sums.first, count, depth);
  return sums;
}

template <class T>
void finish_sums(const Stretch<T>& sums, int64_t count, int64_t depth, HeadRows<T> result,
                 int64_t first) {
  if (sums.rows.data == result.data) return;
  for (int64_t i = 0; i < count; ++i) {
    const T* const from = sums.rows.row(sums.first + i);
    T* const to = result.row(first + i);
    for (int64_t d = 0; d < depth; ++d) to[d] = from[d];
  }
}

// With P the probabilities and dP = dO v^T: dS = scale P (dP - rowsum(dO O)),
// dq = dS k, dk = dS^T q, dv = P^T dO.
// Source: Dao et al. 2022, arXiv:2205.14135, algorithm 4.
template <class T>
void backward(const AttentionShape& shape, const AttentionHead<T>& head,
              const AttentionGradHead<T>& grads, T* scratch) {
  const BackwardScratch<T> s(shape, scratch);
  find_deltas(shape, grads, s.deltas);
  for (int64_t key = 0; key < shape.keys; key += kKeyBlock) {
    const int64_t keys = smaller(kKeyBlock, shape.keys - key);
    const Stretch<const T> k = gathered(shape, head.k, key, keys, shape.depth, s.key_rows);
    const Stretch<T> dk = start_sums(shape, grads.dk, key, keys, shape.depth, s.key_grads);
    const Stretch<T> dv = start_sums(shape, grads.dv, key, keys, shape.value_depth, s.value_grads);
    pack_transposed(head.k, key, keys, shape.depth, s.keys);
    pack_transposed(head.v, key, keys, shape.value_depth, s.values);
    // Queries before the first key see none of them.
    const int64_t start = shape.causal ? key / kQueryBlock * kQueryBlock : 0;
    for (int64_t query = start; query < shape.queries; query += kQueryBlock) {
      const Block block{query, smaller(kQueryBlock, shape.queries - query), key, keys};
      const Stretch<const T> q =
          gathered(shape, head.q, query, block.queries, shape.depth, s.query_rows);
      const Stretch<const T> grad =
          gathered(shape, grads.grad, query, block.queries, shape.value_depth, s.grad_rows);
      backward_queries(shape, head, grads, block, k, s);
      backward_keys(shape, block, s.score_grads, s.step, q, shape.depth, dk);
      backward_keys(shape, block, s.probabilities, s.step, grad, shape.value_depth, dv);
    }
    finish_sums(dk, keys, shape.depth, grads.dk, key);
    finish_sums(dv, keys, shape.value_depth, grads.dv, key);
  }
}

template <class T>
constexpr AttentionLoops<T> kLoops = {.forward = forward<T>, .backward = backward<T>};

}  // namespace

void get_loops(AttentionLoops<float>& loops) { loops = kLoops<float>; }
void get_loops(AttentionLoops<double>& loops) { loops = kLoops<double>; }

}  // namespace lucid::cpu::LUCID_ISA

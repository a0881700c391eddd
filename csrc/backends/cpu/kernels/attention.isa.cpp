#include "backends/cpu/kernels/attention_loops.h"

#include "backends/cpu/kernels/small_product.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

constexpr int64_t kTile = kQueryTile;

template <class T>
constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();

template <class T>
void apply(TileFn tile, const T* x, T* y, int64_t count) {
  const void* input = x;
  tile(&input, y, count, nullptr);
}

/// lanes[d][i] = rows[i][d] for i < count, and zeros in the lanes beyond.
template <class T>
void rows_to_lanes(const T* rows, int64_t count, int64_t depth, T* lanes) {
  for (int64_t d = 0; d < depth; ++d) {
    for (int64_t i = 0; i < kTile; ++i) {
      lanes[d * kTile + i] = i < count ? rows[i * depth + d] : T{0};
    }
  }
}

/// rows[i][d] = lanes[d][i] * scale[i].
template <class T>
void lanes_to_rows(const T* lanes, const T* scale, int64_t count, int64_t depth, T* rows) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t d = 0; d < depth; ++d) rows[i * depth + d] = lanes[d * kTile + i] * scale[i];
  }
}

/// Scores of key j in the lanes: the mask added, or -inf where it excludes.
template <class T>
void mask_key(const AttentionMask& mask, int64_t first, int64_t count, int64_t j, T* scores) {
  const int64_t start = first * mask.query_stride + j * mask.key_stride;
  if (mask.is_bool) {
    const uint8_t* takes_part = static_cast<const uint8_t*>(mask.data) + start;
    for (int64_t i = 0; i < count; ++i) {
      if (takes_part[i * mask.query_stride] == 0) scores[i] = kMinusInfinity<T>;
    }
    return;
  }
  const T* bias = static_cast<const T*>(mask.data) + start;
  for (int64_t i = 0; i < count; ++i) scores[i] += bias[i * mask.query_stride];
}

/// scores[j][i] = scale * q[first + i] k[j], masked.
template <class T>
void score_tile(const AttentionShape& shape, const AttentionHead<T>& head, int64_t first,
                int64_t count, int64_t keys, const T* queries, T* scores) {
  small_product<T>(keys, kTile, shape.depth, {head.k, shape.depth, 1}, queries, kTile, false,
                   scores, kTile);
  const T scale = static_cast<T>(shape.scale);
  for (int64_t j = 0; j < keys; ++j) {
    T* row = scores + j * kTile;
    for (int64_t i = 0; i < kTile; ++i) row[i] *= scale;
    if (head.mask.data != nullptr) mask_key(head.mask, first, count, j, row);
    if (!shape.causal) continue;
    for (int64_t i = 0; i < j - first; ++i) row[i] = kMinusInfinity<T>;
  }
}

/// scores = exp(scores - maximum) and their sums, lane by lane, keys in order.
template <class T>
void exponentiate(int64_t keys, const MathTiles& tiles, T* scores, T* top, T* sums) {
  for (int64_t i = 0; i < kTile; ++i) {
    top[i] = kMinusInfinity<T>;
    sums[i] = 0;
  }
  for (int64_t j = 0; j < keys; ++j) {
    for (int64_t i = 0; i < kTile; ++i) top[i] = Maximum::combine(top[i], scores[j * kTile + i]);
  }
  T shift[kTile];  // a lane with nothing but -inf keeps it: exp gives 0
  for (int64_t i = 0; i < kTile; ++i) shift[i] = top[i] == kMinusInfinity<T> ? T{0} : top[i];
  for (int64_t j = 0; j < keys; ++j) {
    for (int64_t i = 0; i < kTile; ++i) scores[j * kTile + i] -= shift[i];
  }
  apply(tiles.exp, scores, scores, keys * kTile);
  for (int64_t j = 0; j < keys; ++j) {
    for (int64_t i = 0; i < kTile; ++i) sums[i] += scores[j * kTile + i];
  }
}

template <class T>
void forward(const AttentionShape& shape, const AttentionHead<T>& head, int64_t first,
             int64_t count, const MathTiles& tiles, T* out, T* log_sum_exp, T* scratch) {
  T* queries = scratch;
  T* scores = queries + shape.depth * kTile;
  T* sums_of_values = scores + shape.keys * kTile;
  const int64_t keys = shape.visible(first + count);
  rows_to_lanes(head.q + first * shape.depth, count, shape.depth, queries);
  score_tile(shape, head, first, count, keys, queries, scores);

  T top[kTile];
  T sums[kTile];
  T logs[kTile];
  exponentiate(keys, tiles, scores, top, sums);
  apply(tiles.log, sums, logs, kTile);
  for (int64_t i = 0; i < count; ++i) {
    log_sum_exp[first + i] = sums[i] == 0 ? kMinusInfinity<T> : top[i] + logs[i];
  }
  small_product<T>(shape.value_depth, kTile, keys, {head.v, 1, shape.value_depth}, scores, kTile,
                   false, sums_of_values, kTile);
  for (int64_t i = 0; i < kTile; ++i) sums[i] = sums[i] == 0 ? T{0} : T{1} / sums[i];
  lanes_to_rows(sums_of_values, sums, count, shape.value_depth, out + first * shape.value_depth);
}

/// Parts of the scratch memory of a backward tile.
template <class T>
struct BackwardScratch {
  BackwardScratch(const AttentionShape& shape, T* start)
      : queries(start),
        query_grads(queries + shape.depth * kTile),
        grads(query_grads + shape.depth * kTile),
        probabilities(grads + shape.value_depth * kTile),
        score_grads(probabilities + shape.keys * kTile) {}

  T* queries;
  T* query_grads;
  T* grads;
  T* probabilities;
  T* score_grads;
};

/// probabilities = exp(scores - log_sum_exp); 0 in unused lanes and for rows without keys.
template <class T>
void recompute_probabilities(const T* log_sum_exp, int64_t count, int64_t keys,
                             const MathTiles& tiles, T* scores) {
  T shift[kTile];
  for (int64_t i = 0; i < kTile; ++i) {
    const bool is_used = i < count && log_sum_exp[i] != kMinusInfinity<T>;
    shift[i] = is_used ? log_sum_exp[i] : -kMinusInfinity<T>;
  }
  for (int64_t j = 0; j < keys; ++j) {
    for (int64_t i = 0; i < kTile; ++i) scores[j * kTile + i] -= shift[i];
  }
  apply(tiles.exp, scores, scores, keys * kTile);
}

/// Row sums of grad * out.
template <class T>
void find_deltas(const T* grad, const T* out, int64_t count, int64_t depth, T* deltas) {
  for (int64_t i = 0; i < kTile; ++i) deltas[i] = 0;
  for (int64_t i = 0; i < count; ++i) {
    const T* g = grad + i * depth;
    const T* y = out + i * depth;
    deltas[i] = fold_terms<Sum, T>(
        depth, [=](int64_t d) { return load(g + d) * load(y + d); },
        [=](int64_t d, int64_t n) {
          return load_first(g + d, n, T{0}) * load_first(y + d, n, T{0});
        });
  }
}

// With P the probabilities and dP = dO v^T: dS = scale P (dP - rowsum(dO O)),
// dq = dS k, dk = dS^T q, dv = P^T dO.
// Source: Dao et al. 2022, arXiv:2205.14135, algorithm 4.
template <class T>
void backward_tile(const AttentionShape& shape, const AttentionHead<T>& head, int64_t first,
                   int64_t count, const T* grad, const T* out, const T* log_sum_exp,
                   const MathTiles& tiles, T* dq, T* dk, T* dv, T* scratch) {
  const BackwardScratch<T> s(shape, scratch);
  const int64_t keys = shape.visible(first + count);
  const int64_t depth = shape.depth;
  const int64_t value_depth = shape.value_depth;
  const T* q = head.q + first * depth;
  grad += first * value_depth;
  rows_to_lanes(q, count, depth, s.queries);
  rows_to_lanes(grad, count, value_depth, s.grads);
  score_tile(shape, head, first, count, keys, s.queries, s.probabilities);
  recompute_probabilities(log_sum_exp + first, count, keys, tiles, s.probabilities);

  T deltas[kTile];
  find_deltas(grad, out + first * value_depth, count, value_depth, deltas);
  small_product<T>(keys, kTile, value_depth, {head.v, value_depth, 1}, s.grads, kTile, false,
                   s.score_grads, kTile);
  T scales[kTile];
  for (int64_t i = 0; i < kTile; ++i) scales[i] = static_cast<T>(shape.scale);
  for (int64_t j = 0; j < keys; ++j) {
    const T* p = s.probabilities + j * kTile;
    T* ds = s.score_grads + j * kTile;
    for (int64_t i = 0; i < kTile; ++i) ds[i] = p[i] * (ds[i] - deltas[i]);
  }
  small_product<T>(depth, kTile, keys, {head.k, 1, depth}, s.score_grads, kTile, false,
                   s.query_grads, kTile);
  lanes_to_rows(s.query_grads, scales, count, depth, dq + first * depth);
  for (int64_t i = 0; i < keys * kTile; ++i) s.score_grads[i] *= scales[0];
  small_product<T>(keys, depth, count, {s.score_grads, kTile, 1}, q, depth, true, dk, depth);
  small_product<T>(keys, value_depth, count, {s.probabilities, kTile, 1}, grad, value_depth, true,
                   dv, value_depth);
}

template <class T>
void backward(const AttentionShape& shape, const AttentionHead<T>& head, const T* grad,
              const T* out, const T* log_sum_exp, const MathTiles& tiles, T* dq, T* dk, T* dv,
              T* scratch) {
  for (int64_t i = 0; i < shape.keys * shape.depth; ++i) dk[i] = 0;
  for (int64_t i = 0; i < shape.keys * shape.value_depth; ++i) dv[i] = 0;
  for (int64_t first = 0; first < shape.queries; first += kTile) {
    const int64_t left = shape.queries - first;
    backward_tile(shape, head, first, left < kTile ? left : kTile, grad, out, log_sum_exp, tiles,
                  dq, dk, dv, scratch);
  }
}

template <class T>
constexpr AttentionLoops<T> kLoops = {.forward = forward<T>, .backward = backward<T>};

}  // namespace

void get_loops(AttentionLoops<float>& loops) { loops = kLoops<float>; }
void get_loops(AttentionLoops<double>& loops) { loops = kLoops<double>; }

}  // namespace lucid::cpu::LUCID_ISA

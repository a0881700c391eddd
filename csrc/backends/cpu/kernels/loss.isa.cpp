#include "backends/cpu/kernels/lanes.h"
#include "backends/cpu/kernels/loss_loops.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

constexpr int64_t kBlock = 4096;
constexpr int64_t kBlockRows = 256;

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

template <class T>
void apply(TileFn tile, const T* x, T* y, int64_t count) {
  const void* input = x;
  tile(&input, y, count, nullptr);
}

/// Rows that share one call of exp.
constexpr int64_t block_rows(int64_t length) {
  const int64_t fitting = kBlock / (length < 1 ? 1 : length);
  return fitting < 1 ? 1 : smaller(fitting, kBlockRows);
}

/// log(sum(exp(x))) of one row longer than a block: pieces in order.
template <class T>
T long_row_sum(const T* x, T top, int64_t length, TileFn exp, T* buffer) {
  T sum = 0;
  for (int64_t i = 0; i < length; i += kBlock) {
    const int64_t count = smaller(kBlock, length - i);
    for (int64_t j = 0; j < count; ++j) buffer[j] = x[i + j] - top;
    apply(exp, buffer, buffer, count);
    sum += fold_row<Sum, T>(buffer, count);
  }
  return sum;
}

template <class T>
void log_sum_exp(const T* x, int64_t rows, int64_t length, const MathTiles& tiles, T* out) {
  alignas(64) T buffer[kBlock];
  T top[kBlockRows];
  T sums[kBlockRows];
  const int64_t step = block_rows(length);
  for (int64_t r = 0; r < rows; r += step) {
    const int64_t count = smaller(step, rows - r);
    for (int64_t k = 0; k < count; ++k) {
      const T* row = x + (r + k) * length;
      top[k] = fold_row<Maximum, T>(row, length);
      if (length > kBlock) {
        sums[k] = long_row_sum(row, top[k], length, tiles.exp, buffer);
        continue;
      }
      T* shifted = buffer + k * length;
      for (int64_t i = 0; i < length; ++i) shifted[i] = row[i] - top[k];
    }
    if (length <= kBlock) {
      apply(tiles.exp, buffer, buffer, count * length);
      for (int64_t k = 0; k < count; ++k) {
        sums[k] = fold_row<Sum, T>(buffer + k * length, length);
      }
    }
    apply(tiles.log, sums, sums, count);
    for (int64_t k = 0; k < count; ++k) out[r + k] = top[k] + sums[k];
  }
}

template <class T>
T smoothed(const T* x, const T* weight, T log_sum_exp, int64_t length) {
  const Lanes<T> shift = fill(log_sum_exp);
  if (weight == nullptr) {
    return fold_terms<Sum, T>(
        length, [=](int64_t i) { return shift - load(x + i); },
        [=](int64_t i, int64_t n) { return shift - load_first(x + i, n, log_sum_exp); });
  }
  return fold_terms<Sum, T>(
      length, [=](int64_t i) { return load(weight + i) * (shift - load(x + i)); },
      [=](int64_t i, int64_t n) {
        return load_first(weight + i, n, T{0}) * (shift - load_first(x + i, n, log_sum_exp));
      });
}

template <class T>
void probabilities(const T* x, const T* log_sum_exp, int64_t rows, int64_t length,
                   const MathTiles& tiles, T* y) {
  const int64_t step = block_rows(length);
  for (int64_t r = 0; r < rows; r += step) {
    const int64_t count = smaller(step, rows - r);
    T* block = y + r * length;
    for (int64_t k = 0; k < count; ++k) {
      const T* row = x + (r + k) * length;
      T* out = block + k * length;
      const T shift = log_sum_exp[r + k];
      LUCID_LOOP
      for (int64_t i = 0; i < length; ++i) out[i] = row[i] - shift;
    }
    apply(tiles.exp, block, block, count * length);
  }
}

template <class T>
void scale_row(T* y, const T* weight, T scale, T offset, int64_t length) {
  if (offset == 0) {
    for (int64_t i = 0; i < length; ++i) y[i] = scale * y[i];
    return;
  }
  if (weight == nullptr) {
    for (int64_t i = 0; i < length; ++i) y[i] = scale * y[i] - offset;
    return;
  }
  LUCID_LOOP
  for (int64_t i = 0; i < length; ++i) y[i] = scale * y[i] - offset * weight[i];
}

template <class T>
constexpr LossLoops<T> kLoops = {.log_sum_exp = log_sum_exp<T>,
                                 .smoothed = smoothed<T>,
                                 .probabilities = probabilities<T>,
                                 .scale = scale_row<T>};

}  // namespace

void get_loops(LossLoops<float>& loops) { loops = kLoops<float>; }
void get_loops(LossLoops<double>& loops) { loops = kLoops<double>; }

}  // namespace lucid::cpu::LUCID_ISA

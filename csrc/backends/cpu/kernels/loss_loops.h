// Hot loops of cross_entropy. Their arithmetic depends on the row length alone.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/normalization_loops.h"

namespace lucid::cpu {

template <class T>
struct LossLoops {
  /// out[r] = log(sum(exp(x[r, :]))).
  void (*log_sum_exp)(const T* x, int64_t rows, int64_t length, const MathTiles& tiles,
                      T* out) = nullptr;
  /// Sum over c of weight[c] * (log_sum_exp - x[c]); a null weight means 1.
  T (*smoothed)(const T* x, const T* weight, T log_sum_exp, int64_t length) = nullptr;
  /// y = exp(x - log_sum_exp) of each row.
  void (*probabilities)(const T* x, const T* log_sum_exp, int64_t rows, int64_t length,
                        const MathTiles& tiles, T* y) = nullptr;
  /// y = scale * y - offset * weight[c] for one row; a null weight means 1.
  void (*scale)(T* y, const T* weight, T scale, T offset, int64_t length) = nullptr;
};

}  // namespace lucid::cpu

LUCID_ISA_DECLARE(void get_loops(LossLoops<float>& loops);
                  void get_loops(LossLoops<double>& loops);)

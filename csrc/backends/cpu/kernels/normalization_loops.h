// Hot loops of softmax, layer_norm and batch_norm. Their arithmetic depends on lengths alone.
#pragma once

#include <cstdint>

#include "backends/cpu/simd/isa.h"
#include "backends/cpu/simd/tile.h"

namespace lucid::cpu {

/// Element-wise functions that the loops call on short runs of elements.
struct MathTiles {
  TileFn exp = nullptr;
  TileFn log = nullptr;
};

/// A (batch, channels, spatial) tensor seen from one channel or one block of channels.
struct ChannelView {
  int64_t batch;
  int64_t channels;
  int64_t spatial;

  int64_t image() const { return channels * spatial; }
  int64_t per_channel() const { return batch * spatial; }
};

template <class T>
struct NormalizationLoops {
  /// softmax or log_softmax of contiguous rows.
  void (*softmax_rows)(const T* x, T* y, int64_t rows, int64_t length, bool log,
                       const MathTiles& tiles) = nullptr;
  /// The same down `width` <= kSoftmaxWidth neighbouring columns, elements `stride` apart.
  void (*softmax_columns)(const T* x, T* y, int64_t length, int64_t stride, int64_t width, bool log,
                          const MathTiles& tiles) = nullptr;
  void (*softmax_grad_rows)(const T* grad, const T* y, T* dx, int64_t rows, int64_t length,
                            bool log, const MathTiles& tiles) = nullptr;
  void (*softmax_grad_columns)(const T* grad, const T* y, T* dx, int64_t length, int64_t stride,
                               int64_t width, bool log, const MathTiles& tiles) = nullptr;

  /// y = (x - mean) * rstd * weight + bias for each row; weight and bias may be null.
  void (*layer_norm)(const T* x, const T* weight, const T* bias, T eps, int64_t rows,
                     int64_t length, T* y, T* mean, T* rstd) = nullptr;
  /// dx of each row; dweight and dbias are set to the sums over these rows, in order.
  void (*layer_norm_grad)(const T* grad, const T* x, const T* mean, const T* rstd, const T* weight,
                          int64_t rows, int64_t length, T* dx, T* dweight, T* dbias) = nullptr;

  /// Channel `c` of x (spatial > 1), or channels c..c+width of x (spatial == 1, width <= 64).
  void (*batch_norm)(const ChannelView& view, int64_t c, int64_t width, const T* x, const T* weight,
                     const T* bias, T eps, T* y, T* mean, T* variance, T* rstd) = nullptr;
  void (*batch_norm_grad)(const ChannelView& view, int64_t c, int64_t width, const T* grad,
                          const T* x, const T* mean, const T* rstd, const T* weight, T* dx,
                          T* dweight, T* dbias) = nullptr;
};

inline constexpr int64_t kSoftmaxWidth = 128;
inline constexpr int64_t kChannelBlock = 64;

}  // namespace lucid::cpu

LUCID_ISA_DECLARE(void get_loops(NormalizationLoops<float>& loops);
                  void get_loops(NormalizationLoops<double>& loops);)

// Hot loops of pooling: one (depth, height, width) plane at a time.
#pragma once

#include <array>
#include <cstdint>

#include "backends/cpu/simd/isa.h"

namespace lucid::cpu {

/// Geometry of pooling along depth, height and width; missing axes have size and kernel 1.
struct PoolShape {
  using Axes = std::array<int64_t, 3>;
  Axes size{1, 1, 1};
  Axes out{1, 1, 1};
  Axes kernel{1, 1, 1};
  Axes stride{1, 1, 1};
  Axes padding{0, 0, 0};
  Axes dilation{1, 1, 1};

  int64_t plane() const { return size[0] * size[1] * size[2]; }
  int64_t out_plane() const { return out[0] * out[1] * out[2]; }
};

/// Divisors of averaging: that of output (d, h, w) is depth[d] * height[h] * width[w].
template <class T>
struct PoolDivisors {
  const T* depth;
  const T* height;
  const T* width;
};

template <class T>
struct PoolingLoops {
  /// Maxima and their flat positions in the plane. A later element replaces an earlier one only
  /// if it is greater, or nan.
  void (*maximum)(const PoolShape& shape, const T* x, T* y, int32_t* indices) = nullptr;
  /// The gradient of a plane of windows of 2 x 2 that do not overlap, from grad and indices of half
  /// its size. False, and dx uncertain, if an index does not lie in its window.
  bool (*maximum_grad_of_pairs)(const PoolShape& shape, const T* grad, const int32_t* indices,
                                T* dx) = nullptr;
  void (*average)(const PoolShape& shape, const PoolDivisors<T>& divisors, const T* x,
                  T* y) = nullptr;
  void (*average_grad)(const PoolShape& shape, const PoolDivisors<T>& divisors, const T* grad,
                       T* dx) = nullptr;
};

}  // namespace lucid::cpu

LUCID_ISA_DECLARE(void get_loops(PoolingLoops<float>& loops);
                  void get_loops(PoolingLoops<double>& loops);)

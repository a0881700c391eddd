// Products over lines: a line holds one element of as many images as a register has lanes, so a
// convolution of any step and padding reads and makes whole registers.
#pragma once

#include <cstdint>

#include "backends/cpu/simd/isa.h"

namespace lucid::cpu {

/// One multiply-add of a chain: elements from the row's weight, and from the place's line.
struct LaneTap {
  int32_t weight;
  int32_t line;
};

/// One output of every row: where the line of its first tap and its result are, in elements.
struct LanePlace {
  int64_t source;
  int64_t result;
};

/// c[i][place] = sum over steps s and taps t of a[i][s a_step + t.weight] times the line at
/// b[s b_step + place.source + t.line], for `m` rows: one chain of fused multiply-adds an element,
/// over s and t in ascending order, plus bias[i].
template <class T>
struct LaneProduct {
  const T* a;
  int64_t a_row;   ///< elements between the weights of two rows
  int64_t a_step;  ///< elements between the weights of two steps
  const T* b;
  int64_t b_step;
  const LaneTap* taps;
  int64_t num_taps;
  int64_t steps;
  const LanePlace* places;
  int64_t num_places;
  T* c;
  int64_t c_row;
  int64_t m;
  const T* bias;    ///< may be null
  bool accumulate;  ///< continue the chains that c holds
};

/// Neighbouring outputs: where their first lines are, in elements.
struct LaneSegment {
  int64_t x;
  int64_t grad;
};

/// sums[i][f] = sum over segments and p < length of the lines x[row_offsets[i] + segment.x +
/// p x_step] and grad[f grad_row + segment.grad + p lanes], lane by lane: one chain of fused
/// multiply-adds a lane, over segments and p in ascending order.
template <class T>
struct LaneGradient {
  const T* x;
  const int64_t* row_offsets;  ///< `rows` of them
  int64_t x_step;
  const T* grad;
  int64_t grad_row;
  const LaneSegment* segments;
  int64_t num_segments;
  int64_t length;
  T* sums;  ///< (rows, filters) lines
  int64_t rows;
  int64_t filters;
  bool accumulate;  ///< continue the chains that sums holds
};

/// The code of one instruction set.
template <class T>
struct LaneKernels {
  void (*product)(const LaneProduct<T>& product);
  /// Lines of `count` elements of `images` <= lanes images; lanes without an image are zero.
  void (*to_lines)(const T* from, int64_t image, int64_t images, int64_t count, T* lines);
  /// The inverse: elements go to every image's memory.
  void (*from_lines)(const T* lines, int64_t count, int64_t images, T* to, int64_t image);
  void (*gradient)(const LaneGradient<T>& gradient);
  /// to[i] = sum of the lanes of line i, in a fixed tree.
  void (*fold)(const T* lines, int64_t count, T* to);
  int64_t lanes;
  int64_t rows;  ///< that a tile of a product has at most
};

/// The best code for this processor.
template <class T>
const LaneKernels<T>& lane_kernels();
template <>
const LaneKernels<float>& lane_kernels<float>();
template <>
const LaneKernels<double>& lane_kernels<double>();

}  // namespace lucid::cpu

LUCID_ISA_DECLARE(extern const LaneKernels<float> kLaneKernelsF32;
                  extern const LaneKernels<double> kLaneKernelsF64;)

// Images copied into a frame of zeros, so that a sliding window needs no test at the borders.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "backends/cpu/engine/convolution.h"
#include "backends/cpu/engine/window_product.h"

namespace lucid::cpu {

/// Where the elements of one axis lie in the frame: position p holds element p * take - lead, or
/// zero where the source has none.
struct PaddedAxis {
  int64_t source = 1;  ///< number of elements
  int64_t length = 1;  ///< positions of the frame
  int64_t lead = 0;    ///< may be negative
  int64_t take = 1;    ///< elements from one position to the next

  /// The element at a position, or -1.
  int64_t element(int64_t position) const {
    const int64_t at = position * take - lead;
    return at >= 0 && at < source ? at : -1;
  }
};

/// The frame of an axis whose window starts at -padding and moves by stride. A window of one tap
/// passes over elements that it never reads: the frame leaves them out.
inline PaddedAxis window_axis(const ConvolutionAxis& axis) {
  if (axis.kernel == 1) {
    return {.source = axis.input, .length = axis.output, .lead = axis.padding, .take = axis.stride};
  }
  return {.source = axis.input,
          .length = (axis.output - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1,
          .lead = axis.padding};
}

/// Positions from one window to the next in the frame of window_axis.
inline int64_t window_step(const ConvolutionAxis& axis) {
  return axis.kernel == 1 ? 1 : axis.stride;
}

/// Layout of one channel. Along the width the positions are sorted by their remainder by
/// `phases`, so that a window that moves in steps of `phases` reads neighbours.
class PaddedLayout {
 public:
  PaddedLayout() = default;
  PaddedLayout(const std::array<PaddedAxis, 3>& axes, int64_t phases)
      : axes_(axes), phases_(phases), phase_length_((axes[2].length + phases - 1) / phases) {}

  int64_t phase_length() const { return phase_length_; }
  int64_t row_size() const { return phases_ * phase_length_; }
  /// Elements of a channel of which `rows` positions along the height are kept.
  int64_t channel_size(int64_t rows) const { return axes_[0].length * rows * row_size(); }
  int64_t rows() const { return axes_[1].length; }
  int64_t source_size() const { return axes_[0].source * axes_[1].source * axes_[2].source; }

  /// Place of a position in a channel of `rows` rows.
  int64_t offset(int64_t depth, int64_t row, int64_t column, int64_t rows) const {
    return (depth * rows + row) * row_size() + column % phases_ * phase_length_ + column / phases_;
  }

  /// Copies the rows [first, first + rows) that the frame has, of `channels` channels.
  template <class T>
  void fill(const T* source, int64_t channels, int64_t first, int64_t rows, T* to) const {
    const int64_t end = std::min(first + rows, axes_[1].length);
    for (int64_t channel = 0; channel < channels; ++channel) {
      for (int64_t depth = 0; depth < axes_[0].length; ++depth) {
        const int64_t from_depth = axes_[0].element(depth);
        T* target = to + channel * channel_size(rows) + depth * rows * row_size();
        if (phases_ == 2 && axes_[2].take == 1 && axes_[2].lead >= 0) {
          std::fill_n(target, (end - first) * row_size(), T{0});
          if (from_depth >= 0) {
            split_rows(source + from_depth * axes_[1].source * axes_[2].source, first, end, target);
          }
          continue;
        }
        for (int64_t row = first; row < end; ++row, target += row_size()) {
          const int64_t from_row = axes_[1].element(row);
          if (from_depth < 0 || from_row < 0) {
            std::fill_n(target, row_size(), T{0});
            continue;
          }
          fill_row(source + (from_depth * axes_[1].source + from_row) * axes_[2].source, target);
        }
      }
      source += source_size();
    }
  }

 private:
  /// Copies the elements of rows [first, end) of a plane, those of even and odd positions apart.
  template <class T>
  void split_rows(const T* plane, int64_t first, int64_t end, T* to) const {
    const PaddedAxis& axis = axes_[2];
    const auto is_padding = [&](int64_t row) { return axes_[1].element(row) < 0; };
    int64_t begin = first;
    while (begin < end && is_padding(begin)) ++begin;
    while (begin < end && is_padding(end - 1)) --end;
    const int64_t columns = std::min(axis.source, axis.length - axis.lead);
    if (begin == end || columns <= 0) return;
    T* const row = to + (begin - first) * row_size();
    const auto place = [&](int64_t position) {
      return row + position % 2 * phase_length_ + position / 2;
    };
    window_product_kernels<T>().split(plane + axes_[1].element(begin) * axis.source,
                                      axes_[1].take * axis.source,
                                      {.even = place(axis.lead),
                                       .odd = place(axis.lead + 1),
                                       .even_row = row_size(),
                                       .odd_row = row_size(),
                                       .rows = end - begin,
                                       .columns = columns});
  }

  template <class T>
  void fill_row(const T* source, T* to) const {
    if (phases_ == 1 && axes_[2].take == 1 && fill_short_row(source, to)) return;
    for (int64_t phase = 0; phase < phases_; ++phase, to += phase_length_) {
      fill_phase(source, phase, to);
    }
  }

  /// A row of neighbours with little padding: whole registers of zeros at both ends, then the
  /// elements over them. False if the row is too short or its padding too long.
  template <class T>
  bool fill_short_row(const T* source, T* to) const {
    constexpr int64_t kZeros = 64 / static_cast<int64_t>(sizeof(T));
    const PaddedAxis& axis = axes_[2];
    const int64_t covered = std::min(axis.source, axis.length - axis.lead);
    const int64_t tail = axis.length - axis.lead - covered;
    if (axis.lead < 0 || axis.lead > kZeros || covered < 1 || tail > kZeros) return false;
    if (axis.length < kZeros) return false;
    std::memset(to, 0, 64);
    std::memset(to + axis.length - kZeros, 0, 64);
    std::memcpy(to + axis.lead, source, static_cast<size_t>(covered) * sizeof(T));
    return true;
  }

  /// Positions phase, phase + phases, ... hold every (phases * take)-th element.
  template <class T>
  void fill_phase(const T* source, int64_t phase, T* to) const {
    const PaddedAxis& axis = axes_[2];
    const int64_t stride = phases_ * axis.take;
    const int64_t start = phase * axis.take - axis.lead;  // element under the first position
    const int64_t begin = start >= 0 ? 0 : (-start + stride - 1) / stride;
    const int64_t covered = (axis.source - start + stride - 1) / stride;
    const int64_t end = std::clamp<int64_t>(covered, begin, std::max(begin, phase_length_));
    for (int64_t i = 0; i < std::min(begin, phase_length_); ++i) to[i] = T{0};
    if (stride == 1) {
      for (int64_t i = begin; i < end; ++i) to[i] = source[start + i];
    } else {
      for (int64_t i = begin; i < end; ++i) to[i] = source[start + i * stride];
    }
    for (int64_t i = end; i < phase_length_; ++i) to[i] = T{0};
  }

  std::array<PaddedAxis, 3> axes_{};
  int64_t phases_ = 1;
  int64_t phase_length_ = 1;
};

}  // namespace lucid::cpu

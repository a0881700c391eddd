// Copy between two strided views of one shape: the engine under permute, slice, pad and the like.
#pragma once

#include <array>
#include <cstdint>

#include "support/shape.h"

namespace lucid::cpu {

using AxisArray = std::array<int64_t, kMaxRank>;

/// A shape and two sets of strides, in elements and outermost first. A source stride may be 0.
class StridedCopy {
 public:
  /// Axes of size 1 are dropped and axes that stay neighbours are merged.
  StridedCopy(const Shape& shape, const AxisArray& source, const AxisArray& target);

  /// Copies every element, on the team. The views must not overlap.
  void run(const void* source, void* target, int64_t element_bytes) const;

 private:
  template <class T>
  void run_typed(const T* source, T* target) const;
  template <class T>
  void run_rows(const T* source, T* target) const;
  template <class T>
  void run_transposed(const T* source, T* target, int axis) const;
  int transposed_axis() const;

  int rank_ = 0;
  bool is_empty_ = false;
  AxisArray sizes_{};
  AxisArray source_{};
  AxisArray target_{};
};

/// Copies contiguous bytes on the team; nothing if the two places are one.
void copy_bytes(const void* source, void* target, int64_t size_bytes);

}  // namespace lucid::cpu

#include "backends/cpu/kernels/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/threads/team.h"

namespace lucid::cpu {
namespace {

/// Longest piece of a row that one task copies, in elements.
constexpr int64_t kPiece = 16384;
/// Side of the square that a transposition moves at once: one cache line of floats.
constexpr int64_t kSquare = 16;
constexpr double kNsPerByte = 0.08;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// A position in the axes [0, rank) and its offsets in both views.
class Odometer {
 public:
  Odometer(int rank, const AxisArray& sizes, const AxisArray& source, const AxisArray& target,
           int64_t position)
      : rank_(rank), sizes_(sizes), source_(source), target_(target) {
    for (int axis = rank - 1; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      place_[a] = position % sizes[a];
      position /= sizes[a];
      source_offset += place_[a] * source[a];
      target_offset += place_[a] * target[a];
    }
  }

  void advance() {
    for (int axis = rank_ - 1; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      source_offset += source_[a];
      target_offset += target_[a];
      if (++place_[a] < sizes_[a]) return;
      source_offset -= sizes_[a] * source_[a];
      target_offset -= sizes_[a] * target_[a];
      place_[a] = 0;
    }
  }

  int64_t source_offset = 0;
  int64_t target_offset = 0;

 private:
  int rank_;
  const AxisArray& sizes_;
  const AxisArray& source_;
  const AxisArray& target_;
  AxisArray place_{};
};

template <class T>
void copy_row(const T* source, int64_t source_stride, T* target, int64_t target_stride,
              int64_t count) {
  if (source_stride == 1 && target_stride == 1) {
    std::memcpy(target, source, static_cast<size_t>(count) * sizeof(T));
    return;
  }
  if (target_stride == 1 && source_stride == 0) {
    std::fill_n(target, count, *source);
    return;
  }
  for (int64_t i = 0; i < count; ++i) target[i * target_stride] = source[i * source_stride];
}

/// target[i * target_stride + j] = source[j * source_stride + i] for i < rows, j < columns.
template <class T>
void transpose_square(const T* source, int64_t source_stride, T* target, int64_t target_stride,
                      int64_t rows, int64_t columns) {
  T square[kSquare][kSquare];
  if (rows == kSquare && columns == kSquare) {
    for (int64_t j = 0; j < kSquare; ++j) {
      std::memcpy(square[j], source + j * source_stride, sizeof(square[j]));
    }
    for (int64_t i = 0; i < kSquare; ++i) {
      T* row = target + i * target_stride;
      for (int64_t j = 0; j < kSquare; ++j) row[j] = square[j][i];
    }
    return;
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      target[i * target_stride + j] = source[j * source_stride + i];
    }
  }
}

}  // namespace

StridedCopy::StridedCopy(const Shape& shape, const AxisArray& source, const AxisArray& target)
    : is_empty_(shape.num_elements() == 0) {
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    const int64_t size = shape[axis];
    if (size == 1) continue;
    const auto last = static_cast<size_t>(rank_ - 1);
    if (rank_ > 0 && source_[last] == source[a] * size && target_[last] == target[a] * size) {
      sizes_[last] *= size;
      source_[last] = source[a];
      target_[last] = target[a];
      continue;
    }
    const auto next = static_cast<size_t>(rank_++);
    sizes_[next] = size;
    source_[next] = source[a];
    target_[next] = target[a];
  }
  if (rank_ == 0) {
    rank_ = 1;
    sizes_[0] = source_[0] = target_[0] = 1;
  }
}

void StridedCopy::run(const void* source, void* target, int64_t element_bytes) const {
  if (is_empty_) return;
  switch (element_bytes) {
    case 1:
      return run_typed(static_cast<const uint8_t*>(source), static_cast<uint8_t*>(target));
    case 2:
      return run_typed(static_cast<const uint16_t*>(source), static_cast<uint16_t*>(target));
    case 4:
      return run_typed(static_cast<const uint32_t*>(source), static_cast<uint32_t*>(target));
    default:
      return run_typed(static_cast<const uint64_t*>(source), static_cast<uint64_t*>(target));
  }
}

int StridedCopy::transposed_axis() const {
  const auto last = static_cast<size_t>(rank_ - 1);
  if (target_[last] != 1 || source_[last] == 1 || source_[last] == 0 || sizes_[last] < 4) return -1;
  for (int axis = 0; axis < rank_ - 1; ++axis) {
    const auto a = static_cast<size_t>(axis);
    if (source_[a] == 1 && sizes_[a] >= 4) return axis;
  }
  return -1;
}

template <class T>
void StridedCopy::run_typed(const T* source, T* target) const {
  const int axis = transposed_axis();
  if (axis >= 0) return run_transposed(source, target, axis);
  run_rows(source, target);
}

template <class T>
void StridedCopy::run_rows(const T* source, T* target) const {
  const auto last = static_cast<size_t>(rank_ - 1);
  const int64_t length = sizes_[last];
  const int64_t pieces = ceil_div(length, kPiece);
  int64_t rows = 1;
  for (size_t a = 0; a < last; ++a) rows *= sizes_[a];
  const double task_ns =
      static_cast<double>(std::min(length, kPiece)) * static_cast<double>(sizeof(T)) * kNsPerByte +
      3;
  const int64_t grain = std::max<int64_t>(1, kPiece / 2 / std::max<int64_t>(length, 8));
  parallel_for(rows * pieces, grain, task_ns, [&](int64_t begin, int64_t end) {
    Odometer place(rank_ - 1, sizes_, source_, target_, begin / pieces);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t start = task % pieces * kPiece;
      copy_row(source + place.source_offset + start * source_[last], source_[last],
               target + place.target_offset + start * target_[last], target_[last],
               std::min(kPiece, length - start));
      if (task % pieces == pieces - 1) place.advance();
    }
  });
}

template <class T>
void StridedCopy::run_transposed(const T* source, T* target, int axis) const {
  const auto last = static_cast<size_t>(rank_ - 1);
  const auto across = static_cast<size_t>(axis);
  AxisArray sizes = sizes_;
  sizes[across] = 1;  // the other axes, walked by the odometer
  int64_t squares = 1;
  for (size_t a = 0; a < last; ++a) squares *= sizes[a];
  const int64_t bands = ceil_div(sizes_[across], kSquare);
  const double task_ns =
      static_cast<double>(sizes_[last] * kSquare) * static_cast<double>(sizeof(T)) * kNsPerByte;
  parallel_for(squares * bands, 1, task_ns, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const Odometer place(rank_ - 1, sizes, source_, target_, task / bands);
      const int64_t i = task % bands * kSquare;
      const int64_t rows = std::min(kSquare, sizes_[across] - i);
      for (int64_t j = 0; j < sizes_[last]; j += kSquare) {
        transpose_square(source + place.source_offset + i + j * source_[last], source_[last],
                         target + place.target_offset + i * target_[across] + j, target_[across],
                         rows, std::min(kSquare, sizes_[last] - j));
      }
    }
  });
}

void copy_bytes(const void* source, void* target, int64_t size_bytes) {
  if (source == target || size_bytes == 0) return;
  constexpr int64_t kBytes = 65536;
  parallel_for(
      ceil_div(size_bytes, kBytes), 1, kBytes * kNsPerByte, [&](int64_t begin, int64_t end) {
        const int64_t start = begin * kBytes;
        std::memcpy(static_cast<char*>(target) + start, static_cast<const char*>(source) + start,
                    static_cast<size_t>(std::min(end * kBytes, size_bytes) - start));
      });
}

}  // namespace lucid::cpu

// Products whose operand is a sliding window over padded images: convolution without a copy of
// every window.
#pragma once

#include <cstdint>

#include "backends/cpu/simd/isa.h"

namespace lucid::cpu {

/// Neighbours in memory that fill some lanes of a register.
struct Piece {
  int64_t b;        ///< elements from the start of the padded images
  int64_t lane;     ///< that the first one goes to
  int64_t columns;  ///< number of lanes
};

/// Neighbouring outputs, at most one register of them, whose windows start at some pieces.
struct Span {
  int64_t c;  ///< elements from the start of the output's first row
  int64_t columns;
  int64_t first_piece;
  int64_t num_pieces;
};

/// c[i][s] = sum over p of a[i][p] * b[s + b_offsets[p]], for every row i and every output s of
/// the spans; each element is one chain of fused multiply-adds over p in ascending order, plus
/// bias[i].
template <class T>
struct SpanProduct {
  const T* a;  ///< (m, k), columns are neighbours
  int64_t a_row;
  const T* b;
  const int64_t* b_offsets;  ///< k of them
  const Span* spans;
  int64_t num_spans;
  const Piece* pieces;
  bool gather;  ///< some span has more than one piece
  T* c;
  int64_t c_row;  ///< elements between the outputs of two rows
  int64_t m;
  int64_t k;
  const T* bias;  ///< may be null
};

/// c[i][j] = sum over segments s and p < length of a[a_offsets[i] + segments[s] + p] *
/// b[s * length + p][j]; each element is one chain over s and p in ascending order.
template <class T>
struct SegmentProduct {
  const T* a;
  const int64_t* a_offsets;  ///< m of them
  const int64_t* segments;
  int64_t num_segments;
  int64_t length;
  const T* b;
  int64_t b_depth;  ///< elements between rows of b; its columns are neighbours
  T* c;
  int64_t c_row;
  int64_t m;
  int64_t n;
  bool accumulate;  ///< continue the chains that c holds
};

/// Rows of `columns` elements, and their even and odd elements apart.
template <class T>
struct SplitRows {
  T* even;  ///< null: zeros, where rows are put together
  T* odd;
  int64_t even_row;  ///< elements between rows
  int64_t odd_row;
  int64_t rows;
  int64_t columns;
};

/// The code of one instruction set.
template <class T>
struct WindowProductKernels {
  void (*spans)(const SpanProduct<T>& product);
  void (*segments)(const SegmentProduct<T>& product);
  /// Takes rows apart that lie `from_row` elements apart.
  void (*split)(const T* from, int64_t from_row, const SplitRows<T>& to);
  /// Puts rows together that lie `to_row` elements apart.
  void (*weave)(const SplitRows<const T>& from, T* to, int64_t to_row);
  int64_t span_columns;  ///< most columns of a span
};

/// The best code for this processor.
template <class T>
const WindowProductKernels<T>& window_product_kernels();
template <>
const WindowProductKernels<float>& window_product_kernels<float>();
template <>
const WindowProductKernels<double>& window_product_kernels<double>();

}  // namespace lucid::cpu

LUCID_ISA_DECLARE(extern const WindowProductKernels<float> kWindowProductsF32;
                  extern const WindowProductKernels<double> kWindowProductsF64;)

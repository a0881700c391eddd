// The micro-kernels of the window products, compiled once for each instruction set.
#include "backends/cpu/engine/window_product.h"

#include <utility>

#include "backends/cpu/engine/interleave.h"
#include "backends/cpu/engine/registers.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

constexpr int64_t kDepthBlock = 256;
constexpr int kRegs = 2;

template <class T>
using Reg = typename Registers<T>::Reg;
template <class T>
using Mask = typename Registers<T>::Mask;

/// Rows of c times one or two spans.
template <class T>
struct SpanTile {
  const T* a;
  int64_t a_row;
  const T* b[kRegs];
  Mask<T> mask[kRegs];
  T* c[kRegs];
  int64_t c_row;
  const int64_t* b_offsets;
  int64_t depth;
  const T* bias;
  bool accumulate;
};

// The loops over rows are unrolled in full: else the sums would live in memory.
template <class T, int kRows, int kSpans>
void span_kernel(const SpanTile<T>& tile) {
  using R = Registers<T>;
  Reg<T> sums[kRows][kSpans];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    for (int s = 0; s < kSpans; ++s) {
      sums[i][s] =
          tile.accumulate ? R::load(tile.c[s] + i * tile.c_row, tile.mask[s]) : R::fill(T{0});
    }
  }
  constexpr int kRowGroup = 3;  // rows reached from one pointer: +0, +1 and +2 strides
  constexpr int kGroups = (kRows + kRowGroup - 1) / kRowGroup;
  const int64_t a_row = tile.a_row;
  const T* a[kGroups];
  for (int g = 0; g < kGroups; ++g) a[g] = tile.a + g * kRowGroup * a_row;
  for (int64_t p = 0; p < tile.depth; ++p) {
    Reg<T> b[kSpans];
    for (int s = 0; s < kSpans; ++s) b[s] = R::load(tile.b[s] + tile.b_offsets[p], tile.mask[s]);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const Reg<T> x = R::fill(a[i / kRowGroup][(i % kRowGroup) * a_row]);
      for (int s = 0; s < kSpans; ++s) sums[i][s] = R::fma(x, b[s], sums[i][s]);
    }
    for (int g = 0; g < kGroups; ++g) ++a[g];
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    const Reg<T> bias = R::fill(tile.bias == nullptr ? T{0} : tile.bias[i]);
    for (int s = 0; s < kSpans; ++s) {
      if (tile.bias != nullptr) sums[i][s] = sums[i][s] + bias;
      R::store(tile.c[s] + i * tile.c_row, sums[i][s], tile.mask[s]);
    }
  }
}

/// Rows of c times one or two registers of columns.
template <class T>
struct SegmentTile {
  const T* a;
  const int64_t* a_offsets;
  const int64_t* segments;
  int64_t num_segments;
  int64_t length;
  const T* b;
  int64_t b_depth;
  T* c;
  int64_t c_row;
  bool accumulate;
  Mask<T> mask{};  ///< of the last register
};

template <class T, int kRows, int kColumns>
void segment_kernel(const SegmentTile<T>& tile) {
  Row<T, kColumns> sums[kRows];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    sums[i] = tile.accumulate ? load_row<T, kColumns>(tile.c + i * tile.c_row, tile.mask)
                              : filled_row<T, kColumns>(T{0});
  }
  const T* b = tile.b;
  for (int64_t segment = 0; segment < tile.num_segments; ++segment) {
    const T* a[kRows];
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) a[i] = tile.a + tile.segments[segment] + tile.a_offsets[i];
    for (int64_t p = 0; p < tile.length; ++p) {
      const Row<T, kColumns> b_row = load_row<T, kColumns>(b, tile.mask);
#pragma GCC unroll 12
      for (int i = 0; i < kRows; ++i) {
        const Reg<T> x = Registers<T>::fill(a[i][p]);
        for (int r = 0; r < kColumns; ++r) {
          sums[i].reg[r] = Registers<T>::fma(x, b_row.reg[r], sums[i].reg[r]);
        }
      }
      b += tile.b_depth;
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    store_row<T, kColumns>(tile.c + i * tile.c_row, sums[i], tile.mask);
  }
}

/// Micro-kernels by number of rows, less one.
template <class Tile>
struct Kernels {
  void (*by_rows[kMaxRows])(const Tile&);
};

template <class T, int kSpans, int... kIndex>
constexpr Kernels<SpanTile<T>> span_kernels(std::integer_sequence<int, kIndex...>) {
  return {{span_kernel<T, kIndex + 1, kSpans>...}};
}

template <class T, int kColumns, int... kIndex>
constexpr Kernels<SegmentTile<T>> segment_kernels(std::integer_sequence<int, kIndex...>) {
  return {{segment_kernel<T, kIndex + 1, kColumns>...}};
}

using AllRows = std::make_integer_sequence<int, kMaxRows>;

template <class T>
constexpr Kernels<SpanTile<T>> kSpanKernels[kRegs] = {span_kernels<T, 1>(AllRows()),
                                                      span_kernels<T, 2>(AllRows())};
template <class T>
constexpr Kernels<SegmentTile<T>> kSegmentKernels[kRegs] = {segment_kernels<T, 1>(AllRows()),
                                                            segment_kernels<T, 2>(AllRows())};

/// First row of tile t of `num_tiles`, which are nearly equal in height.
int64_t tile_begin(int64_t rows, int64_t t, int64_t num_tiles) { return rows * t / num_tiles; }

#if defined(__AVX512F__)
/// Lanes [piece.lane, piece.lane + piece.columns) from memory, the others from `rest`.
__m512 merge(__m512 rest, const float* from, const Piece& piece) {
  const auto lanes = static_cast<__mmask16>(((1u << piece.columns) - 1u) << piece.lane);
  return _mm512_mask_loadu_ps(rest, lanes, from - piece.lane);
}
__m512d merge(__m512d rest, const double* from, const Piece& piece) {
  const auto lanes = static_cast<__mmask8>(((1u << piece.columns) - 1u) << piece.lane);
  return _mm512_mask_loadu_pd(rest, lanes, from - piece.lane);
}

template <class T>
void gather_span(const T* b, const int64_t* offsets, int64_t depth, const Piece* pieces,
                 int64_t num_pieces, T* panel) {
  for (int64_t p = 0; p < depth; ++p) {
    Reg<T> lanes = Registers<T>::fill(T{0});
    for (int64_t i = 0; i < num_pieces; ++i) {
      lanes = merge(lanes, b + pieces[i].b + offsets[p], pieces[i]);
    }
    Registers<T>::store(panel + p * Registers<T>::kCount, lanes);
  }
}
#else
template <class T>
void gather_span(const T* b, const int64_t* offsets, int64_t depth, const Piece* pieces,
                 int64_t num_pieces, T* panel) {
  for (int64_t p = 0; p < depth; ++p, panel += Registers<T>::kCount) {
    for (int64_t i = 0; i < num_pieces; ++i) {
      const T* const from = b + pieces[i].b + offsets[p];
      for (int64_t j = 0; j < pieces[i].columns; ++j) panel[pieces[i].lane + j] = from[j];
    }
  }
}
#endif

/// Offsets of the rows of a gathered panel.
struct PanelOffsets {
  int64_t values[kDepthBlock];
};

template <int64_t kStride>
constexpr PanelOffsets make_panel_offsets() {
  PanelOffsets offsets{};
  for (int64_t p = 0; p < kDepthBlock; ++p) offsets.values[p] = p * kStride;
  return offsets;
}

template <class T>
constexpr PanelOffsets kPanelOffsets = make_panel_offsets<Registers<T>::kCount>();

template <class T>
void run_spans(const SpanProduct<T>& product) {
  alignas(64) T panel[kRegs][kDepthBlock * Registers<T>::kCount];
  const int64_t num_tiles = (product.m + kMaxRows - 1) / kMaxRows;
  for (int64_t begin = 0; begin < product.k; begin += kDepthBlock) {
    SpanTile<T> tile{};
    tile.a_row = product.a_row;
    tile.c_row = product.c_row;
    tile.b_offsets = product.gather ? kPanelOffsets<T>.values : product.b_offsets + begin;
    tile.depth = smaller(product.k - begin, kDepthBlock);
    tile.accumulate = begin > 0;
    const bool with_bias = product.bias != nullptr && begin + tile.depth == product.k;
    for (int64_t first = 0; first < product.num_spans; first += kRegs) {
      const int64_t num_spans = smaller(product.num_spans - first, kRegs);
      for (int64_t s = 0; s < num_spans; ++s) {
        const Span& span = product.spans[first + s];
        const Piece* const pieces = product.pieces + span.first_piece;
        tile.b[s] = product.b + pieces->b;
        if (product.gather) {
          gather_span(product.b, product.b_offsets + begin, tile.depth, pieces, span.num_pieces,
                      panel[s]);
          tile.b[s] = panel[s];
        }
        tile.mask[s] = Registers<T>::mask(span.columns);
      }
      for (int64_t t = 0; t < num_tiles; ++t) {
        const int64_t row = tile_begin(product.m, t, num_tiles);
        const int64_t rows = tile_begin(product.m, t + 1, num_tiles) - row;
        tile.a = product.a + row * product.a_row + begin;
        for (int64_t s = 0; s < num_spans; ++s) {
          tile.c[s] = product.c + row * product.c_row + product.spans[first + s].c;
        }
        tile.bias = with_bias ? product.bias + row : nullptr;
        kSpanKernels<T>[num_spans - 1].by_rows[rows - 1](tile);
      }
    }
  }
}

template <class T>
void run_segments(const SegmentProduct<T>& product) {
  constexpr int64_t kCount = Registers<T>::kCount;
  const int64_t num_tiles = (product.m + kMaxRows - 1) / kMaxRows;
  SegmentTile<T> tile{};
  tile.a = product.a;
  tile.segments = product.segments;
  tile.num_segments = product.num_segments;
  tile.length = product.length;
  tile.b_depth = product.b_depth;
  tile.c_row = product.c_row;
  tile.accumulate = product.accumulate;
  for (int64_t column = 0; column < product.n; column += kRegs * kCount) {
    const int64_t columns = smaller(product.n - column, kRegs * kCount);
    const int64_t regs = (columns - 1) / kCount + 1;
    tile.mask = Registers<T>::mask(columns - (regs - 1) * kCount);
    tile.b = product.b + column;
    for (int64_t t = 0; t < num_tiles; ++t) {
      const int64_t row = tile_begin(product.m, t, num_tiles);
      const int64_t rows = tile_begin(product.m, t + 1, num_tiles) - row;
      tile.a_offsets = product.a_offsets + row;
      tile.c = product.c + row * product.c_row + column;
      kSegmentKernels<T>[regs - 1].by_rows[rows - 1](tile);
    }
  }
}

/// At most a register of elements, zeros without memory.
template <class T>
Reg<T> load_some(const T* from, int64_t count) {
  if (from == nullptr || count <= 0) return Registers<T>::fill(T{0});
  if (count >= Registers<T>::kCount) return Registers<T>::load(from);
  return Registers<T>::load(from, Registers<T>::mask(count));
}

template <class T>
void store_some(T* to, Reg<T> x, int64_t count) {
  if (count >= Registers<T>::kCount) return Registers<T>::store(to, x);
  if (count > 0) Registers<T>::store(to, x, Registers<T>::mask(count));
}

template <class T>
void split_rows(const T* from, int64_t from_row, const SplitRows<T>& to) {
  constexpr int64_t kCount = Registers<T>::kCount;
  for (int64_t row = 0; row < to.rows; ++row, from += from_row) {
    for (int64_t column = 0; column < to.columns; column += 2 * kCount) {
      const int64_t left = to.columns - column;
      const Pair<T> halves = split<T>(
          {load_some(from + column, left), load_some(from + column + kCount, left - kCount)});
      store_some(to.even + row * to.even_row + column / 2, halves.first, (left + 1) / 2);
      store_some(to.odd + row * to.odd_row + column / 2, halves.second, left / 2);
    }
  }
}

template <class T>
void weave_rows(const SplitRows<const T>& from, T* to, int64_t to_row) {
  constexpr int64_t kCount = Registers<T>::kCount;
  const auto at = [](const T* half, int64_t offset) {
    return half == nullptr ? nullptr : half + offset;
  };
  for (int64_t row = 0; row < from.rows; ++row, to += to_row) {
    for (int64_t column = 0; column < from.columns; column += 2 * kCount) {
      const int64_t left = from.columns - column;
      const T* const even = at(from.even, row * from.even_row + column / 2);
      const T* const odd = at(from.odd, row * from.odd_row + column / 2);
      const Pair<T> woven = weave<T>({load_some(even, (left + 1) / 2), load_some(odd, left / 2)});
      store_some(to + column, woven.first, left);
      store_some(to + column + kCount, woven.second, left - kCount);
    }
  }
}

}  // namespace

extern const WindowProductKernels<float> kWindowProductsF32;
const WindowProductKernels<float> kWindowProductsF32 = {run_spans<float>, run_segments<float>,
                                                        split_rows<float>, weave_rows<float>,
                                                        Registers<float>::kCount};
extern const WindowProductKernels<double> kWindowProductsF64;
const WindowProductKernels<double> kWindowProductsF64 = {run_spans<double>, run_segments<double>,
                                                         split_rows<double>, weave_rows<double>,
                                                         Registers<double>::kCount};

}  // namespace lucid::cpu::LUCID_ISA

// The micro-kernels of products over lines, compiled once for each instruction set.
#include "backends/cpu/engine/lane_product.h"

#include <utility>

#include "backends/cpu/engine/registers.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

constexpr int kMaxPlaces = 4;  // of tiles of half the rows; tiles of more rows have two places

template <class T>
using Reg = typename Registers<T>::Reg;

/// Some rows of the product and one to four places.
template <class T>
struct LaneTile {
  const T* a;
  T* c;
  const T* bias;
  const LanePlace* places;
};

// The loops over rows are unrolled in full: else the sums would live in memory.
template <class T, int kRows, int kPlaces>
void lane_kernel(const LaneProduct<T>& product, const LaneTile<T>& tile) {
  using R = Registers<T>;
  constexpr int kRowGroup = 3;  // rows reached from one pointer: +0, +1 and +2 strides
  constexpr int kGroups = (kRows + kRowGroup - 1) / kRowGroup;
  Reg<T> sums[kRows][kPlaces];
  const T* b[kPlaces];
  T* c[kPlaces];
  for (int s = 0; s < kPlaces; ++s) {
    b[s] = product.b + tile.places[s].source;
    c[s] = tile.c + tile.places[s].result;
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    for (int s = 0; s < kPlaces; ++s) {
      sums[i][s] = product.accumulate ? R::load(c[s] + i * product.c_row) : R::fill(T{0});
    }
  }
  const int64_t a_row = product.a_row;
  const T* a_step = tile.a;
  for (int64_t step = 0; step < product.steps; ++step, a_step += product.a_step) {
    for (int64_t t = 0; t < product.num_taps; ++t) {
      const LaneTap tap = product.taps[t];
      const T* a[kGroups];
      for (int g = 0; g < kGroups; ++g) a[g] = a_step + tap.weight + g * kRowGroup * a_row;
      Reg<T> lines[kPlaces];
      for (int s = 0; s < kPlaces; ++s) lines[s] = R::load(b[s] + tap.line);
#pragma GCC unroll 12
      for (int i = 0; i < kRows; ++i) {
        const Reg<T> x = R::fill(a[i / kRowGroup][(i % kRowGroup) * a_row]);
        for (int s = 0; s < kPlaces; ++s) sums[i][s] = R::fma(x, lines[s], sums[i][s]);
      }
    }
    for (int s = 0; s < kPlaces; ++s) b[s] += product.b_step;
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    for (int s = 0; s < kPlaces; ++s) {
      if (tile.bias != nullptr) sums[i][s] = sums[i][s] + R::fill(tile.bias[i]);
      R::store(c[s] + i * product.c_row, sums[i][s]);
    }
  }
}

/// Micro-kernels by number of rows, less one.
template <class T>
struct Kernels {
  void (*by_rows[kMaxRows])(const LaneProduct<T>&, const LaneTile<T>&);
};

template <class T, int kPlaces, int... kIndex>
constexpr Kernels<T> kernels_of(std::integer_sequence<int, kIndex...>) {
  return {{lane_kernel<T, kIndex + 1, kPlaces>...}};
}

using AllRows = std::make_integer_sequence<int, kMaxRows>;
using HalfRows = std::make_integer_sequence<int, kMaxRows / 2>;

/// By number of places, less one.
template <class T>
constexpr Kernels<T> kKernels[kMaxPlaces] = {
    kernels_of<T, 1>(AllRows()), kernels_of<T, 2>(AllRows()), kernels_of<T, 3>(HalfRows()),
    kernels_of<T, 4>(HalfRows())};

/// First row of tile t of `num_tiles`, which are nearly equal in height.
int64_t tile_begin(int64_t rows, int64_t t, int64_t num_tiles) { return rows * t / num_tiles; }

template <class T>
void run_product(const LaneProduct<T>& product) {
  const int64_t num_tiles = (product.m + kMaxRows - 1) / kMaxRows;
  for (int64_t t = 0; t < num_tiles; ++t) {
    const int64_t row = tile_begin(product.m, t, num_tiles);
    const int64_t rows = tile_begin(product.m, t + 1, num_tiles) - row;
    const int64_t widest = 2 * rows <= kMaxRows ? kMaxPlaces : 2;
    LaneTile<T> tile{.a = product.a + row * product.a_row,
                     .c = product.c + row * product.c_row,
                     .bias = product.bias == nullptr ? nullptr : product.bias + row,
                     .places = product.places};
    const LanePlace* const end = product.places + product.num_places;
    while (tile.places != end) {
      const int64_t places = smaller(widest, end - tile.places);
      kKernels<T>[places - 1].by_rows[rows - 1](product, tile);
      tile.places += places;
    }
  }
}

template <class T>
void to_lines(const T* from, int64_t image, int64_t images, int64_t count, T* lines) {
  constexpr int64_t kLanes = Registers<T>::kCount;
  if (images == kLanes) return transpose_rows(from, image, count, lines, kLanes);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lines[i * kLanes + lane] = lane < images ? from[lane * image + i] : T{0};
    }
  }
}

template <class T>
void from_lines(const T* lines, int64_t count, int64_t images, T* to, int64_t image) {
  constexpr int64_t kLanes = Registers<T>::kCount;
  const int64_t fast_images = count < kLanes ? 0 : images / 4 * 4;
  for (int64_t i = 0; fast_images > 0 && i < count; i += kLanes) {
    const int64_t at = smaller(i, count - kLanes);  // the last block overlaps the one before
    transpose_rows(lines + at * kLanes, kLanes, fast_images, to + at, image);
  }
  for (int64_t lane = fast_images; lane < images; ++lane) {
    for (int64_t i = 0; i < count; ++i) to[lane * image + i] = lines[i * kLanes + lane];
  }
}

}  // namespace

extern const LaneKernels<float> kLaneKernelsF32;
const LaneKernels<float> kLaneKernelsF32 = {run_product<float>, to_lines<float>, from_lines<float>,
                                            Registers<float>::kCount, kMaxRows};
extern const LaneKernels<double> kLaneKernelsF64;
const LaneKernels<double> kLaneKernelsF64 = {
    run_product<double>, to_lines<double>, from_lines<double>, Registers<double>::kCount, kMaxRows};

}  // namespace lucid::cpu::LUCID_ISA

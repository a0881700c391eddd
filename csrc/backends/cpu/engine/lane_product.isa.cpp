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

// Sums, the lines of all filters and one of x fill the registers.
constexpr int kGradientRows = kMaxRows == 12 ? 6 : 4;
constexpr int kGradientFilters = kMaxRows == 12 ? 4 : 3;

template <class T, int kRows, int kFilters>
void gradient_kernel(const LaneGradient<T>& gradient, int64_t row, int64_t filter) {
  using R = Registers<T>;
  constexpr int64_t kLanes = R::kCount;
  T* const target = gradient.sums + (row * gradient.filters + filter) * kLanes;
  const int64_t target_row = gradient.filters * kLanes;
  Reg<T> sums[kRows][kFilters];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int f = 0; f < kFilters; ++f) {
      sums[i][f] =
          gradient.accumulate ? R::load(target + i * target_row + f * kLanes) : R::fill(T{0});
    }
  }
  const T* const first_grad = gradient.grad + filter * gradient.grad_row;
  for (int64_t s = 0; s < gradient.num_segments; ++s) {
    const LaneSegment& segment = gradient.segments[s];
    const T* grad = first_grad + segment.grad;
    const T* x[kRows];
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      x[i] = gradient.x + gradient.row_offsets[row + i] + segment.x;
    }
    int64_t at = 0;
    for (int64_t p = 0; p < gradient.length; ++p, at += gradient.x_step, grad += kLanes) {
      Reg<T> grads[kFilters];
#pragma GCC unroll 4
      for (int f = 0; f < kFilters; ++f) grads[f] = R::load(grad + f * gradient.grad_row);
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) {
        const Reg<T> line = R::load(x[i] + at);
#pragma GCC unroll 4
        for (int f = 0; f < kFilters; ++f) sums[i][f] = R::fma(line, grads[f], sums[i][f]);
      }
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int f = 0; f < kFilters; ++f) {
      R::store(target + i * target_row + f * kLanes, sums[i][f]);
    }
  }
}

/// Micro-kernels by number of rows, less one.
template <class T>
struct GradientKernels {
  void (*by_rows[kGradientRows])(const LaneGradient<T>&, int64_t, int64_t);
};

template <class T, int kFilters, int... kIndex>
constexpr GradientKernels<T> gradient_kernels_of(std::integer_sequence<int, kIndex...>) {
  return {{gradient_kernel<T, kIndex + 1, kFilters>...}};
}

/// Kernels by number of filters, less one.
template <class T>
struct AllGradientKernels {
  GradientKernels<T> by_filters[kGradientFilters];
};

template <class T, int... kIndex>
constexpr AllGradientKernels<T> all_gradient_kernels(std::integer_sequence<int, kIndex...>) {
  return {
      {gradient_kernels_of<T, kIndex + 1>(std::make_integer_sequence<int, kGradientRows>())...}};
}

template <class T>
constexpr AllGradientKernels<T> kGradientKernels =
    all_gradient_kernels<T>(std::make_integer_sequence<int, kGradientFilters>());

template <class T>
void run_gradient(const LaneGradient<T>& gradient) {
  const int64_t row_tiles = (gradient.rows + kGradientRows - 1) / kGradientRows;
  const int64_t filter_tiles = (gradient.filters + kGradientFilters - 1) / kGradientFilters;
  for (int64_t f = 0; f < filter_tiles; ++f) {
    const int64_t filter = tile_begin(gradient.filters, f, filter_tiles);
    const int64_t filters = tile_begin(gradient.filters, f + 1, filter_tiles) - filter;
    const GradientKernels<T>& kernels = kGradientKernels<T>.by_filters[filters - 1];
    for (int64_t r = 0; r < row_tiles; ++r) {
      const int64_t row = tile_begin(gradient.rows, r, row_tiles);
      const int64_t rows = tile_begin(gradient.rows, r + 1, row_tiles) - row;
      kernels.by_rows[rows - 1](gradient, row, filter);
    }
  }
}

/// Lane l with lane l + lanes / 2, and so on down to one.
template <class T>
void fold(const T* lines, int64_t count, T* to) {
  constexpr int64_t kLanes = Registers<T>::kCount;
  alignas(64) T turned[kLanes * kLanes];
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    transpose_rows(lines + i * kLanes, kLanes, kLanes, turned, kLanes);
    for (int64_t width = kLanes / 2; width > 0; width /= 2) {
      for (int64_t j = 0; j < width * kLanes; ++j) turned[j] += turned[j + width * kLanes];
    }
    std::memcpy(to + i, turned, sizeof(T) * static_cast<size_t>(kLanes));
  }
  for (; i < count; ++i) {
    std::memcpy(turned, lines + i * kLanes, sizeof(T) * static_cast<size_t>(kLanes));
    for (int64_t width = kLanes / 2; width > 0; width /= 2) {
      for (int64_t j = 0; j < width; ++j) turned[j] += turned[j + width];
    }
    to[i] = turned[0];
  }
}

template <class T>
constexpr LaneKernels<T> kKernelsOfLanes = {
    .product = run_product<T>,
    .to_lines = to_lines<T>,
    .from_lines = from_lines<T>,
    .gradient = run_gradient<T>,
    .fold = fold<T>,
    .lanes = Registers<T>::kCount,
    .rows = kMaxRows,
};

}  // namespace

extern const LaneKernels<float> kLaneKernelsF32;
const LaneKernels<float> kLaneKernelsF32 = kKernelsOfLanes<float>;
extern const LaneKernels<double> kLaneKernelsF64;
const LaneKernels<double> kLaneKernelsF64 = kKernelsOfLanes<double>;

}  // namespace lucid::cpu::LUCID_ISA

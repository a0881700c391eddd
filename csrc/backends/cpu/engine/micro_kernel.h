// The micro-kernels of matrix products and the panels that they read. Only *.isa.cpp files include
// this header: every function here is compiled per instruction set.
#pragma once

#include <utility>

#include "backends/cpu/engine/registers.h"

namespace lucid::cpu::LUCID_ISA {

template <class T>
inline constexpr int64_t kLineElements = 64 / static_cast<int64_t>(sizeof(T));
inline constexpr int kRowGroup = 3;  // rows reached from one pointer: +0, +1 and +2 strides
inline constexpr int kPanelRegs = 2;

template <class T>
inline constexpr int kPanelColumns = kPanelRegs * Registers<T>::kCount;

/// Rows and columns of c that one micro-kernel call makes.
template <class T>
struct Tile {
  const T* a;
  int64_t a_row;
  int64_t a_depth;
  const T* b;
  int64_t b_depth;
  T* c;
  int64_t c_row;
  int64_t depth;
  const T* bias;
  int64_t bias_row;
  int64_t bias_column;
  bool accumulate;
  bool stream = false;  ///< c goes past the caches: whole aligned registers, kPanelRegs of them
  typename Registers<T>::Mask mask{};  ///< lanes of the last register
};

template <class T, int kRegs>
Row<T, kRegs> bias_of_row(const Tile<T>& tile, int row) {
  const T* const bias = tile.bias + row * tile.bias_row;
  if (tile.bias_column != 0) return load_row<T, kRegs>(bias, tile.mask);
  return filled_row<T, kRegs>(*bias);
}

/// Fetches the lines that a tile will write: their misses hide behind the products.
template <class T, int kRows, int kRegs>
void prefetch_rows(T* c, int64_t c_row) {
  for (int i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kRegs * Registers<T>::kCount; j += kLineElements<T>) {
      __builtin_prefetch(c + i * c_row + j, 1);
    }
  }
}

// The loops over rows are unrolled in full: else the sums would live in memory.
template <class T, int kRows, int kRegs>
void micro_kernel(const Tile<T>& tile) {
  constexpr int kGroups = (kRows + kRowGroup - 1) / kRowGroup;
  const int64_t a_row = tile.a_row;
  const T* a[kGroups];
  for (int g = 0; g < kGroups; ++g) a[g] = tile.a + g * kRowGroup * a_row;
  Row<T, kRegs> sums[kRows];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    sums[i] = tile.accumulate ? load_row<T, kRegs>(tile.c + i * tile.c_row, tile.mask)
                              : filled_row<T, kRegs>(T{0});
  }
  if (!tile.accumulate && !tile.stream) prefetch_rows<T, kRows, kRegs>(tile.c, tile.c_row);
  const T* b = tile.b;
  for (int64_t p = 0; p < tile.depth; ++p) {
    const Row<T, kRegs> b_row = load_row<T, kRegs>(b, tile.mask);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const auto x = Registers<T>::fill(a[i / kRowGroup][(i % kRowGroup) * a_row]);
      for (int r = 0; r < kRegs; ++r)
        sums[i].reg[r] = Registers<T>::fma(x, b_row.reg[r], sums[i].reg[r]);
    }
    for (int g = 0; g < kGroups; ++g) a[g] += tile.a_depth;
    b += tile.b_depth;
  }
  if (tile.bias != nullptr) {
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const Row<T, kRegs> bias = bias_of_row<T, kRegs>(tile, i);
      for (int r = 0; r < kRegs; ++r) sums[i].reg[r] = sums[i].reg[r] + bias.reg[r];
    }
  }
  if constexpr (kCanStream<T> && kRegs == kPanelRegs) {
    if (tile.stream) {
#pragma GCC unroll 12
      for (int i = 0; i < kRows; ++i) stream_row<T, kRegs>(tile.c + i * tile.c_row, sums[i]);
      return;
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    store_row<T, kRegs>(tile.c + i * tile.c_row, sums[i], tile.mask);
  }
}

template <class T>
using MicroKernel = void (*)(const Tile<T>&);

template <class T>
struct MicroKernels {
  MicroKernel<T> by_rows[kMaxRows];
};

template <class T, int kRegs, int... kIndex>
constexpr MicroKernels<T> micro_kernels(std::integer_sequence<int, kIndex...>) {
  return {{micro_kernel<T, kIndex + 1, kRegs>...}};
}

/// By number of registers, then of rows, each less one.
template <class T>
inline constexpr MicroKernels<T> kMicroKernels[kPanelRegs] = {
    micro_kernels<T, 1>(std::make_integer_sequence<int, kMaxRows>()),
    micro_kernels<T, 2>(std::make_integer_sequence<int, kMaxRows>())};

/// Copies whole rows of b into the panel.
template <class T>
void pack_rows(const T* b, int64_t b_depth, int64_t depth, int64_t columns, T* panel) {
  const int64_t regs = (columns - 1) / Registers<T>::kCount + 1;
  const auto mask = Registers<T>::mask(columns - (regs - 1) * Registers<T>::kCount);
  for (int64_t p = 0; p < depth; ++p) {
    const T* const from = b + p * b_depth;
    T* const to = panel + p * kPanelColumns<T>;
    __builtin_prefetch(from + kPanelColumns<T>);  // the next panel's part of this row
    __builtin_prefetch(from + kPanelColumns<T> + kLineElements<T>);
    if (regs == kPanelRegs) {
      store_row<T, kPanelRegs>(to, load_row<T, kPanelRegs>(from, mask), mask);
    } else {
      store_row<T, 1>(to, load_row<T, 1>(from, mask), mask);
    }
  }
}

/// Copies b's (depth, columns) into a panel whose rows are kPanelColumns<T> apart.
template <class T>
void pack(const T* b, int64_t b_depth, int64_t b_column, int64_t depth, int64_t columns, T* panel) {
  constexpr int64_t kStride = kPanelColumns<T>;
  constexpr int64_t kCount = Registers<T>::kCount;
  if (b_column == 1) {
    pack_rows(b, b_depth, depth, columns, panel);
    return;
  }
  int64_t j = 0;
  if (b_depth == 1) {
    for (; j + kCount <= columns; j += kCount) {
      transpose_rows(b + j * b_column, b_column, depth, panel + j, kStride);
    }
  }
  for (; j < columns; ++j) {
    for (int64_t p = 0; p < depth; ++p) panel[p * kStride + j] = b[p * b_depth + j * b_column];
  }
}

/// Runs the micro-kernels down the rows of one panel, in tiles of nearly equal height.
template <class T>
void multiply_panel(Tile<T> tile, int64_t rows, int64_t columns) {
  const int64_t regs = (columns - 1) / Registers<T>::kCount + 1;
  const int64_t num_tiles = (rows - 1) / kMaxRows + 1;
  tile.mask = Registers<T>::mask(columns - (regs - 1) * Registers<T>::kCount);
  const T* const a = tile.a;
  T* const c = tile.c;
  const T* const bias = tile.bias;
  const MicroKernels<T>& kernels = kMicroKernels<T>[regs - 1];
  int64_t row = 0;
  for (int64_t t = 0; t < num_tiles; ++t) {
    const int64_t end = rows * (t + 1) / num_tiles;
    tile.a = a + row * tile.a_row;
    tile.c = c + row * tile.c_row;
    if (bias != nullptr) tile.bias = bias + row * tile.bias_row;
    kernels.by_rows[end - row - 1](tile);
    row = end;
  }
}

}  // namespace lucid::cpu::LUCID_ISA

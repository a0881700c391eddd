// The micro-kernels of block_product, compiled once for each instruction set.
#include <cstring>
#include <utility>

#include "backends/cpu/engine/block_product.h"
#include "backends/cpu/engine/registers.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

template <class T>
constexpr int64_t kDepthBlock = kProductDepthBlock * 4 / static_cast<int64_t>(sizeof(T));
template <class T>
constexpr int64_t kStagedDepthStride = kDepthBlock<T> + 64 / static_cast<int64_t>(sizeof(T));
constexpr int64_t kBlockRows = 192;  // staged rows of a take 204 KiB of the stack
template <class T>
constexpr int64_t kLineElements = 64 / static_cast<int64_t>(sizeof(T));
constexpr int kRowGroup = 3;  // rows reached from one pointer: +0, +1 and +2 strides
constexpr int kPanelRegs = 2;

template <class T>
constexpr int kPanelColumns = kPanelRegs * Registers<T>::kCount;

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
  if (!tile.accumulate) prefetch_rows<T, kRows, kRegs>(tile.c, tile.c_row);
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
constexpr MicroKernels<T> kMicroKernels[kPanelRegs] = {
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
  const int64_t fast_depth = b_depth == 1 ? depth / 4 * 4 : 0;
  int64_t j = 0;
  for (; j + kCount <= columns && fast_depth > 0; j += kCount) {
    for (int64_t p = 0; p < fast_depth; p += 4) {
      Registers<T>::transpose(b + j * b_column + p, b_column, panel + p * kStride + j, kStride);
    }
    for (int64_t p = fast_depth; p < depth; ++p) {
      for (int64_t q = j; q < j + kCount; ++q) panel[p * kStride + q] = b[p + q * b_column];
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

/// Reading b in place pays while few rows use it or it stays in the first-level cache.
template <class T>
bool worth_packing(const BlockProduct<T>& product) {
  if (product.b_column != 1) return true;
  constexpr int64_t kInCache = 32 * 1024 / sizeof(T);
  return product.m > 3 * kMaxRows && product.n * product.k > kInCache;
}

/// True if rows (or columns) of a are so far apart that a tile's would share few cache sets.
template <class T>
bool worth_staging(const BlockProduct<T>& product) {
  constexpr int64_t kFar = 2048 / sizeof(T);
  const int64_t distance = product.a_depth == 1 ? product.a_row : product.a_depth;
  return product.n >= 4 * kPanelColumns<T> && product.m > kMaxRows && distance >= kFar;
}

/// Copies (rows, depth) of a, so that tiles read memory of a fixed small extent.
template <class T>
void stage(const BlockProduct<T>& product, const T* a, int64_t rows, int64_t depth, T* to) {
  const bool by_rows = product.a_depth == 1;
  const int64_t lines = by_rows ? rows : depth;
  const int64_t length = by_rows ? depth : rows;
  const int64_t distance = by_rows ? product.a_row : product.a_depth;
  const int64_t stride = by_rows ? kStagedDepthStride<T> : kBlockRows;
  for (int64_t i = 0; i < lines; ++i) {
    std::memcpy(to + i * stride, a + i * distance, static_cast<size_t>(length) * sizeof(T));
  }
}

/// One block of the depth: where it begins, and how a's and b's parts of it are read.
template <class T>
struct DepthBlock {
  int64_t begin;
  int64_t depth;
  bool packed;  ///< b is read from panels
  bool kept;    ///< the panels of all columns lie side by side in the workspace
  bool staged;  ///< a is read from a copy
};

template <class T>
const T* first_of_b(const BlockProduct<T>& product, int64_t begin, int64_t column) {
  return product.b + begin * product.b_depth + column * product.b_column;
}

template <class T>
void pack_all(const BlockProduct<T>& product, const DepthBlock<T>& block) {
  for (int64_t column = 0; column < product.n; column += kPanelColumns<T>) {
    pack(first_of_b(product, block.begin, column), product.b_depth, product.b_column, block.depth,
         smaller(product.n - column, kPanelColumns<T>),
         product.workspace + column * kDepthBlock<T>);
  }
}

/// At most kBlockRows rows of c, over one block of the depth.
template <class T>
void multiply_rows(const BlockProduct<T>& product, const DepthBlock<T>& block) {
  alignas(64) T panel[kDepthBlock<T> * kPanelColumns<T>];
  alignas(64) T staged_a[kBlockRows * kStagedDepthStride<T>];
  Tile<T> tile{};
  tile.a = product.a + block.begin * product.a_depth;
  tile.a_row = product.a_row;
  tile.a_depth = product.a_depth;
  if (block.staged) {
    stage(product, tile.a, product.m, block.depth, staged_a);
    tile.a = staged_a;
    tile.a_row = product.a_depth == 1 ? kStagedDepthStride<T> : 1;
    tile.a_depth = product.a_depth == 1 ? 1 : kBlockRows;
  }
  tile.b_depth = block.packed ? kPanelColumns<T> : product.b_depth;
  tile.c_row = product.c_row;
  tile.bias_row = product.bias_row;
  tile.bias_column = product.bias_column;
  tile.depth = block.depth;
  tile.accumulate = product.accumulate || block.begin > 0;
  const bool last = block.begin + block.depth == product.k;
  for (int64_t column = 0; column < product.n; column += kPanelColumns<T>) {
    const int64_t columns = smaller(product.n - column, kPanelColumns<T>);
    tile.b = first_of_b(product, block.begin, column);
    if (block.kept) {
      tile.b = product.workspace + column * kDepthBlock<T>;
    } else if (block.packed) {
      pack(tile.b, product.b_depth, product.b_column, block.depth, columns, panel);
      tile.b = panel;
    }
    tile.c = product.c + column;
    tile.bias =
        last && product.bias != nullptr ? product.bias + column * product.bias_column : nullptr;
    multiply_panel(tile, product.m, columns);
  }
}

template <class T>
void run(const BlockProduct<T>& product) {
  const int64_t num_parts = (product.m + kBlockRows - 1) / kBlockRows;
  DepthBlock<T> block{};
  block.packed = worth_packing(product);
  block.kept = block.packed && product.workspace != nullptr && num_parts > 1;
  block.staged = worth_staging(product);
  do {  // once also for k == 0: c becomes zeros and bias
    block.depth = smaller(product.k - block.begin, kDepthBlock<T>);
    if (block.kept) pack_all(product, block);
    for (int64_t i = 0; i < num_parts; ++i) {
      BlockProduct<T> part = product;
      const int64_t row = product.m * i / num_parts;
      part.m = product.m * (i + 1) / num_parts - row;
      part.a += row * product.a_row;
      part.c += row * product.c_row;
      if (product.bias != nullptr) part.bias += row * product.bias_row;
      multiply_rows(part, block);
    }
    block.begin += block.depth;
  } while (block.begin < product.k);
}

void transpose(const float* from, int64_t from_row, int64_t rows, int64_t columns, float* to,
               int64_t to_row) {
  constexpr int64_t kCount = Registers<float>::kCount;
  const int64_t fast_columns = columns / 4 * 4;
  int64_t i = 0;
  for (; i + kCount <= rows; i += kCount) {
    for (int64_t j = 0; j < fast_columns; j += 4) {
      Registers<float>::transpose(from + i * from_row + j, from_row, to + j * to_row + i, to_row);
    }
    for (int64_t j = fast_columns; j < columns; ++j) {
      for (int64_t r = i; r < i + kCount; ++r) to[j * to_row + r] = from[r * from_row + j];
    }
  }
  for (; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) to[j * to_row + i] = from[i * from_row + j];
  }
}

}  // namespace

extern const BlockProductKernels kBlockProductKernels;
const BlockProductKernels kBlockProductKernels = {run<float>, run<double>, transpose};

}  // namespace lucid::cpu::LUCID_ISA

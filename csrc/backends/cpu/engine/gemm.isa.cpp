// The micro-kernels of block_product, compiled once for each instruction set.
#include <cstring>

#include "backends/cpu/engine/block_product.h"
#include "backends/cpu/engine/micro_kernel.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

template <class T>
constexpr int64_t kDepthBlock = kProductDepthBlock * 4 / static_cast<int64_t>(sizeof(T));
template <class T>
constexpr int64_t kStagedDepthStride = kDepthBlock<T> + 64 / static_cast<int64_t>(sizeof(T));
constexpr int64_t kBlockRows = 192;  // staged rows of a take 204 KiB of the stack

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
  int64_t i = 0;
  for (; i + kCount <= rows; i += kCount) {
    transpose_rows(from + i * from_row, from_row, columns, to + i, to_row);
  }
  for (; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) to[j * to_row + i] = from[i * from_row + j];
  }
}

}  // namespace

extern const BlockProductKernels kBlockProductKernels;
const BlockProductKernels kBlockProductKernels = {run<float>, run<double>, transpose};

}  // namespace lucid::cpu::LUCID_ISA

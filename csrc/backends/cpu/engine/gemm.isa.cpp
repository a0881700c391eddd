// The micro-kernels of block_product, compiled once for each instruction set.
#include <cstring>

#include "backends/cpu/engine/block_product.h"
#include "backends/cpu/engine/micro_kernel.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

template <class T>
constexpr int64_t kPanelDepth = kPanelDepthBytes / static_cast<int64_t>(sizeof(T));
template <class T>
constexpr int64_t kTransposedDepth = 1024 / static_cast<int64_t>(sizeof(T));
constexpr int64_t kMaxBlockRows = 192;
constexpr int64_t kBlockBytes = 576 * 1024;  // of a: they stay in the second-level cache

/// Rows of b in a panel at most. Deep panels pass over c less often. But each depth of a transposed
/// a has lines of its own, and lines a power of two apart push each other out of the caches.
template <class T>
int64_t panel_depth(const BlockProduct<T>& product) {
  return smaller(product.k, product.a_depth == 1 ? kPanelDepth<T> : kTransposedDepth<T>);
}

template <class T>
int64_t block_rows(int64_t depth) {
  const int64_t row_bytes = depth * static_cast<int64_t>(sizeof(T));
  return row_bytes == 0 ? kMaxBlockRows : smaller(kMaxBlockRows, kBlockBytes / row_bytes);
}

/// Reading b in place pays while few rows use it or it stays in the first-level cache.
template <class T>
bool worth_packing(const BlockProduct<T>& product) {
  if (product.b_column != 1) return true;
  constexpr int64_t kInCache = 32 * 1024 / sizeof(T);
  return product.m > 3 * kMaxRows && product.n * product.k > kInCache;
}

/// A tile uses so little of a line of a transposed a that several tiles fetch the same line.
template <class T>
constexpr bool kNarrowTiles = kMaxRows * sizeof(T) < 32;

/// True if those lines push each other out of the first-level cache, so that a copy costs less.
template <class T>
bool worth_copying_a(const BlockProduct<T>& product) {
  constexpr int64_t kSameSet = 4096 / sizeof(T);
  return kNarrowTiles<T> && product.a_row == 1 && product.a_depth % kSameSet == 0 &&
         product.m > kMaxRows && product.n >= 4 * kPanelColumns<T>;
}

/// One block of the depth: where it begins, and how a's and b's parts of it are read.
template <class T>
struct DepthBlock {
  int64_t begin;
  int64_t depth;
  bool packed;  ///< b is read from panels
  bool kept;    ///< the panels of all columns lie side by side in the workspace
  bool filled;  ///< and earlier rows have packed them
  bool copied;  ///< a is read from a copy
};

template <class T>
const T* first_of_b(const BlockProduct<T>& product, int64_t begin, int64_t column) {
  return product.b + begin * product.b_depth + column * product.b_column;
}

/// True if rows of a tile are whole lines of memory: a part of a line past the caches costs more.
template <class T>
bool has_whole_lines(const T* c, int64_t c_row) {
  return reinterpret_cast<uintptr_t>(c) % 64 == 0 && c_row % kLineElements<T> == 0;
}

/// One block of the rows of c, over one block of the depth.
template <class T>
void multiply_rows(const BlockProduct<T>& product, const DepthBlock<T>& block) {
  alignas(64) T panel[kPanelDepth<T> * kPanelColumns<T>];
  alignas(64) T copy_of_a[kNarrowTiles<T> ? kTransposedDepth<T> * kMaxBlockRows : 1];
  Tile<T> tile{};
  tile.a = product.a + block.begin * product.a_depth;
  tile.a_row = product.a_row;
  tile.a_depth = product.a_depth;
  if (block.copied) {
    for (int64_t p = 0; p < block.depth; ++p) {
      std::memcpy(copy_of_a + p * kMaxBlockRows, tile.a + p * product.a_depth,
                  static_cast<size_t>(product.m) * sizeof(T));
    }
    tile.a = copy_of_a;
    tile.a_depth = kMaxBlockRows;
  }
  tile.b_depth = block.packed ? kPanelColumns<T> : product.b_depth;
  tile.c_row = product.c_row;
  tile.bias_row = product.bias_row;
  tile.bias_column = product.bias_column;
  tile.depth = block.depth;
  tile.accumulate = product.accumulate || block.begin > 0;
  const bool last = block.begin + block.depth == product.k;
  const bool stream =
      product.past_caches && last && !tile.accumulate && has_whole_lines(product.c, product.c_row);
  for (int64_t column = 0; column < product.n; column += kPanelColumns<T>) {
    const int64_t columns = smaller(product.n - column, kPanelColumns<T>);
    tile.b = first_of_b(product, block.begin, column);
    if (block.packed) {
      T* const packed = block.kept ? product.workspace + column * block.depth : panel;
      if (!block.filled) {
        pack(tile.b, product.b_depth, product.b_column, block.depth, columns, packed);
      }
      tile.b = packed;
    }
    tile.c = product.c + column;
    tile.bias =
        last && product.bias != nullptr ? product.bias + column * product.bias_column : nullptr;
    tile.stream = stream && columns == kPanelColumns<T>;
    multiply_panel(tile, product.m, columns);
  }
  if (stream) end_streams();
}

template <class T>
void run(const BlockProduct<T>& product) {
  const int64_t depth = panel_depth(product);
  const int64_t rows = block_rows<T>(depth);
  const int64_t num_parts = (product.m + rows - 1) / rows;
  DepthBlock<T> block{};
  block.packed = worth_packing(product);
  block.kept = block.packed && product.workspace != nullptr && num_parts > 1;
  block.copied = worth_copying_a(product);
  do {  // once also for k == 0: c becomes zeros and bias
    block.depth = smaller(product.k - block.begin, depth);
    for (int64_t i = 0; i < num_parts; ++i) {
      BlockProduct<T> part = product;
      const int64_t row = product.m * i / num_parts;
      part.m = product.m * (i + 1) / num_parts - row;
      part.a += row * product.a_row;
      part.c += row * product.c_row;
      if (product.bias != nullptr) part.bias += row * product.bias_row;
      block.filled = block.kept && i > 0;
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

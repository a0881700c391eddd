// Our own matrix product on one thread: the portable engine, and the one for small products.
#pragma once

#include <cstdint>

#include "backends/cpu/simd/isa.h"

namespace lucid::cpu {

/// Bytes that a column of a packed panel of b takes at most.
constexpr int64_t kPanelDepthBytes = 4096;
/// Columns that one panel may be wide at most.
constexpr int64_t kMaxPanelColumns = 32;

/// c = a b, with a (m, k) and b (k, n) anywhere in memory. Every element is one chain of fused
/// multiply-adds over k in ascending order, started at 0 (or at c's old value), then plus bias.
/// So m, n, strides and alignment never change an element's bits.
template <class T>
struct BlockProduct {
  const T* a;
  int64_t a_row;    ///< elements between rows of a
  int64_t a_depth;  ///< elements between columns of a
  const T* b;
  int64_t b_depth;   ///< elements between rows of b
  int64_t b_column;  ///< elements between columns of b; 1 avoids a copy
  T* c;
  int64_t c_row;  ///< elements between rows of c; its columns are neighbours
  int64_t m;
  int64_t n;
  int64_t k;
  const T* bias = nullptr;  ///< added at the end unless null
  int64_t bias_row = 0;     ///< elements between the biases of two rows
  int64_t bias_column = 1;  ///< elements between the biases of two columns: 0 or 1
  bool accumulate = false;  ///< continue the chains that c holds
  /// Room for n columns of b, rounded up to panels, of kPanelDepthBytes (or k elements if that is
  /// less) each. Without it b is packed again for each block of rows.
  T* workspace = nullptr;
  bool past_caches = false;  ///< c is so large that it would not stay in them
};

/// The code of one instruction set.
struct BlockProductKernels {
  void (*f32)(const BlockProduct<float>& product);
  void (*f64)(const BlockProduct<double>& product);
  /// to[j][i] = from[i][j]; the `_row` arguments are elements between rows.
  void (*transpose)(const float* from, int64_t from_row, int64_t rows, int64_t columns, float* to,
                    int64_t to_row);
};

/// The best code for this processor.
const BlockProductKernels& block_product_kernels();

inline void block_product(const BlockProduct<float>& product) {
  block_product_kernels().f32(product);
}
inline void block_product(const BlockProduct<double>& product) {
  block_product_kernels().f64(product);
}

}  // namespace lucid::cpu

LUCID_ISA_DECLARE(extern const BlockProductKernels kBlockProductKernels;)

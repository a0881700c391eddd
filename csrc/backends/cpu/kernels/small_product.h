// A product of small matrices inside one kernel, vectorised along the columns. Only *.isa.cpp files
// include it. Each element is one chain of (fused) multiply-adds over k in order, so blocking and
// tails do not change its bits.
#pragma once

#include "backends/cpu/kernels/lanes.h"

namespace lucid::cpu::LUCID_ISA {

#if defined(__AVX512F__)
inline constexpr int kBlockRowCount = 8;
LUCID_INLINE VectorOf<float, 16>::type multiply_add(VectorOf<float, 16>::type a,
                                                    VectorOf<float, 16>::type b,
                                                    VectorOf<float, 16>::type c) {
  return reinterpret_cast<VectorOf<float, 16>::type>(_mm512_fmadd_ps(
      reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
}
LUCID_INLINE VectorOf<double, 8>::type multiply_add(VectorOf<double, 8>::type a,
                                                    VectorOf<double, 8>::type b,
                                                    VectorOf<double, 8>::type c) {
  return reinterpret_cast<VectorOf<double, 8>::type>(_mm512_fmadd_pd(
      reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b), reinterpret_cast<__m512d>(c)));
}
#elif defined(__FMA__)
inline constexpr int kBlockRowCount = 4;
LUCID_INLINE VectorOf<float, 8>::type multiply_add(VectorOf<float, 8>::type a,
                                                   VectorOf<float, 8>::type b,
                                                   VectorOf<float, 8>::type c) {
  return reinterpret_cast<VectorOf<float, 8>::type>(_mm256_fmadd_ps(
      reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
}
LUCID_INLINE VectorOf<double, 4>::type multiply_add(VectorOf<double, 4>::type a,
                                                    VectorOf<double, 4>::type b,
                                                    VectorOf<double, 4>::type c) {
  return reinterpret_cast<VectorOf<double, 4>::type>(_mm256_fmadd_pd(
      reinterpret_cast<__m256d>(a), reinterpret_cast<__m256d>(b), reinterpret_cast<__m256d>(c)));
}
#else
// Without the instruction a fused multiply-add would be a call per element.
inline constexpr int kBlockRowCount = 4;
template <class V>
LUCID_INLINE V multiply_add(V a, V b, V c) {
  return a * b + c;
}
#endif

/// A matrix in memory: element (i, j) is data[i * row_stride + j * column_stride].
template <class T>
struct MatrixView {
  const T* data;
  int64_t row_stride;
  int64_t column_stride;
};

/// Columns [0, count) of a native vector; all of them if `kWhole`.
template <bool kWhole, class T>
LUCID_INLINE typename Lanes<T>::Vector load_columns(const T* source, int64_t count) {
  typename Lanes<T>::Vector value{};
  if constexpr (kWhole) {
    std::memcpy(&value, source, sizeof(value));
    return value;
  }
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    return reinterpret_cast<typename Lanes<T>::Vector>(
        _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1u), source));
  }
#endif
  T buffer[Lanes<T>::kPerPart] = {};
  for (int64_t i = 0; i < count; ++i) buffer[i] = source[i];
  std::memcpy(&value, buffer, sizeof(value));
  return value;
}

template <bool kWhole, class T>
LUCID_INLINE void store_columns(T* target, int64_t count, typename Lanes<T>::Vector value) {
  if constexpr (kWhole) {
    std::memcpy(target, &value, sizeof(value));
    return;
  }
  T buffer[Lanes<T>::kPerPart];
  std::memcpy(buffer, &value, sizeof(value));
  for (int64_t i = 0; i < count; ++i) target[i] = buffer[i];
}

/// kRows rows by kVectors vectors of columns (of which the last has `tail` if not kWhole).
template <int kRows, int kVectors, bool kWhole, class T>
LUCID_INLINE void product_block(int64_t inner, MatrixView<T> a, const T* b, int64_t b_stride,
                                int64_t tail, bool add, T* c, int64_t c_stride) {
  using Vector = typename Lanes<T>::Vector;
  constexpr int kWidth = Lanes<T>::kPerPart;
  Vector sums[kRows][kVectors] = {};
  for (int64_t k = 0; k < inner; ++k) {
    Vector columns[kVectors];
#pragma GCC unroll 2
    for (int n = 0; n < kVectors; ++n) {
      columns[n] = load_columns<kWhole>(b + k * b_stride + n * kWidth, tail);
    }
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const Vector element = a.data[m * a.row_stride + k * a.column_stride] - Vector{};
#pragma GCC unroll 2
      for (int n = 0; n < kVectors; ++n) {
        sums[m][n] = multiply_add(element, columns[n], sums[m][n]);
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 2
    for (int n = 0; n < kVectors; ++n) {
      T* target = c + m * c_stride + n * kWidth;
      if (add) sums[m][n] = load_columns<kWhole>(target, tail) + sums[m][n];
      store_columns<kWhole>(target, tail, sums[m][n]);
    }
  }
}

template <int kRows, class T>
LUCID_INLINE void product_rows(int64_t columns, int64_t inner, MatrixView<T> a, const T* b,
                               int64_t b_stride, bool add, T* c, int64_t c_stride) {
  constexpr int kWidth = Lanes<T>::kPerPart;
  int64_t n = 0;
  for (; columns - n >= 2 * kWidth; n += 2 * kWidth) {
    product_block<kRows, 2, true>(inner, a, b + n, b_stride, 0, add, c + n, c_stride);
  }
  for (; columns - n >= kWidth; n += kWidth) {
    product_block<kRows, 1, true>(inner, a, b + n, b_stride, 0, add, c + n, c_stride);
  }
  if (n < columns) {
    product_block<kRows, 1, false>(inner, a, b + n, b_stride, columns - n, add, c + n, c_stride);
  }
}

/// c (rows, columns) = a (rows, inner) b (inner, columns), or is added to c. Rows of b and c are
/// contiguous.
template <class T>
void small_product(int64_t rows, int64_t columns, int64_t inner, MatrixView<T> a, const T* b,
                   int64_t b_stride, bool add, T* c, int64_t c_stride) {
  int64_t m = 0;
  for (; rows - m >= kBlockRowCount; m += kBlockRowCount) {
    product_rows<kBlockRowCount>(columns, inner, a, b, b_stride, add, c, c_stride);
    a.data += kBlockRowCount * a.row_stride;
    c += kBlockRowCount * c_stride;
  }
  for (; m < rows; ++m) {
    product_rows<1>(columns, inner, a, b, b_stride, add, c, c_stride);
    a.data += a.row_stride;
    c += c_stride;
  }
}

}  // namespace lucid::cpu::LUCID_ISA

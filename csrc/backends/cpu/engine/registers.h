// Registers<T>: one register of the widest vectors, and a row of them. Only the engine's *.isa.cpp
// files include this header: every function here is compiled per instruction set.
//
// No function of the standard library is used in those files: one that is not inlined would be
// shared with files compiled for lesser processors.
#pragma once

#if defined(__SSE2__)
#if defined(__GNUC__) && !defined(__clang__)
// GCC's own header trips over this warning: gcc.gnu.org/bugzilla, 105593; goes with GCC 13.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include <cstdint>
#include <cstring>

namespace lucid::cpu::LUCID_ISA {

// One register of T: load, masked load and store of the first `count` lanes, and fma; `stream`
// stores an aligned register past the caches, where there is such an instruction. Baseline
// x86 has no fma instruction: there a product rounds twice, alike in every call.
template <class T>
struct Registers;

#if defined(__AVX512F__)
inline constexpr int kMaxRows = 12;  // 12 rows of 2 registers: 24 of the 32 registers are sums

template <>
struct Registers<float> {
  using Reg = __m512;
  using Mask = __mmask16;
  static constexpr int kCount = 16;
  static Mask mask(int64_t count) { return static_cast<Mask>((1u << count) - 1u); }
  static Reg load(const float* from) { return _mm512_loadu_ps(from); }
  static Reg load(const float* from, Mask mask) { return _mm512_maskz_loadu_ps(mask, from); }
  static void store(float* to, Reg x) { _mm512_storeu_ps(to, x); }
  static void store(float* to, Reg x, Mask mask) { _mm512_mask_storeu_ps(to, mask, x); }
  static void stream(float* to, Reg x) { _mm512_stream_ps(to, x); }
  static Reg fill(float x) { return _mm512_set1_ps(x); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg gather_quads(const float* from, int64_t row) {
    const __m512 low = _mm512_castps128_ps512(_mm_loadu_ps(from));
    const __m512 mid = _mm512_insertf32x4(low, _mm_loadu_ps(from + 4 * row), 1);
    const __m512 high = _mm512_insertf32x4(mid, _mm_loadu_ps(from + 8 * row), 2);
    return _mm512_insertf32x4(high, _mm_loadu_ps(from + 12 * row), 3);
  }
  static void transpose(const float* from, int64_t row, float* to, int64_t to_row) {
    const Reg quads[4] = {gather_quads(from, row), gather_quads(from + row, row),
                          gather_quads(from + 2 * row, row), gather_quads(from + 3 * row, row)};
    const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(quads[0], quads[1]));
    const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(quads[0], quads[1]));
    const __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(quads[2], quads[3]));
    const __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(quads[2], quads[3]));
    store(to, _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23)));
    store(to + to_row, _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23)));
    store(to + 2 * to_row, _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23)));
    store(to + 3 * to_row, _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23)));
  }
  /// 16 rows of 16: reads each row once, where rows that lie 4 KiB apart push each other out.
  static void transpose_square(const float* from, int64_t row, float* to, int64_t to_row) {
    Reg quads[16];  // quads[4 k + j]: columns j, j + 4, ... of rows 4 k to 4 k + 3
#pragma GCC unroll 4
    for (int k = 0; k < 16; k += 4) {
      const Reg r[4] = {load(from + k * row), load(from + (k + 1) * row),
                        load(from + (k + 2) * row), load(from + (k + 3) * row)};
      const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(r[0], r[1]));
      const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(r[0], r[1]));
      const __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(r[2], r[3]));
      const __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(r[2], r[3]));
      quads[k] = _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23));
      quads[k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23));
      quads[k + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23));
      quads[k + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23));
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const Reg even_low = _mm512_shuffle_f32x4(quads[j], quads[4 + j], 0x88);
      const Reg even_high = _mm512_shuffle_f32x4(quads[8 + j], quads[12 + j], 0x88);
      const Reg odd_low = _mm512_shuffle_f32x4(quads[j], quads[4 + j], 0xdd);
      const Reg odd_high = _mm512_shuffle_f32x4(quads[8 + j], quads[12 + j], 0xdd);
      store(to + j * to_row, _mm512_shuffle_f32x4(even_low, even_high, 0x88));
      store(to + (4 + j) * to_row, _mm512_shuffle_f32x4(odd_low, odd_high, 0x88));
      store(to + (8 + j) * to_row, _mm512_shuffle_f32x4(even_low, even_high, 0xdd));
      store(to + (12 + j) * to_row, _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd));
    }
  }
};

template <>
struct Registers<double> {
  using Reg = __m512d;
  using Mask = __mmask8;
  static constexpr int kCount = 8;
  static Mask mask(int64_t count) { return static_cast<Mask>((1u << count) - 1u); }
  static Reg load(const double* from) { return _mm512_loadu_pd(from); }
  static Reg load(const double* from, Mask mask) { return _mm512_maskz_loadu_pd(mask, from); }
  static void store(double* to, Reg x) { _mm512_storeu_pd(to, x); }
  static void store(double* to, Reg x, Mask mask) { _mm512_mask_storeu_pd(to, mask, x); }
  static void stream(double* to, Reg x) { _mm512_stream_pd(to, x); }
  static Reg fill(double x) { return _mm512_set1_pd(x); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_pd(a, b, c); }
  static Reg gather_pairs(const double* from, int64_t row) {
    const __m512d low = _mm512_castpd128_pd512(_mm_loadu_pd(from));
    const __m512d mid = _mm512_insertf64x2(low, _mm_loadu_pd(from + 2 * row), 1);
    const __m512d high = _mm512_insertf64x2(mid, _mm_loadu_pd(from + 4 * row), 2);
    return _mm512_insertf64x2(high, _mm_loadu_pd(from + 6 * row), 3);
  }
  static void transpose(const double* from, int64_t row, double* to, int64_t to_row) {
    for (int p = 0; p < 4; p += 2) {
      const Reg even = gather_pairs(from + p, row);
      const Reg odd = gather_pairs(from + p + row, row);
      store(to + p * to_row, _mm512_unpacklo_pd(even, odd));
      store(to + (p + 1) * to_row, _mm512_unpackhi_pd(even, odd));
    }
  }
};

#elif defined(__AVX2__) && defined(__FMA__)
inline constexpr int kMaxRows = 6;  // 6 rows of 2 registers: 12 of the 16 registers are sums

template <>
struct Registers<float> {
  using Reg = __m256;
  using Mask = __m256i;
  static constexpr int kCount = 8;
  static Mask mask(int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Reg load(const float* from) { return _mm256_loadu_ps(from); }
  static Reg load(const float* from, Mask mask) { return _mm256_maskload_ps(from, mask); }
  static void store(float* to, Reg x) { _mm256_storeu_ps(to, x); }
  static void store(float* to, Reg x, Mask mask) { _mm256_maskstore_ps(to, mask, x); }
  static void stream(float* to, Reg x) { _mm256_stream_ps(to, x); }
  static Reg fill(float x) { return _mm256_set1_ps(x); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  static Reg gather_quads(const float* from, int64_t row) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from)),
                                _mm_loadu_ps(from + 4 * row), 1);
  }
  static void transpose(const float* from, int64_t row, float* to, int64_t to_row) {
    const Reg quads[4] = {gather_quads(from, row), gather_quads(from + row, row),
                          gather_quads(from + 2 * row, row), gather_quads(from + 3 * row, row)};
    const __m256d low01 = _mm256_castps_pd(_mm256_unpacklo_ps(quads[0], quads[1]));
    const __m256d high01 = _mm256_castps_pd(_mm256_unpackhi_ps(quads[0], quads[1]));
    const __m256d low23 = _mm256_castps_pd(_mm256_unpacklo_ps(quads[2], quads[3]));
    const __m256d high23 = _mm256_castps_pd(_mm256_unpackhi_ps(quads[2], quads[3]));
    store(to, _mm256_castpd_ps(_mm256_unpacklo_pd(low01, low23)));
    store(to + to_row, _mm256_castpd_ps(_mm256_unpackhi_pd(low01, low23)));
    store(to + 2 * to_row, _mm256_castpd_ps(_mm256_unpacklo_pd(high01, high23)));
    store(to + 3 * to_row, _mm256_castpd_ps(_mm256_unpackhi_pd(high01, high23)));
  }
};

template <>
struct Registers<double> {
  using Reg = __m256d;
  using Mask = __m256i;
  static constexpr int kCount = 4;
  static Mask mask(int64_t count) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
  }
  static Reg load(const double* from) { return _mm256_loadu_pd(from); }
  static Reg load(const double* from, Mask mask) { return _mm256_maskload_pd(from, mask); }
  static void store(double* to, Reg x) { _mm256_storeu_pd(to, x); }
  static void store(double* to, Reg x, Mask mask) { _mm256_maskstore_pd(to, mask, x); }
  static void stream(double* to, Reg x) { _mm256_stream_pd(to, x); }
  static Reg fill(double x) { return _mm256_set1_pd(x); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_pd(a, b, c); }
  static Reg gather_pairs(const double* from, int64_t row) {
    return _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(from)),
                                _mm_loadu_pd(from + 2 * row), 1);
  }
  static void transpose(const double* from, int64_t row, double* to, int64_t to_row) {
    for (int p = 0; p < 4; p += 2) {
      const Reg even = gather_pairs(from + p, row);
      const Reg odd = gather_pairs(from + p + row, row);
      store(to + p * to_row, _mm256_unpacklo_pd(even, odd));
      store(to + (p + 1) * to_row, _mm256_unpackhi_pd(even, odd));
    }
  }
};

#else
inline constexpr int kMaxRows = 6;

template <class T>
struct Registers {
  typedef T Reg __attribute__((vector_size(16)));
  using Mask = int64_t;
  static constexpr int kCount = 16 / sizeof(T);
  static Mask mask(int64_t count) { return count; }
  static Reg load(const T* from) {
    Reg x;
    std::memcpy(&x, from, sizeof(x));
    return x;
  }
  static Reg load(const T* from, Mask count) {
    if (count == kCount) return load(from);
    Reg x{};
    std::memcpy(&x, from, static_cast<size_t>(count) * sizeof(T));
    return x;
  }
  static void store(T* to, Reg x) { std::memcpy(to, &x, sizeof(x)); }
  static void store(T* to, Reg x, Mask count) {
    if (count == kCount) return store(to, x);
    std::memcpy(to, &x, static_cast<size_t>(count) * sizeof(T));
  }
  static Reg fill(T x) { return x - Reg{}; }
#if defined(__aarch64__)
  static float32x4_t fma(float32x4_t a, float32x4_t b, float32x4_t c) { return vfmaq_f32(c, a, b); }
  static float64x2_t fma(float64x2_t a, float64x2_t b, float64x2_t c) { return vfmaq_f64(c, a, b); }
#else
  static Reg fma(Reg a, Reg b, Reg c) { return a * b + c; }
#endif
  static void transpose(const T* from, int64_t row, T* to, int64_t to_row) {
    for (int p = 0; p < 4; ++p) {
      for (int j = 0; j < kCount; ++j) to[p * to_row + j] = from[j * row + p];
    }
  }
};
#endif

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/// to[j][i] = from[i][j] for one register of rows i and `columns` columns j.
template <class T>
inline void transpose_rows(const T* from, int64_t from_row, int64_t columns, T* to,
                           int64_t to_row) {
  using R = Registers<T>;
  int64_t j = 0;
  if constexpr (requires { R::transpose_square; }) {
    for (; j + R::kCount <= columns; j += R::kCount) {
      R::transpose_square(from + j, from_row, to + j * to_row, to_row);
    }
  }
  for (; j + 4 <= columns; j += 4) R::transpose(from + j, from_row, to + j * to_row, to_row);
  for (; j < columns; ++j) {
    for (int64_t i = 0; i < R::kCount; ++i) to[j * to_row + i] = from[i * from_row + j];
  }
}

template <class T, int kRegs>
struct Row {
  typename Registers<T>::Reg reg[kRegs];
};

template <class T, int kRegs>
inline Row<T, kRegs> filled_row(T x) {
  Row<T, kRegs> row;
  for (int r = 0; r < kRegs; ++r) row.reg[r] = Registers<T>::fill(x);
  return row;
}

template <class T, int kRegs>
inline Row<T, kRegs> load_row(const T* from, typename Registers<T>::Mask mask) {
  Row<T, kRegs> row;
  for (int r = 0; r + 1 < kRegs; ++r)
    row.reg[r] = Registers<T>::load(from + r * Registers<T>::kCount);
  row.reg[kRegs - 1] = Registers<T>::load(from + (kRegs - 1) * Registers<T>::kCount, mask);
  return row;
}

template <class T, int kRegs>
inline void store_row(T* to, const Row<T, kRegs>& row, typename Registers<T>::Mask mask) {
  for (int r = 0; r + 1 < kRegs; ++r)
    Registers<T>::store(to + r * Registers<T>::kCount, row.reg[r]);
  Registers<T>::store(to + (kRegs - 1) * Registers<T>::kCount, row.reg[kRegs - 1], mask);
}

/// True if T's registers can be stored past the caches.
template <class T>
inline constexpr bool kCanStream = requires { Registers<T>::stream; };

/// As store_row, past the caches; end_streams() before anyone else reads it.
template <class T, int kRegs>
inline void stream_row(T* to, const Row<T, kRegs>& row) {
  for (int r = 0; r < kRegs; ++r) Registers<T>::stream(to + r * Registers<T>::kCount, row.reg[r]);
}

inline void end_streams() {
#if defined(__AVX2__)
  _mm_sfence();
#endif
}

}  // namespace lucid::cpu::LUCID_ISA

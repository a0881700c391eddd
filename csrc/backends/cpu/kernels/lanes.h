// Lanes<T>: sixteen virtual lanes held in as many registers as the instruction set needs, and sums
// over them in a fixed tree. Only *.isa.cpp files include this header: every function here is
// compiled per instruction set. Lane count and tree are the same on all of them.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#endif

#include "backends/cpu/simd/vector.h"
#include "support/half.h"

// Vectors are passed to inlined functions only, so the ABI of wide arguments does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace lucid::cpu::LUCID_ISA {

#if defined(__AVX512F__)
inline constexpr int kIsaBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kIsaBytes = 32;
#else
inline constexpr int kIsaBytes = 16;
#endif

inline constexpr int kLanes = 16;
/// Elements of one lane chain before a partial sum is put aside: 256 additions a lane.
inline constexpr int64_t kFoldChunk = kLanes * 256;

template <class T>
inline constexpr int kVectorBytes =
    kLanes * static_cast<int>(sizeof(T)) < kIsaBytes ? kLanes * static_cast<int>(sizeof(T))
                                                     : kIsaBytes;

template <class T, int N>
struct VectorOf {
  typedef T type __attribute__((vector_size(N * sizeof(T))));
};

template <class T>
struct Lanes {
  static constexpr int kPerPart = kVectorBytes<T> / static_cast<int>(sizeof(T));
  static constexpr int kParts = kLanes / kPerPart;
  using Vector = typename VectorOf<T, kPerPart>::type;
  Vector part[kParts];
};

template <class T>
LUCID_INLINE Lanes<T> fill(T value) {
  Lanes<T> result;
  for (auto& part : result.part) part = value - typename Lanes<T>::Vector{};
  return result;
}

template <class T>
LUCID_INLINE Lanes<T> load(const T* source) {
  Lanes<T> result;
  std::memcpy(&result, source, sizeof(result));
  return result;
}

/// Elements as the type they are computed in.
LUCID_INLINE Lanes<float> load(const Float16* source) {
  alignas(64) float wide[kLanes];
  for (int i = 0; i < kLanes; ++i) wide[i] = widen(source[i]);
  return load(wide);
}
LUCID_INLINE Lanes<float> load(const BFloat16* source) {
  alignas(64) float wide[kLanes];
  for (int i = 0; i < kLanes; ++i) wide[i] = widen(source[i]);
  return load(wide);
}

template <class T>
LUCID_INLINE void store(T* target, const Lanes<T>& value) {
  std::memcpy(target, &value, sizeof(value));
}

/// Loads `count` < 16 elements; the other lanes are `rest`.
template <class Source, class T>
LUCID_INLINE Lanes<T> load_first(const Source* source, int64_t count, T rest) {
#if defined(__AVX512F__)
  if constexpr (sizeof(Source) == 4 && sizeof(T) == 4) {
    const auto mask = static_cast<__mmask16>((1u << count) - 1u);
    const __m512i other = _mm512_castps_si512(reinterpret_cast<__m512>(fill(rest).part[0]));
    Lanes<T> result;
    result.part[0] =
        reinterpret_cast<typename Lanes<T>::Vector>(_mm512_mask_loadu_epi32(other, mask, source));
    return result;
  }
#endif
  Source buffer[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) buffer[i] = source[i];
  alignas(64) T wide[kLanes];
  const Lanes<T> loaded = load(buffer);
  std::memcpy(wide, &loaded, sizeof(wide));
  for (int64_t i = count; i < kLanes; ++i) wide[i] = rest;
  return load(wide);
}

/// Stores the first `count` < 16 lanes.
template <class T>
LUCID_INLINE void store_first(T* target, int64_t count, const Lanes<T>& value) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    _mm512_mask_storeu_epi32(target, static_cast<__mmask16>((1u << count) - 1u),
                             reinterpret_cast<__m512i>(value.part[0]));
    return;
  }
#endif
  T buffer[kLanes];
  std::memcpy(buffer, &value, sizeof(buffer));
  for (int64_t i = 0; i < count; ++i) target[i] = buffer[i];
}

template <class T>
LUCID_INLINE Lanes<T> operator+(Lanes<T> a, const Lanes<T>& b) {
#pragma GCC unroll 8
  for (int p = 0; p < Lanes<T>::kParts; ++p) a.part[p] = a.part[p] + b.part[p];
  return a;
}
template <class T>
LUCID_INLINE Lanes<T> operator-(Lanes<T> a, const Lanes<T>& b) {
#pragma GCC unroll 8
  for (int p = 0; p < Lanes<T>::kParts; ++p) a.part[p] = a.part[p] - b.part[p];
  return a;
}
template <class T>
LUCID_INLINE Lanes<T> operator*(Lanes<T> a, const Lanes<T>& b) {
#pragma GCC unroll 8
  for (int p = 0; p < Lanes<T>::kParts; ++p) a.part[p] = a.part[p] * b.part[p];
  return a;
}

/// Folds work on whole vectors and on single elements.
struct Sum {
  static constexpr bool kIsExact = false;
  /// -0 for floating types: it leaves every element as it is, +0 would turn -0 into +0.
  template <class T>
  static constexpr T identity() {
    return std::numeric_limits<T>::is_iec559 ? static_cast<T>(-0.0) : T{0};
  }
  template <class V>
  LUCID_INLINE static V combine(V a, V b) {
    return static_cast<V>(a + b);
  }
};

struct Product {
  static constexpr bool kIsExact = false;
  template <class T>
  static constexpr T identity() {
    return T{1};
  }
  template <class V>
  LUCID_INLINE static V combine(V a, V b) {
    return static_cast<V>(a * b);
  }
};

/// A nan on either side stays.
struct Maximum {
  /// No rounding: several chains give the value of one and hide each other's latency.
  static constexpr bool kIsExact = true;
  template <class T>
  static constexpr T identity() {
    using Limits = std::numeric_limits<T>;
    return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  }
  template <class V>
  LUCID_INLINE static V combine(V a, V b) {
    return ((b <= a) | (a != a)) ? a : b;
  }
};

struct Minimum {
  static constexpr bool kIsExact = true;
  template <class T>
  static constexpr T identity() {
    using Limits = std::numeric_limits<T>;
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
  }
  template <class V>
  LUCID_INLINE static V combine(V a, V b) {
    return ((b >= a) | (a != a)) ? a : b;
  }
};

template <class Fold, class T>
LUCID_INLINE Lanes<T> combine(const Lanes<T>& a, const Lanes<T>& b) {
  Lanes<T> result;
#pragma GCC unroll 8
  for (int p = 0; p < Lanes<T>::kParts; ++p) {
    result.part[p] = Fold::combine(a.part[p], b.part[p]);
  }
  return result;
}

template <class Half, class V, int... I>
LUCID_INLINE Half low_half(V v, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(v, v, I...);
}
template <class Half, class V, int... I>
LUCID_INLINE Half high_half(V v, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(v, v, (I + static_cast<int>(sizeof...(I)))...);
}

template <int kBy, class V, int... I>
LUCID_INLINE V rotated(V v, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(v, v, ((I + kBy) % static_cast<int>(sizeof...(I)))...);
}

/// Lane l with lane l + kWidth / 2, and so on down to one, inside a vector of N lanes: the scalar
/// form of a maximum would be a branch that nothing predicts.
template <class Fold, class T, int N, int kWidth, class V>
LUCID_INLINE T fold_in_place(V v) {
  if constexpr (kWidth == 1) {
    return v[0];
  } else {
    const V other = rotated<kWidth / 2>(v, std::make_integer_sequence<int, N>{});
    return fold_in_place<Fold, T, N, kWidth / 2>(static_cast<V>(Fold::combine(v, other)));
  }
}

/// Lane l with lane l + N/2, and so on down to one.
template <class Fold, class T, int N, class V>
LUCID_INLINE T fold_vector(V v) {
  if constexpr (N * sizeof(T) <= 16) {
    return fold_in_place<Fold, T, N, N>(v);
  } else {
    using Half = typename VectorOf<T, N / 2>::type;
    using Places = std::make_integer_sequence<int, N / 2>;
    return fold_vector<Fold, T, N / 2>(
        Fold::combine(low_half<Half>(v, Places{}), high_half<Half>(v, Places{})));
  }
}

/// The fixed tree over 16 lanes: l with l + 8, l + 4, l + 2, l + 1.
template <class Fold, class T>
LUCID_INLINE T fold_lanes(Lanes<T> lanes) {
#pragma GCC unroll 4
  for (int width = Lanes<T>::kParts / 2; width > 0; width /= 2) {
#pragma GCC unroll 8
    for (int p = 0; p < width; ++p) {
      lanes.part[p] = Fold::combine(lanes.part[p], lanes.part[p + width]);
    }
  }
  return fold_vector<Fold, T, Lanes<T>::kPerPart>(lanes.part[0]);
}

/// Folds term(0), term(16), ... over [0, count): `term(i)` gives lanes i..i+15, `last(i, n)` the
/// first n of them with the rest at the identity.
template <class Fold, class T, class Term, class Last>
LUCID_INLINE T fold_terms(int64_t count, Term term, Last last) {
  Lanes<T> total = fill(Fold::template identity<T>());
  int64_t i = 0;
  if constexpr (Fold::kIsExact) {
    Lanes<T> other = total;
    for (; count - i >= 2 * kLanes; i += 2 * kLanes) {
      total = combine<Fold>(total, term(i));
      other = combine<Fold>(other, term(i + kLanes));
    }
    total = combine<Fold>(total, other);
  }
  while (count - i >= kLanes) {
    const int64_t left = (count - i) / kLanes * kLanes;
    const int64_t stop = i + (left < kFoldChunk ? left : kFoldChunk);
    Lanes<T> chunk = fill(Fold::template identity<T>());
    for (; i < stop; i += kLanes) chunk = combine<Fold>(chunk, term(i));
    total = combine<Fold>(total, chunk);
  }
  if (i < count) total = combine<Fold>(total, last(i, count - i));
  return fold_lanes<Fold>(total);
}

/// What fold_terms gives for each of N rows, whose chains hide each other's latency: `term(r, i)`
/// and `last(r, i, n)` are those of row r.
template <class Fold, class T, int N, class Term, class Last>
LUCID_INLINE void fold_terms_of_rows(int64_t count, Term term, Last last, T (&results)[N]) {
  static_assert(!Fold::kIsExact);
  Lanes<T> totals[N];
#pragma GCC unroll 8
  for (int r = 0; r < N; ++r) totals[r] = fill(Fold::template identity<T>());
  int64_t i = 0;
  while (count - i >= kLanes) {
    const int64_t left = (count - i) / kLanes * kLanes;
    const int64_t stop = i + (left < kFoldChunk ? left : kFoldChunk);
    Lanes<T> chunks[N];
#pragma GCC unroll 8
    for (int r = 0; r < N; ++r) chunks[r] = fill(Fold::template identity<T>());
    for (; i < stop; i += kLanes) {
#pragma GCC unroll 8
      for (int r = 0; r < N; ++r) chunks[r] = combine<Fold>(chunks[r], term(r, i));
    }
#pragma GCC unroll 8
    for (int r = 0; r < N; ++r) totals[r] = combine<Fold>(totals[r], chunks[r]);
  }
#pragma GCC unroll 8
  for (int r = 0; r < N; ++r) {
    if (i < count) totals[r] = combine<Fold>(totals[r], last(r, i, count - i));
    results[r] = fold_lanes<Fold>(totals[r]);
  }
}

/// Folds `count` contiguous elements.
template <class Fold, class T, class Source>
LUCID_INLINE T fold_row(const Source* source, int64_t count) {
  return fold_terms<Fold, T>(
      count, [=](int64_t i) { return load(source + i); },
      [=](int64_t i, int64_t n) {
        return load_first(source + i, n, Fold::template identity<T>());
      });
}

}  // namespace lucid::cpu::LUCID_ISA

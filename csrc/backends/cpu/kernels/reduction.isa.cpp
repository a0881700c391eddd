#include "backends/cpu/kernels/lanes.h"
#include "backends/cpu/kernels/reduction_loops.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

/// One byte per bool: any is the maximum of them and all the minimum.
struct Truth {
  uint8_t value;
};

constexpr int64_t kRowChunk = 256;
constexpr int64_t kBlock = 4 * kLanes;

template <class T>
LUCID_INLINE bool is_true(T value) {
  return value != T{0};
}
LUCID_INLINE bool is_true(Float16 value) { return (value.bits & 0x7fffu) != 0; }
LUCID_INLINE bool is_true(BFloat16 value) { return (value.bits & 0x7fffu) != 0; }

/// Reads elements for a fold that keeps type T.
template <class Source, class T>
struct Reader {
  LUCID_INLINE static Lanes<T> all(const Source* source) { return load(source); }
  LUCID_INLINE static Lanes<T> first(const Source* source, int64_t count, T rest) {
    return load_first(source, count, rest);
  }
};

template <class Source>
struct Reader<Source, Truth> {
  LUCID_INLINE static Lanes<uint8_t> all(const Source* source) {
    uint8_t truth[kLanes];
    for (int i = 0; i < kLanes; ++i) truth[i] = is_true(source[i]) ? 1 : 0;
    return load(truth);
  }
  LUCID_INLINE static Lanes<uint8_t> first(const Source* source, int64_t count, uint8_t rest) {
    uint8_t truth[kLanes];
    for (int i = 0; i < kLanes; ++i) truth[i] = rest;
    for (int64_t i = 0; i < count; ++i) truth[i] = is_true(source[i]) ? 1 : 0;
    return load(truth);
  }
};

template <class Tag>
struct Kept {
  using type = Tag;
};
template <>
struct Kept<Truth> {
  using type = uint8_t;
};

/// Tag is the kept type, or Truth.
template <class Fold, class Source, class Tag>
struct Loops {
  using T = typename Kept<Tag>::type;
  using Read = Reader<Source, Tag>;

  static void rows(const void* x, int64_t rows, int64_t length, void* out) {
    const Source* source = static_cast<const Source*>(x);
    T* target = static_cast<T*>(out);
    constexpr T kRest = Fold::template identity<T>();
    for (int64_t r = 0; r < rows; ++r, source += length) {
      target[r] = fold_terms<Fold, T>(
          length, [=](int64_t i) { return Read::all(source + i); },
          [=](int64_t i, int64_t n) { return Read::first(source + i, n, kRest); });
    }
  }

  /// `Count` groups of 16 columns, or with Count 0 the first `tail` columns of one group.
  template <int Count>
  LUCID_INLINE static void column_block(const Source* source, int64_t rows, int64_t stride,
                                        int64_t tail, T* target) {
    constexpr int kGroups = Count == 0 ? 1 : Count;
    constexpr T kRest = Fold::template identity<T>();
    Lanes<T> total[kGroups];
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) total[g] = fill(kRest);
    for (int64_t r = 0; r < rows;) {
      const int64_t stop = r + kRowChunk < rows ? r + kRowChunk : rows;
      Lanes<T> chunk[kGroups];
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) chunk[g] = fill(kRest);
      for (; r < stop; ++r) {
        const Source* row = source + r * stride;
#pragma GCC unroll 4
        for (int g = 0; g < kGroups; ++g) {
          const Lanes<T> value =
              Count == 0 ? Read::first(row, tail, kRest) : Read::all(row + g * kLanes);
          chunk[g] = combine<Fold>(chunk[g], value);
        }
      }
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) total[g] = combine<Fold>(total[g], chunk[g]);
    }
    if constexpr (Count == 0) {
      store_first(target, tail, total[0]);
    } else {
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) store(target + g * kLanes, total[g]);
    }
  }

  static void columns(const void* x, int64_t rows, int64_t stride, int64_t width, void* out) {
    const Source* source = static_cast<const Source*>(x);
    T* target = static_cast<T*>(out);
    int64_t j = 0;
    for (; width - j >= kBlock; j += kBlock) {
      column_block<4>(source + j, rows, stride, 0, target + j);
    }
    for (; width - j >= kLanes; j += kLanes) {
      column_block<1>(source + j, rows, stride, 0, target + j);
    }
    if (j < width) column_block<0>(source + j, rows, stride, width - j, target + j);
  }

  static constexpr FoldLoops loops() { return {.rows = rows, .columns = columns}; }
};

/// Integers wrap, so sums and products of signed ones run on the unsigned type of their size.
template <class Fold>
FoldLoops arithmetic_loops(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kInt8:
      return Loops<Fold, uint8_t, uint8_t>::loops();
    case DType::kInt16:
      return Loops<Fold, uint16_t, uint16_t>::loops();
    case DType::kInt32:
      return Loops<Fold, uint32_t, uint32_t>::loops();
    case DType::kInt64:
      return Loops<Fold, uint64_t, uint64_t>::loops();
    case DType::kFloat16:
      return Loops<Fold, Float16, float>::loops();
    case DType::kBFloat16:
      return Loops<Fold, BFloat16, float>::loops();
    case DType::kFloat32:
      return Loops<Fold, float, float>::loops();
    case DType::kFloat64:
      return Loops<Fold, double, double>::loops();
    case DType::kBool:
      break;
  }
  return {};
}

template <class Fold>
FoldLoops order_loops(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return Loops<Fold, uint8_t, uint8_t>::loops();
    case DType::kInt8:
      return Loops<Fold, int8_t, int8_t>::loops();
    case DType::kInt16:
      return Loops<Fold, int16_t, int16_t>::loops();
    case DType::kInt32:
      return Loops<Fold, int32_t, int32_t>::loops();
    case DType::kInt64:
      return Loops<Fold, int64_t, int64_t>::loops();
    default:
      return arithmetic_loops<Fold>(dtype);
  }
}

template <class Fold>
FoldLoops truth_loops(DType dtype) {
  switch (dtype) {
    case DType::kInt16:
      return Loops<Fold, uint16_t, Truth>::loops();
    case DType::kInt32:
      return Loops<Fold, uint32_t, Truth>::loops();
    case DType::kInt64:
      return Loops<Fold, uint64_t, Truth>::loops();
    case DType::kFloat16:
      return Loops<Fold, Float16, Truth>::loops();
    case DType::kBFloat16:
      return Loops<Fold, BFloat16, Truth>::loops();
    case DType::kFloat32:
      return Loops<Fold, float, Truth>::loops();
    case DType::kFloat64:
      return Loops<Fold, double, Truth>::loops();
    default:
      return Loops<Fold, uint8_t, Truth>::loops();
  }
}

}  // namespace

FoldLoops fold_loops(FoldKind kind, DType dtype) {
  switch (kind) {
    case FoldKind::kSum:
      return arithmetic_loops<Sum>(dtype);
    case FoldKind::kProduct:
      return arithmetic_loops<Product>(dtype);
    case FoldKind::kMaximum:
      return order_loops<Maximum>(dtype);
    case FoldKind::kMinimum:
      return order_loops<Minimum>(dtype);
    case FoldKind::kAny:
      return truth_loops<Maximum>(dtype);
    case FoldKind::kAll:
      return truth_loops<Minimum>(dtype);
  }
  return {};
}

}  // namespace lucid::cpu::LUCID_ISA

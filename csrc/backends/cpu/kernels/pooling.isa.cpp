#include <type_traits>

#include "backends/cpu/kernels/lanes.h"
#include "backends/cpu/kernels/pooling_loops.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

constexpr int kDepth = 0;
constexpr int kHeight = 1;
constexpr int kWidth = 2;

/// Axis values by plain subscripts: std::array's functions must not be emitted per ISA.
struct Axis {
  int64_t size, out, kernel, stride, padding, dilation;
};

LUCID_INLINE Axis axis_of(const PoolShape& shape, int axis) {
  const auto at = [axis](const PoolShape::Axes& values) {
    return reinterpret_cast<const int64_t*>(&values)[axis];
  };
  return {at(shape.size),   at(shape.out),     at(shape.kernel),
          at(shape.stride), at(shape.padding), at(shape.dilation)};
}

struct Range {
  int64_t begin, end;
};

/// The first tap k for which o * stride - padding + k * dilation is not negative.
LUCID_INLINE int64_t first_tap(const Axis& a, int64_t o) {
  const int64_t start = o * a.stride - a.padding;
  return start < 0 ? (-start + a.dilation - 1) / a.dilation : 0;
}

/// Taps k whose element o * stride - padding + k * dilation lies inside.
LUCID_INLINE Range valid_taps(const Axis& a, int64_t o) {
  const int64_t start = o * a.stride - a.padding;
  Range taps{first_tap(a, o), a.kernel};
  const int64_t room = start >= a.size ? 0 : (a.size - 1 - start) / a.dilation + 1;
  if (taps.end > room) taps.end = room;
  return taps;
}

/// Outputs o whose tap k lies inside.
LUCID_INLINE Range valid_outputs(const Axis& a, int64_t k) {
  const int64_t shift = a.padding - k * a.dilation;
  Range outputs{shift > 0 ? (shift + a.stride - 1) / a.stride : 0, 0};
  const int64_t last = a.size - 1 + shift;
  if (last >= 0) outputs.end = last / a.stride + 1;
  if (outputs.end > a.out) outputs.end = a.out;
  return outputs;
}

/// Calls body(d, h, row of output).
template <class Body>
LUCID_INLINE void for_output_rows(const Axis& depth, const Axis& height, Body body) {
  for (int64_t d = 0; d < depth.out; ++d) {
    for (int64_t h = 0; h < height.out; ++h) body(d, h, d * height.out + h);
  }
}

/// Calls body(row of input) for the rows that the window of output row (d, h) covers.
template <class Body>
LUCID_INLINE void for_input_rows(const Axis& depth, const Axis& height, int64_t d, int64_t h,
                                 Body body) {
  const Range depth_taps = valid_taps(depth, d);
  const Range height_taps = valid_taps(height, h);
  for (int64_t kd = depth_taps.begin; kd < depth_taps.end; ++kd) {
    const int64_t z = d * depth.stride - depth.padding + kd * depth.dilation;
    for (int64_t kh = height_taps.begin; kh < height_taps.end; ++kh) {
      const int64_t y = h * height.stride - height.padding + kh * height.dilation;
      body(z * height.size + y);
    }
  }
}

/// Integers as wide as the elements, so that masks of elements select among them.
template <class T>
using PlaceOf = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

/// The best elements so far of N neighbouring windows, and their places.
template <int N, class T>
struct Maxima {
  using Vector = typename VectorOf<T, N>::type;
  using Places = typename VectorOf<PlaceOf<T>, N>::type;

  /// Nothing taken yet: -inf at the places of the first taps.
  LUCID_INLINE static Maxima start(int64_t first_place, int64_t step) {
    return {Maximum::identity<T>() - Vector{}, count_from(first_place, step)};
  }

  /// A later element replaces an earlier one if it is greater, or nan.
  LUCID_INLINE void take(Vector values, Places value_places) {
    const Places mask = (values > best) | (values != values);
    best = mask ? values : best;
    places = mask ? value_places : places;
  }
  LUCID_INLINE void take_tap(Vector values, int64_t first_place, int64_t step) {
    take(values, count_from(first_place, step));
  }

  LUCID_INLINE void store(T* to, int32_t* to_places) const {
    const auto stored = __builtin_convertvector(places, typename VectorOf<int32_t, N>::type);
    std::memcpy(to, &best, sizeof(best));
    std::memcpy(to_places, &stored, sizeof(stored));
  }

  /// first, first + step, ...
  LUCID_INLINE static Places count_from(int64_t first, int64_t step) {
    Places result;
    for (int i = 0; i < N; ++i) result[i] = static_cast<PlaceOf<T>>(i);
    return result * static_cast<PlaceOf<T>>(step) + static_cast<PlaceOf<T>>(first);
  }

  Vector best;
  Places places;
};

/// The sums of N neighbouring windows.
template <int N, class T>
struct Sums {
  using Vector = typename VectorOf<T, N>::type;

  LUCID_INLINE static Sums start(int64_t, int64_t) { return {Vector{}}; }
  LUCID_INLINE void take_tap(Vector values, int64_t, int64_t) { total += values; }
  LUCID_INLINE void store(T* to, int32_t*) const { std::memcpy(to, &total, sizeof(total)); }

  Vector total;
};

template <class Vector, int... I>
LUCID_INLINE Vector even_elements(Vector low, Vector high, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(low, high, (2 * I)...);
}
template <class Vector, int... I>
LUCID_INLINE Vector odd_elements(Vector low, Vector high, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(low, high, (2 * I + 1)...);
}

/// x[0], x[2], ... of `low`, which holds x[0..N), and `high`, which holds x[N - 1..2 N - 1).
template <class Vector, int... I>
LUCID_INLINE Vector every_second(Vector low, Vector high, std::integer_sequence<int, I...>) {
  constexpr int kCount = sizeof...(I);
  return __builtin_shufflevector(low, high, (2 * I < kCount ? 2 * I : 2 * I + 1)...);
}

/// x[0], x[stride], ... (N of them), and nothing beyond is read.
template <int N, int kStride, class T>
LUCID_INLINE typename VectorOf<T, N>::type load_strided(const T* x, int64_t stride) {
  using Vector = typename VectorOf<T, N>::type;
  Vector low;
  if constexpr (kStride == 0) {
    for (int i = 0; i < N; ++i) low[i] = x[i * stride];
    return low;
  }
  std::memcpy(&low, x, sizeof(low));
  if constexpr (kStride == 1) return low;
  Vector high;
  std::memcpy(&high, x + N - 1, sizeof(high));
  return every_second(low, high, std::make_integer_sequence<int, N>{});
}

/// A row of outputs to make: the geometry, and where input and outputs are.
template <class T>
struct OutputRow {
  Axis depth, height, width;
  int64_t d, h;
  const T* x;
  T* y;
  int32_t* places;  ///< null for sums
};

/// Windows w, w + 1, ... (as many as `Windows` holds), of whose taps those in `taps` lie inside.
template <class Windows, int N, int kStride, class T>
LUCID_INLINE void scan_windows(const OutputRow<T>& row, int64_t w, Range taps) {
  const Axis& width = row.width;
  const int64_t start = w * width.stride - width.padding;
  const int64_t first_row = (row.d * row.depth.stride - row.depth.padding +
                             first_tap(row.depth, row.d) * row.depth.dilation) *
                                row.height.size +
                            row.h * row.height.stride - row.height.padding +
                            first_tap(row.height, row.h) * row.height.dilation;
  Windows windows =
      Windows::start(first_row * width.size + start + taps.begin * width.dilation, width.stride);
  for_input_rows(row.depth, row.height, row.d, row.h, [&](int64_t input_row) {
    const int64_t offset = input_row * width.size + start;
    for (int64_t k = taps.begin; k < taps.end; ++k) {
      const int64_t place = offset + k * width.dilation;
      windows.take_tap(load_strided<N, kStride>(row.x + place, width.stride), place, width.stride);
    }
  });
  windows.store(row.y + w, row.places == nullptr ? nullptr : row.places + w);
}

/// Windows [begin, end), all of whose taps lie inside. Vectors of N; the last overlaps the one
/// before and makes the same again. Fewer than N windows take narrower vectors.
template <template <int, class> class Windows, int N, int kStride, class T>
LUCID_INLINE void scan_whole(const OutputRow<T>& row, int64_t begin, int64_t end) {
  const Range taps{0, row.width.kernel};
  if constexpr (N * sizeof(T) < 16) {
    for (int64_t w = begin; w < end; ++w) scan_windows<Windows<1, T>, 1, 0>(row, w, taps);
  } else {
    if (end - begin < N) return scan_whole<Windows, N / 2, kStride>(row, begin, end);
    for (int64_t next = begin; next < end; next += N) {
      scan_windows<Windows<N, T>, N, kStride>(row, next + N <= end ? next : end - N, taps);
    }
  }
}

template <template <int, class> class Windows, class T>
LUCID_INLINE void scan_row(const OutputRow<T>& row, Range whole) {
  constexpr int kCount = Lanes<T>::kPerPart;
  const Axis& width = row.width;
  for (int64_t w = 0; w < whole.begin; ++w) {
    scan_windows<Windows<1, T>, 1, 0>(row, w, valid_taps(width, w));
  }
  if (width.stride == 1) {
    scan_whole<Windows, kCount, 1>(row, whole.begin, whole.end);
  } else if (width.stride == 2) {
    scan_whole<Windows, kCount, 2>(row, whole.begin, whole.end);
  } else {
    scan_whole<Windows, kCount, 0>(row, whole.begin, whole.end);
  }
  for (int64_t w = whole.end; w < width.out; ++w) {
    scan_windows<Windows<1, T>, 1, 0>(row, w, valid_taps(width, w));
  }
}

/// Windows all of whose taps lie inside.
LUCID_INLINE Range whole_windows(const Axis& a) {
  const int64_t begin = valid_outputs(a, 0).begin;
  const int64_t end = valid_outputs(a, a.kernel - 1).end;
  if (begin >= a.out) return {a.out, a.out};
  return {begin, end < begin ? begin : end};
}

template <class T>
LUCID_INLINE void take_if_greater(T value, int64_t value_place, T& best, int64_t& place) {
  if (!(value > best || value != value)) return;
  best = value;
  place = value_place;
}

#if defined(__AVX512F__)
template <class T>
inline constexpr bool kHasMasks = sizeof(T) == 4;
#else
template <class T>
inline constexpr bool kHasMasks = false;
#endif

/// The 2 * count elements of a row that belong to `count` <= N windows of two; with fewer than N
/// the others are zero, and only types with masks are asked.
template <class T, class Vector>
LUCID_INLINE void load_pairs(const T* x, int64_t count, Vector (&pair)[2]) {
  constexpr int64_t kCount = sizeof(Vector) / sizeof(T);
  if (count == kCount) {
    std::memcpy(&pair[0], x, sizeof(Vector));
    std::memcpy(&pair[1], x + kCount, sizeof(Vector));
    return;
  }
  if constexpr (kHasMasks<T> && kCount == kLanes) {
    const bool is_long = 2 * count >= kCount;
    pair[0] = is_long ? load(x).part[0] : load_first(x, 2 * count, T{0}).part[0];
    pair[1] = is_long ? load_first(x + kCount, 2 * count - kCount, T{0}).part[0] : Vector{};
  }
}

template <int N, class T>
LUCID_INLINE void store_part(const Maxima<N, T>& windows, int64_t count, T* y, int32_t* indices) {
  if constexpr (kHasMasks<T> && N == kLanes) {
    store_first(y, count, Lanes<T>{{windows.best}});
    store_first(indices, count, Lanes<int32_t>{{windows.places}});
  }
}

/// A row of `count` 2 x 2 windows that do not overlap; `width` is the input's. Vectors as above.
template <int N, class T>
LUCID_INLINE void maxima_of_pairs(const T* x, int64_t width, int64_t count, int64_t first, T* y,
                                  int32_t* indices) {
  if constexpr (N * sizeof(T) < 16) {
    for (int64_t i = 0; i < count; ++i) {
      const T* window = x + 2 * i;
      T best = window[0];
      int64_t place = first + 2 * i;
      take_if_greater(window[1], first + 2 * i + 1, best, place);
      take_if_greater(window[width], first + 2 * i + width, best, place);
      take_if_greater(window[width + 1], first + 2 * i + width + 1, best, place);
      y[i] = best;
      indices[i] = static_cast<int32_t>(place);
    }
  } else {
    using Step = Maxima<N, T>;
    using Order = std::make_integer_sequence<int, N>;
    if (count < N && !kHasMasks<T>) {
      return maxima_of_pairs<N / 2>(x, width, count, first, y, indices);
    }
    for (int64_t next = 0; next < count; next += N) {
      const int64_t i = next + N <= count || kHasMasks<T> ? next : count - N;
      const int64_t left = count - i < N ? count - i : N;
      typename Step::Vector above[2];
      typename Step::Vector below[2];
      load_pairs(x + 2 * i, left, above);
      load_pairs(x + 2 * i + width, left, below);
      const auto places = Step::count_from(first + 2 * i, 2);
      const auto down = static_cast<PlaceOf<T>>(width);
      Step windows{even_elements(above[0], above[1], Order{}), places};
      windows.take(odd_elements(above[0], above[1], Order{}), places + 1);
      windows.take(even_elements(below[0], below[1], Order{}), places + down);
      windows.take(odd_elements(below[0], below[1], Order{}), places + down + 1);
      if (left == N) {
        windows.store(y + i, indices + i);
      } else {
        store_part(windows, left, y + i, indices + i);
      }
    }
  }
}

template <class Vector, int... I>
LUCID_INLINE Vector low_pairs(Vector even, Vector odd, std::integer_sequence<int, I...>) {
  constexpr int kCount = sizeof...(I);
  return __builtin_shufflevector(even, odd, (I / 2 + (I % 2) * kCount)...);
}
template <class Vector, int... I>
LUCID_INLINE Vector high_pairs(Vector even, Vector odd, std::integer_sequence<int, I...>) {
  constexpr int kCount = sizeof...(I);
  return __builtin_shufflevector(even, odd, (kCount / 2 + I / 2 + (I % 2) * kCount)...);
}

/// Stores the elements of two vectors in turn.
template <class T, class Vector>
LUCID_INLINE void store_pairs(Vector even, Vector odd, T* to) {
  constexpr int kCount = sizeof(Vector) / sizeof(T);
  using Order = std::make_integer_sequence<int, kCount>;
  const Vector low = low_pairs(even, odd, Order{});
  const Vector high = high_pairs(even, odd, Order{});
  std::memcpy(to, &low, sizeof(low));
  std::memcpy(to + kCount, &high, sizeof(high));
}

/// The gradient of two rows of an input, of which `count` windows side by side were pooled: that of
/// each window goes to one of its four elements. Lanes of `strays` become nonzero where an index
/// names none of them.
template <int N, class T>
LUCID_INLINE void spread_pairs(const T* grad, const int32_t* indices, int64_t width, int64_t count,
                               int64_t first, T* dx, PlaceOf<T>* strays) {
  if constexpr (N * sizeof(T) < 16) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t place = indices[i] - (first + 2 * i);
      const bool is_below = place >= width;
      const int64_t column = is_below ? place - width : place;
      T* const window = dx + 2 * i;
      window[0] = window[1] = window[width] = window[width + 1] = T{0};
      if (column == 0 || column == 1) {
        window[is_below ? width + column : column] += grad[i];
      } else {
        strays[0] = 1;
      }
    }
  } else {
    using Step = Maxima<N, T>;
    using Vector = typename Step::Vector;
    using Places = typename Step::Places;
    if (count < N) return spread_pairs<N / 2>(grad, indices, width, count, first, dx, strays);
    Places stray;
    std::memcpy(&stray, strays, sizeof(stray));
    const auto down = static_cast<PlaceOf<T>>(width);
    for (int64_t next = 0; next < count; next += N) {
      const int64_t i = next + N <= count ? next : count - N;
      Vector grads;
      typename VectorOf<int32_t, N>::type stored;
      std::memcpy(&grads, grad + i, sizeof(grads));
      std::memcpy(&stored, indices + i, sizeof(stored));
      const Places places =
          __builtin_convertvector(stored, Places) - Step::count_from(first + 2 * i, 2);
      const Vector zeros{};
      grads = grads + zeros;  // as a sum that starts at zero: of -0 too
      const Vector left = places == 0 ? grads : zeros;
      const Vector right = places == 1 ? grads : zeros;
      const Vector left_below = places == down ? grads : zeros;
      const Vector right_below = places == down + 1 ? grads : zeros;
      const Places column = places >= down ? places - down : places;
      stray |= column & ~static_cast<PlaceOf<T>>(1);
      // One store a vector: an array of them would be read back before its parts are written.
      store_pairs(left, right, dx + 2 * i);
      store_pairs(left_below, right_below, dx + 2 * i + width);
    }
    std::memcpy(strays, &stray, sizeof(stray));
  }
}

/// The gradient of one plane that was pooled in 2 x 2 windows that do not overlap; false, and
/// nothing certain in dx, if an index lies outside of its window.
template <class T>
bool maximum_grad_of_pairs(const PoolShape& shape, const T* grad, const int32_t* indices, T* dx) {
  const Axis height = axis_of(shape, kHeight);
  const Axis width = axis_of(shape, kWidth);
  alignas(64) PlaceOf<T> strays[kLanes] = {};
  for (int64_t h = 0; h < height.out; ++h) {
    const int64_t first = 2 * h * width.size;
    const int64_t out = h * width.out;
    spread_pairs<Lanes<T>::kPerPart>(grad + out, indices + out, width.size, width.out, first,
                                     dx + first, strays);
    if (width.size > 2 * width.out) {
      for (int64_t w = 2 * width.out; w < width.size; ++w) {
        dx[first + w] = dx[first + width.size + w] = T{0};
      }
    }
  }
  for (int64_t i = 2 * height.out * width.size; i < height.size * width.size; ++i) dx[i] = T{0};
  for (const PlaceOf<T> stray : strays) {
    if (stray != 0) return false;
  }
  return true;
}

bool is_pairs(const Axis& a) {
  return a.kernel == 2 && a.stride == 2 && a.padding == 0 && a.dilation == 1 && 2 * a.out <= a.size;
}

template <class T>
void maximum(const PoolShape& shape, const T* x, T* y, int32_t* indices) {
  const Axis depth = axis_of(shape, kDepth);
  const Axis height = axis_of(shape, kHeight);
  const Axis width = axis_of(shape, kWidth);
  if (depth.size == 1 && depth.kernel == 1 && is_pairs(height) && is_pairs(width)) {
    for (int64_t h = 0; h < height.out; ++h) {
      const int64_t first = 2 * h * width.size;
      maxima_of_pairs<Lanes<T>::kPerPart>(x + first, width.size, width.out, first,
                                          y + h * width.out, indices + h * width.out);
    }
    return;
  }
  const Range whole = whole_windows(width);
  for_output_rows(depth, height, [&](int64_t d, int64_t h, int64_t out_row) {
    const int64_t out = out_row * width.out;
    scan_row<Maxima>(OutputRow<T>{depth, height, width, d, h, x, y + out, indices + out}, whole);
  });
}

template <class T>
void average(const PoolShape& shape, const PoolDivisors<T>& divisors, const T* x, T* y) {
  const Axis depth = axis_of(shape, kDepth);
  const Axis height = axis_of(shape, kHeight);
  const Axis width = axis_of(shape, kWidth);
  const Range whole = whole_windows(width);
  for_output_rows(depth, height, [&](int64_t d, int64_t h, int64_t out_row) {
    T* sums = y + out_row * width.out;
    scan_row<Sums>(OutputRow<T>{depth, height, width, d, h, x, sums, nullptr}, whole);
    const T rows = divisors.depth[d] * divisors.height[h];
    LUCID_LOOP
    for (int64_t w = 0; w < width.out; ++w) sums[w] /= rows * divisors.width[w];
  });
}

template <class T>
void average_grad(const PoolShape& shape, const PoolDivisors<T>& divisors, const T* grad, T* dx) {
  constexpr int64_t kPiece = 256;
  const Axis depth = axis_of(shape, kDepth);
  const Axis height = axis_of(shape, kHeight);
  const Axis width = axis_of(shape, kWidth);
  const int64_t plane = depth.size * height.size * width.size;
  for (int64_t i = 0; i < plane; ++i) dx[i] = 0;
  for_output_rows(depth, height, [&](int64_t d, int64_t h, int64_t out_row) {
    const T rows = divisors.depth[d] * divisors.height[h];
    for (int64_t begin = 0; begin < width.out; begin += kPiece) {
      const int64_t end = begin + kPiece < width.out ? begin + kPiece : width.out;
      T share[kPiece];
      for (int64_t w = begin; w < end; ++w) {
        share[w - begin] = grad[out_row * width.out + w] / (rows * divisors.width[w]);
      }
      for_input_rows(depth, height, d, h, [&](int64_t row) {
        T* target = dx + row * width.size - width.padding;
        for (int64_t k = 0; k < width.kernel; ++k) {
          const Range outputs = valid_outputs(width, k);
          const int64_t first = outputs.begin > begin ? outputs.begin : begin;
          const int64_t last = outputs.end < end ? outputs.end : end;
          T* place = target + k * width.dilation;
          LUCID_LOOP
          for (int64_t w = first; w < last; ++w) place[w * width.stride] += share[w - begin];
        }
      });
    }
  });
}

template <class T>
constexpr PoolingLoops<T> kLoops = {.maximum = maximum<T>,
                                    .maximum_grad_of_pairs = maximum_grad_of_pairs<T>,
                                    .average = average<T>,
                                    .average_grad = average_grad<T>};

}  // namespace

void get_loops(PoolingLoops<float>& loops) { loops = kLoops<float>; }
void get_loops(PoolingLoops<double>& loops) { loops = kLoops<double>; }

}  // namespace lucid::cpu::LUCID_ISA

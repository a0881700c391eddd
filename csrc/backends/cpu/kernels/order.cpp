#include "backends/cpu/kernels/order.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "backends/cpu/engine/slots.h"
#include "backends/cpu/kernels/axis_split.h"
#include "backends/cpu/threads/team.h"
#include "support/half.h"

namespace lucid::cpu {
namespace {

constexpr int64_t kTask = 4096;
constexpr int64_t kColumns = 64;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// The value that comparisons and sums see: halves as float32.
template <class T>
T widen(T value) {
  return value;
}
float widen(Float16 value) { return to_float(value); }
float widen(BFloat16 value) { return to_float(value); }

template <class T>
using Wide = decltype(widen(T{}));

template <class T>
bool is_nan(T value) {
  return value != value;
}

/// Calls body(T{}) for the element type; bool counts as uint8.
template <class Body>
std::unique_ptr<Kernel> with_type(DType dtype, Body body) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return body(uint8_t{});
    case DType::kInt8:
      return body(int8_t{});
    case DType::kInt16:
      return body(int16_t{});
    case DType::kInt32:
      return body(int32_t{});
    case DType::kInt64:
      return body(int64_t{});
    case DType::kFloat16:
      return body(Float16{});
    case DType::kBFloat16:
      return body(BFloat16{});
    case DType::kFloat32:
      return body(float{});
    case DType::kFloat64:
      return body(double{});
  }
  return nullptr;
}

/// Calls body(offset, width) on blocks of at most `block` neighbouring lines along the axis;
/// `offset` is that of the first line's first element.
template <class Body>
void for_each_block(const AxisSplit& split, int64_t block, double element_ns, Body body) {
  const int64_t blocks = ceil_div(split.inner, block);
  const double task_ns = element_ns * static_cast<double>(split.length) *
                             static_cast<double>(std::min(split.inner, block)) +
                         5;
  const int64_t grain = std::max<int64_t>(1, kTask / std::max<int64_t>(split.length, 1));
  parallel_for(split.outer * blocks, grain, task_ns, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t column = task % blocks * block;
      body(task / blocks * split.length * split.inner + column,
           std::min(block, split.inner - column));
    }
  });
}

/// The first extreme of a contiguous line.
template <bool kMaximum, class T>
int64_t find_extreme(const T* x, int64_t length) {
  Wide<T> best = widen(x[0]);
  int64_t place = 0;
  for (int64_t i = 1; i < length && !is_nan(best); ++i) {
    const Wide<T> value = widen(x[i]);
    if (!(kMaximum ? value > best : value < best) && !is_nan(value)) continue;
    best = value;
    place = i;
  }
  return place;
}

/// The first extreme of `width` columns. An element replaces the best only if it is beyond it, or
/// the first nan.
template <bool kMaximum, class T>
void find_extremes(const T* x, int64_t length, int64_t stride, int64_t width, int64_t* places) {
  Wide<T> best[kColumns];
  for (int64_t j = 0; j < width; ++j) {
    best[j] = widen(x[j]);
    places[j] = 0;
  }
  for (int64_t i = 1; i < length; ++i) {
    const T* row = x + i * stride;
    for (int64_t j = 0; j < width; ++j) {
      const Wide<T> value = widen(row[j]);
      const bool is_beyond = kMaximum ? value > best[j] : value < best[j];
      const bool is_first_nan = is_nan(value) && !is_nan(best[j]);
      best[j] = is_beyond || is_first_nan ? value : best[j];
      places[j] = is_beyond || is_first_nan ? i : places[j];
    }
  }
}

template <bool kMaximum>
std::unique_ptr<Kernel> make_extreme(const NodeView& view) {
  const AxisSplit split(view.input(0).shape, view.node.integer("dim"));
  if (split.length == 0) {
    throw Error(ErrorKind::kUser,
                std::string(view.node.op->name) + ": reduction over zero elements has no value");
  }
  return with_type(view.input(0).dtype, [split](auto element) {
    using T = decltype(element);
    return kernel([split](const RunContext& context) {
      for_each_block(split, kColumns, 1.0, [&](int64_t offset, int64_t width) {
        // The output lacks the axis: (outer, inner) of an offset into (outer, length, inner).
        const int64_t slice = split.length * split.inner;
        const int64_t place = offset / slice * split.inner + offset % slice;
        const T* x = context.in<T>(0) + offset;
        int64_t* out = context.out<int64_t>(0) + place;
        if (split.inner == 1) {
          *out = find_extreme<kMaximum>(x, split.length);
        } else {
          find_extremes<kMaximum>(x, split.length, split.inner, width, out);
        }
      });
    });
  });
}

/// What a running sum is kept in: integers wrap, so they run on the unsigned type.
template <class T, bool kIsIntegral = std::is_integral_v<T>>
struct Running {
  using type = std::make_unsigned_t<T>;
};
template <class T>
struct Running<T, false> {
  using type = Wide<T>;
};

template <class T, class R>
T rounded(R value) {
  if constexpr (std::is_same_v<T, Float16>) {
    return to_float16(value);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(value);
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
void running_sums(const T* x, int64_t length, int64_t stride, int64_t width, T* y) {
  using Sum = typename Running<T>::type;
  if (stride == 1) {
    Sum sum{};
    for (int64_t i = 0; i < length; ++i) {
      sum = static_cast<Sum>(sum + static_cast<Sum>(widen(x[i])));
      y[i] = rounded<T>(sum);
    }
    return;
  }
  Sum sums[kColumns] = {};
  for (int64_t i = 0; i < length; ++i) {
    const T* row = x + i * stride;
    T* out = y + i * stride;
    for (int64_t j = 0; j < width; ++j) {
      sums[j] = static_cast<Sum>(sums[j] + static_cast<Sum>(widen(row[j])));
      out[j] = rounded<T>(sums[j]);
    }
  }
}

/// An element of a line and its place there.
template <class T>
struct Item {
  Wide<T> value;
  int64_t place;
};

/// A nan is greater than every number; equal elements keep their order.
template <class T>
bool is_before(const Item<T>& a, const Item<T>& b, bool descending) {
  const Wide<T> left = descending ? b.value : a.value;
  const Wide<T> right = descending ? a.value : b.value;
  if (left < right) return true;
  if (right < left) return false;
  if (is_nan(left) != is_nan(right)) return is_nan(right);
  return a.place < b.place;
}

/// Sorts every line along the axis, in a slot of scratch that holds one line.
template <class T>
class Sort final : public Kernel {
 public:
  Sort(const AxisSplit& split, bool descending)
      : split_(split),
        descending_(descending),
        num_slots_(static_cast<int>(std::clamp<int64_t>(num_lines(), 1, num_threads()))) {}

  size_t scratch_bytes() const override {
    return static_cast<size_t>(num_slots_ * split_.length) * sizeof(Item<T>);
  }

  void run(const RunContext& context) const override {
    const auto length = static_cast<double>(split_.length);
    for_each_in_slots(num_lines(), num_slots_, 3 * length * std::log2(length + 2),
                      [&](int64_t slot, int64_t line) {
                        sort_line(context, line,
                                  static_cast<Item<T>*>(context.scratch) + slot * split_.length);
                      });
  }

 private:
  int64_t num_lines() const { return split_.outer * split_.inner; }

  void sort_line(const RunContext& context, int64_t line, Item<T>* items) const {
    const int64_t stride = split_.inner;
    const int64_t offset = line / stride * split_.length * stride + line % stride;
    const T* x = context.in<T>(0) + offset;
    T* values = context.out<T>(0) + offset;
    int64_t* places = context.out<int64_t>(1) + offset;
    for (int64_t i = 0; i < split_.length; ++i) items[i] = {widen(x[i * stride]), i};
    if (descending_) {
      std::sort(items, items + split_.length,
                [](const Item<T>& a, const Item<T>& b) { return is_before(a, b, true); });
    } else {
      std::sort(items, items + split_.length,
                [](const Item<T>& a, const Item<T>& b) { return is_before(a, b, false); });
    }
    for (int64_t i = 0; i < split_.length; ++i) {
      values[i * stride] = x[items[i].place * stride];
      places[i * stride] = items[i].place;
    }
  }

  AxisSplit split_;
  bool descending_;
  int num_slots_;
};

}  // namespace

std::unique_ptr<Kernel> make_argmax(const NodeView& view) { return make_extreme<true>(view); }
std::unique_ptr<Kernel> make_argmin(const NodeView& view) { return make_extreme<false>(view); }

std::unique_ptr<Kernel> make_cumsum(const NodeView& view) {
  const AxisSplit split(view.input(0).shape, view.node.integer("dim"));
  if (view.input(0).dtype == DType::kBool) return nullptr;
  return with_type(view.input(0).dtype, [split](auto element) {
    using T = decltype(element);
    return kernel([split](const RunContext& context) {
      for_each_block(split, kColumns, 1.0, [&](int64_t offset, int64_t width) {
        running_sums(context.in<T>(0) + offset, split.length, split.inner, width,
                     context.out<T>(0) + offset);
      });
    });
  });
}

std::unique_ptr<Kernel> make_sort(const NodeView& view) {
  const AxisSplit split(view.input(0).shape, view.node.integer("dim"));
  const bool descending = view.node.flag("descending");
  return with_type(view.input(0).dtype, [&](auto element) -> std::unique_ptr<Kernel> {
    return std::make_unique<Sort<decltype(element)>>(split, descending);
  });
}

}  // namespace lucid::cpu

// Kernels that read and write at indices held in tensors: take, index_add, gather, scatter,
// scatter_add, scatter_max and scatter_min; the family's table, which also lists those that give
// indices (order.h). All indices are checked before anything is written. Repeated indices add in
// index order: tasks own slices or columns, never a part of the index.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "backends/cpu/kernels/axis_split.h"
#include "backends/cpu/kernels/families.h"
#include "backends/cpu/kernels/half_operands.h"
#include "backends/cpu/kernels/indices.h"
#include "backends/cpu/kernels/order.h"
#include "backends/cpu/kernels/strided_copy.h"
#include "backends/cpu/threads/team.h"

namespace lucid::cpu {
namespace {

constexpr int64_t kTask = 4096;
constexpr double kNsPerElement = 0.5;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// (outer, size, inner) of x around the axis, and the number of indices.
struct TakeShape {
  explicit TakeShape(const NodeView& view)
      : op(view.node.op->name), index_dtype(view.input(1).dtype) {
    const AxisSplit split(view.input(0).shape, view.node.integer("dim"));
    outer = split.outer;
    size = split.length;
    inner = split.inner;
    count = view.input(1).num_elements();
  }

  /// The checked indices of a run.
  IndexReader indices(const RunContext& context) const {
    const IndexReader reader(context.inputs[1], index_dtype);
    check_indices(op, reader, count, -size, size);
    return reader;
  }

  std::string_view op;
  DType index_dtype;
  int64_t outer, size, inner, count;
};

/// Copies rows of `inner` elements.
template <class T>
void take_rows(const TakeShape& s, IndexReader indices, const T* x, T* out) {
  const int64_t grain = std::max<int64_t>(1, kTask / std::max<int64_t>(s.inner, 4));
  const double row_ns = 2 + 0.1 * static_cast<double>(s.inner) * static_cast<double>(sizeof(T));
  parallel_for(s.outer * s.count, grain, row_ns, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t place = wrap(indices[row % s.count], s.size);
      const T* source = x + (row / s.count * s.size + place) * s.inner;
      if (s.inner == 1) {
        out[row] = *source;
      } else {
        std::memcpy(out + row * s.inner, source, static_cast<size_t>(s.inner) * sizeof(T));
      }
    }
  });
}

/// Calls body with a value of the unsigned type that has the element's size.
template <class Body>
void with_element_size(int64_t element_bytes, Body body) {
  switch (element_bytes) {
    case 1:
      return body(uint8_t{});
    case 2:
      return body(uint16_t{});
    case 4:
      return body(uint32_t{});
    default:
      return body(uint64_t{});
  }
}

std::unique_ptr<Kernel> make_take(const NodeView& view) {
  const TakeShape shape(view);
  const int64_t element_bytes = size_bytes(view.input(0).dtype);
  return kernel([shape, element_bytes](const RunContext& context) {
    const IndexReader indices = shape.indices(context);
    with_element_size(element_bytes, [&](auto element) {
      using T = decltype(element);
      take_rows(shape, indices, context.in<T>(0), context.out<T>(0));
    });
  });
}

/// Adds columns [begin, end) of src's rows of one outer slice, in index order.
template <class T>
void add_rows(const TakeShape& s, IndexReader indices, const T* src, T* out, int64_t begin,
              int64_t end) {
  for (int64_t k = 0; k < s.count; ++k) {
    const T* source = src + k * s.inner;
    T* target = out + wrap(indices[k], s.size) * s.inner;
    for (int64_t j = begin; j < end; ++j) target[j] = static_cast<T>(target[j] + source[j]);
  }
}

/// index_add on a type whose addition is that of the operation (integers as unsigned).
template <class T>
class IndexAdd final : public Kernel {
 public:
  explicit IndexAdd(const NodeView& view)
      : shape_(view), size_bytes_(view.output(0).num_elements() * int64_t{sizeof(T)}) {}

  void run(const RunContext& context) const override {
    constexpr int64_t kColumns = 128;
    const IndexReader indices = shape_.indices(context);
    copy_bytes(context.inputs[0], context.outputs[0], size_bytes_);
    const int64_t blocks = ceil_div(shape_.inner, kColumns);
    const double task_ns =
        kNsPerElement * static_cast<double>(shape_.count * std::min(shape_.inner, kColumns));
    parallel_for(shape_.outer * blocks, 1, task_ns, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t outer = task / blocks;
        const int64_t column = task % blocks * kColumns;
        add_rows(shape_, indices, context.in<T>(2) + outer * shape_.count * shape_.inner,
                 context.out<T>(0) + outer * shape_.size * shape_.inner, column,
                 std::min(column + kColumns, shape_.inner));
      }
    });
  }

 private:
  TakeShape shape_;
  int64_t size_bytes_;
};

/// Shapes of gather and scatter: each index element names a place on the axis of x, at its own
/// place on the other axes. Off the axis x may be larger than the index.
class GatherShape {
 public:
  explicit GatherShape(const NodeView& view)
      : op_(view.node.op->name),
        index_dtype_(view.input(1).dtype),
        x_(view.input(0).shape),
        index_(view.input(1).shape),
        dim_(static_cast<int>(view.node.integer("dim"))) {
    if (x_.rank() == 0) x_ = index_ = Shape{1};
    const auto dim = static_cast<size_t>(dim_);
    outer_ = product(index_.sizes().first(dim));
    inner_ = product(index_.sizes().subspan(dim + 1));
    x_inner_ = product(x_.sizes().subspan(dim + 1));
    same_inner_ = std::ranges::equal(x_.sizes().subspan(dim + 1), index_.sizes().subspan(dim + 1));
  }

  IndexReader indices(const RunContext& context) const {
    const IndexReader reader(context.inputs[1], index_dtype_);
    check_indices(op_, reader, index_.num_elements(), -x_[dim_], x_[dim_]);
    return reader;
  }

  /// Calls body(place in x, place in the index) for every index element. Elements that may name
  /// one place of x are met on one thread, in index order.
  template <class Body>
  void for_each(IndexReader indices, Body body) const {
    constexpr int64_t kColumns = 512;
    const int64_t blocks = ceil_div(inner_, kColumns);
    const double task_ns = 2 * static_cast<double>(index_[dim_] * std::min(inner_, kColumns)) + 10;
    const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(5000 / task_ns));
    parallel_for(outer_ * blocks, grain, task_ns, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t column = task % blocks * kColumns;
        walk(indices, task / blocks, column, std::min(column + kColumns, inner_), body);
      }
    });
  }

 private:
  template <class Body>
  void walk(IndexReader indices, int64_t outer, int64_t begin, int64_t end, Body body) const {
    const int64_t base = x_place(outer, 0, dim_) * x_[dim_] * x_inner_;
    for (int64_t k = 0; k < index_[dim_]; ++k) {
      const int64_t row = (outer * index_[dim_] + k) * inner_;
      for (int64_t j = begin; j < end; ++j) {
        const int64_t place = wrap(indices[row + j], x_[dim_]);
        const int64_t column = same_inner_ ? j : x_place(j, dim_ + 1, x_.rank());
        body(base + place * x_inner_ + column, row + j);
      }
    }
  }

  /// The place in x's axes [first, last) of a place in the same axes of the index.
  int64_t x_place(int64_t position, int first, int last) const {
    int64_t place = 0;
    int64_t stride = 1;
    for (int axis = last - 1; axis >= first; --axis) {
      place += position % index_[axis] * stride;
      position /= index_[axis];
      stride *= x_[axis];
    }
    return place;
  }

  std::string_view op_;
  DType index_dtype_;
  Shape x_;
  Shape index_;
  int dim_;
  int64_t outer_ = 1;
  int64_t inner_ = 1;
  int64_t x_inner_ = 1;
  bool same_inner_ = true;
};

std::unique_ptr<Kernel> make_gather(const NodeView& view) {
  const GatherShape shape(view);
  const int64_t element_bytes = size_bytes(view.input(0).dtype);
  return kernel([shape, element_bytes](const RunContext& context) {
    const IndexReader indices = shape.indices(context);
    with_element_size(element_bytes, [&](auto element) {
      using T = decltype(element);
      const T* x = context.in<T>(0);
      T* out = context.out<T>(0);
      shape.for_each(indices, [=](int64_t place, int64_t i) { out[i] = x[place]; });
    });
  });
}

std::unique_ptr<Kernel> make_scatter(const NodeView& view) {
  const GatherShape shape(view);
  const int64_t element_bytes = size_bytes(view.input(0).dtype);
  const int64_t out_bytes = view.output(0).size_bytes();
  return kernel([shape, element_bytes, out_bytes](const RunContext& context) {
    const IndexReader indices = shape.indices(context);
    copy_bytes(context.inputs[0], context.outputs[0], out_bytes);
    with_element_size(element_bytes, [&](auto element) {
      using T = decltype(element);
      const T* src = context.in<T>(2);
      T* out = context.out<T>(0);
      shape.for_each(indices, [=](int64_t place, int64_t i) { out[place] = src[i]; });
    });
  });
}

/// A scatter that joins what comes with what is there: `join(there, comes)`.
template <class T, class Join>
class ScatterJoining final : public Kernel {
 public:
  explicit ScatterJoining(const NodeView& view)
      : shape_(view), size_bytes_(view.output(0).num_elements() * int64_t{sizeof(T)}) {}

  void run(const RunContext& context) const override {
    const IndexReader indices = shape_.indices(context);
    copy_bytes(context.inputs[0], context.outputs[0], size_bytes_);
    const T* src = context.in<T>(2);
    T* out = context.out<T>(0);
    shape_.for_each(indices,
                    [=](int64_t place, int64_t i) { out[place] = Join{}(out[place], src[i]); });
  }

 private:
  GatherShape shape_;
  int64_t size_bytes_;
};

template <class T>
struct Sum {
  T operator()(T there, T comes) const { return static_cast<T>(there + comes); }
};

/// The larger (or smaller) one; nan stays, or takes the place.
template <class T, bool kIsMax>
struct Extreme {
  T operator()(T there, T comes) const {
    const bool takes = kIsMax ? comes > there : comes < there;
    return takes || comes != comes ? comes : there;
  }
};

template <class T>
using ScatterAdd = ScatterJoining<T, Sum<T>>;
template <class T>
using ScatterMax = ScatterJoining<T, Extreme<T, true>>;
template <class T>
using ScatterMin = ScatterJoining<T, Extreme<T, false>>;

/// A comparing kernel: halves are compared as float32, which changes none.
template <template <class> class K>
std::unique_ptr<Kernel> make_comparing(const NodeView& view) {
  switch (view.input(0).dtype) {
    case DType::kUInt8:
      return std::make_unique<K<uint8_t>>(view);
    case DType::kInt8:
      return std::make_unique<K<int8_t>>(view);
    case DType::kInt16:
      return std::make_unique<K<int16_t>>(view);
    case DType::kInt32:
      return std::make_unique<K<int32_t>>(view);
    case DType::kInt64:
      return std::make_unique<K<int64_t>>(view);
    default:
      return make_floating<K>(view);
  }
}

/// An adding kernel: halves in float32, rounded once; integers wrap on the unsigned type.
template <template <class> class K>
std::unique_ptr<Kernel> make_adding(const NodeView& view) {
  const DType dtype = view.input(0).dtype;
  if (is_floating(dtype)) return make_floating<K>(view);
  if (dtype == DType::kBool) return nullptr;
  switch (size_bytes(dtype)) {
    case 1:
      return std::make_unique<K<uint8_t>>(view);
    case 2:
      return std::make_unique<K<uint16_t>>(view);
    case 4:
      return std::make_unique<K<uint32_t>>(view);
    default:
      return std::make_unique<K<uint64_t>>(view);
  }
}

std::unique_ptr<Kernel> make_from_front(const NodeView& view) {
  const ir::ValueType type = view.input(0);
  const int64_t size = view.node.integer("size");
  return kernel([type, size, name = view.node.string("function")](const RunContext& context) {
    const IndexReader indices(context.inputs[0], type.dtype);
    check_indices(name, indices, type.num_elements(), 0, size);
    copy_bytes(context.inputs[0], context.outputs[0], type.size_bytes());
  });
}

constexpr KernelRow kRows[] = {
    {"take", make_take},
    {"index_add", make_adding<IndexAdd>},
    {"gather", make_gather},
    {"scatter", make_scatter},
    {"scatter_add", make_adding<ScatterAdd>},
    {"scatter_max", make_comparing<ScatterMax>},
    {"scatter_min", make_comparing<ScatterMin>},
    {"argmax", make_argmax},
    {"argmin", make_argmin},
    {"cumsum", make_cumsum},
    {"sort", make_sort},
    {"index_from_front", make_from_front},
};

}  // namespace

std::span<const KernelRow> index_kernels() { return kRows; }

}  // namespace lucid::cpu

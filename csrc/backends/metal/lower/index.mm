// Reads and writes at indices held in tensors.
#include <limits>

#include "backends/metal/lower/families.h"
#include "backends/metal/lower/fold.h"

namespace lucid::metal {
namespace {

/// Whole numbers up to here are exact in float32.
constexpr int64_t kMaxExactFloat = int64_t{1} << 24;

/// Data whose bits travel as float32: gather and scatter convert integers to float32 inside, which
/// loses bits above 2^24 (jax-mps, ops/gather_scatter_utils.h).
class Bits {
 public:
  Bits(const Calc& c, DType dtype)
      : c_(c), type_(mps_type(dtype)), words_(dtype == DType::kInt64 ? 2 : 1) {
    travels_ = dtype == DType::kInt32 || dtype == DType::kInt64;
    if (dtype == DType::kBool) stored_ = MPSDataTypeInt32;
  }
  /// Elements that one becomes along the last axis.
  int64_t words() const { return words_; }

  Tensor pack(Tensor x) const {
    if (travels_) return c_.reinterpret(x, MPSDataTypeFloat32);
    return stored_ == MPSDataTypeInvalid ? x : c_.cast(x, stored_);
  }
  Tensor unpack(Tensor x) const { return travels_ ? c_.reinterpret(x, type_) : c_.cast(x, type_); }

 private:
  const Calc& c_;
  MPSDataType type_;
  int64_t words_;
  bool travels_ = false;
  MPSDataType stored_ = MPSDataTypeInvalid;
};

/// Indices (outer, size, inner), each as often as its element has words.
Tensor repeated(const Calc& c, Tensor index, const Fold& fold, int64_t words) {
  if (words == 1) return index;
  Tensor apart = c.reshape(index, Shape{fold.outer, fold.size, fold.inner, 1});
  Tensor wide = c.broadcast(apart, Shape{fold.outer, fold.size, fold.inner, words});
  return c.reshape(wide, Shape{fold.outer, fold.size, fold.inner * words});
}

Tensors lower_take(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const ValueType& type = b.in_type(node, 0);
  const Fold fold(type.shape, node.integer("dim"));
  const Bits bits(c, type.dtype);
  Tensor index = c.reshape(b.indices(node, 1, fold.size), Shape{b.in_type(node, 1).num_elements()});
  Tensor data = bits.pack(c.reshape(b.in(node, 0), fold.shape()));
  Tensor taken = [c.graph() gatherWithUpdatesTensor:data
                                      indicesTensor:index
                                               axis:1
                                    batchDimensions:0
                                               name:nil];
  return {c.reshape(bits.unpack(taken), b.out_type(node).shape)};
}

Tensors lower_gather(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const int64_t dim = node.integer("dim");
  const Shape& index_shape = b.in_type(node, 1).shape;
  if (index_shape.rank() == 0) return {c.reshape(b.in(node, 0), Shape{})};
  const ValueType& type = b.in_type(node, 0);
  // The data must have the index's sizes along all other axes.
  const Shape read = index_shape.with(static_cast<int>(dim), type.shape[static_cast<int>(dim)]);
  Tensor data = b.in(node, 0);
  if (read != type.shape) {
    const Ints zeros(static_cast<size_t>(read.rank()), 0);
    const Ints ones(static_cast<size_t>(read.rank()), 1);
    data = c.slice(data, zeros, read.sizes(), ones);
  }
  const Fold from(read, dim);
  const Fold to(index_shape, dim);
  const Bits bits(c, type.dtype);
  Tensor index = c.reshape(b.indices(node, 1, from.size), to.shape());
  Tensor found = [c.graph() gatherAlongAxis:1
                          withUpdatesTensor:bits.pack(c.reshape(data, from.shape()))
                              indicesTensor:repeated(c, index, to, bits.words())
                                       name:nil];
  return {c.reshape(bits.unpack(found), b.out_type(node).shape)};
}

/// Refuses sums of integers: they would be added as float32.
void require_floating(Lowering& b, const Node& node) {
  const DType dtype = b.in_type(node, 0).dtype;
  if (is_floating(dtype)) return;
  b.refuse(node, "no metal lowering for " + std::string(name(dtype)));
}

Tensors lower_index_add(Lowering& b, const Node& node) {
  require_floating(b, node);
  const Calc& c = b.calc();
  const ValueType& type = b.in_type(node, 0);
  const Fold fold(type.shape, node.integer("dim"));
  const int64_t count = b.in_type(node, 1).num_elements();
  const auto wide = [&](size_t i, const Shape& shape) {
    return c.cast(c.reshape(b.in(node, i), shape), MPSDataTypeFloat32);
  };
  Tensor data = wide(0, fold.shape());
  Tensor updates = wide(2, Shape{fold.outer, count, fold.inner});
  Tensor index = c.reshape(b.indices(node, 1, fold.size), Shape{count});
  Tensor sums = [c.graph() scatterWithDataTensor:data
                                   updatesTensor:updates
                                   indicesTensor:index
                                            axis:1
                                            mode:MPSGraphScatterModeAdd
                                            name:nil];
  return {c.reshape(c.cast(sums, mps_type(type.dtype)), type.shape)};
}

/// The node on the part of x that the index covers, put back into x.
Tensors scattered_in_part(Lowering& b, const Node& node, const Shape& part_shape) {
  const auto rank = static_cast<size_t>(part_shape.rank());
  const Ints zeros(rank, 0);
  const Ints ones(rank, 1);
  const Ints sizes(part_shape.sizes().begin(), part_shape.sizes().end());
  const ValueId part = b.op("slice", {node.in(0)}, {zeros, sizes, ones});
  const ValueId done = b.op(node.op->name, {part, node.in(1), node.in(2)}, node.attrs);
  const ValueId whole = b.op("slice_update", {node.in(0), done}, {zeros, ones});
  return {b.tensor(whole)};
}

/// The part of x that the index covers: all along `dim`, its own sizes along the other axes.
Shape covered_part(Lowering& b, const Node& node) {
  const Shape& shape = b.in_type(node, 0).shape;
  const auto dim = static_cast<int>(node.integer("dim"));
  return b.in_type(node, 1).shape.with(dim, shape[dim]);
}

// Which write of a repeated index stays is not defined on Metal, and the cpu keeps the last: the
// highest place that writes an element is found, then read.
Tensors lower_scatter(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const ValueType& type = b.in_type(node, 0);
  if (type.shape.rank() == 0) return {b.in(node, 2)};
  const Shape part = covered_part(b, node);
  if (part != type.shape) return scattered_in_part(b, node, part);
  const int64_t dim = node.integer("dim");
  const Fold to(type.shape, dim);
  const Fold from(b.in_type(node, 1).shape, dim);
  const Bits bits(c, type.dtype);
  Tensor index = c.reshape(b.indices(node, 1, to.size), from.shape());
  // Places are below 2^24 in float32, whose maxima are right on every system.
  if (from.size > kMaxExactFloat) b.refuse(node, "more than 2^24 writes along an axis");
  Tensor places =
      c.broadcast(c.cast(c.iota(Shape{1, from.size, 1}, 1), MPSDataTypeFloat32), from.shape());
  Tensor none = c.filled(-1, to.shape(), MPSDataTypeFloat32);
  Tensor last = [c.graph() scatterAlongAxis:1
                             withDataTensor:none
                              updatesTensor:places
                              indicesTensor:index
                                       mode:MPSGraphScatterModeMax
                                       name:nil];
  Tensor zero = c.number(0, MPSDataTypeFloat32);
  Tensor place = c.cast(c.maximum(last, zero), MPSDataTypeInt32);
  Tensor source = bits.pack(c.reshape(b.in(node, 2), from.shape()));
  Tensor written = [c.graph() gatherAlongAxis:1
                            withUpdatesTensor:source
                                indicesTensor:repeated(c, place, to, bits.words())
                                         name:nil];
  Tensor kept = c.reshape(b.in(node, 0), to.shape());
  Tensor result = c.select(c.less(last, zero), kept, bits.unpack(written));
  return {c.reshape(result, type.shape)};
}

/// The operands of a scatter along the middle axis, in float32.
struct Scatter {
  Scatter(Lowering& b, const Node& node) : graph(b.calc().graph()) {
    const Calc& c = b.calc();
    const Fold to(b.in_type(node, 0).shape, node.integer("dim"));
    const Fold from(b.in_type(node, 1).shape, node.integer("dim"));
    data = c.cast(c.reshape(b.in(node, 0), to.shape()), MPSDataTypeFloat32);
    updates = c.cast(c.reshape(b.in(node, 2), from.shape()), MPSDataTypeFloat32);
    index = c.reshape(b.indices(node, 1, to.size), from.shape());
  }

  Tensor run(Tensor into, Tensor from, MPSGraphScatterMode mode) const {
    return [graph scatterAlongAxis:1
                    withDataTensor:into
                     updatesTensor:from
                     indicesTensor:index
                              mode:mode
                              name:nil];
  }

  MPSGraph* graph;
  Tensor data;
  Tensor updates;
  Tensor index;
};

Tensors lower_scatter_add(Lowering& b, const Node& node) {
  require_floating(b, node);
  const Calc& c = b.calc();
  const ValueType& type = b.in_type(node, 0);
  if (type.shape.rank() == 0) return {c.add(b.in(node, 0), b.in(node, 2))};
  const Shape part = covered_part(b, node);
  if (part != type.shape) return scattered_in_part(b, node, part);
  const Scatter scatter(b, node);
  Tensor sums = scatter.run(scatter.data, scatter.updates, MPSGraphScatterModeAdd);
  return {c.reshape(c.cast(sums, mps_type(type.dtype)), type.shape)};
}

// Whether a scatter keeps nan is not said, so where one is met is found apart.
Tensors scattered_extreme(Lowering& b, const Node& node, MPSGraphScatterMode mode) {
  require_floating(b, node);
  const Calc& c = b.calc();
  const ValueType& type = b.in_type(node, 0);
  const Shape part = covered_part(b, node);
  if (part != type.shape) return scattered_in_part(b, node, part);
  const Scatter scatter(b, node);
  Tensor extreme = scatter.run(scatter.data, scatter.updates, mode);
  Tensor there = c.cast(c.is_nan(scatter.data), MPSDataTypeFloat32);
  Tensor coming = c.cast(c.is_nan(scatter.updates), MPSDataTypeFloat32);
  Tensor met = scatter.run(there, coming, MPSGraphScatterModeMax);
  Tensor zero = c.number(0, MPSDataTypeFloat32);
  Tensor nan = c.number(std::numeric_limits<double>::quiet_NaN(), MPSDataTypeFloat32);
  Tensor result = c.select(c.less(zero, met), nan, extreme);
  return {c.reshape(c.cast(result, mps_type(type.dtype)), type.shape)};
}

Tensors lower_scatter_max(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  if (b.in_type(node, 0).shape.rank() == 0) return {c.maximum(b.in(node, 0), b.in(node, 2))};
  return scattered_extreme(b, node, MPSGraphScatterModeMax);
}

Tensors lower_scatter_min(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  if (b.in_type(node, 0).shape.rank() == 0) return {c.minimum(b.in(node, 0), b.in(node, 2))};
  return scattered_extreme(b, node, MPSGraphScatterModeMin);
}

const LoweringRow kRows[] = {
    {"take", lower_take},
    {"index_add", lower_index_add},
    {"gather", lower_gather},
    {"scatter", lower_scatter},
    {"scatter_add", lower_scatter_add},
    {"scatter_max", lower_scatter_max},
    {"scatter_min", lower_scatter_min},
};

}  // namespace

std::span<const LoweringRow> index_lowerings() { return kRows; }

}  // namespace lucid::metal

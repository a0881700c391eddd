// The running sum and sorting.
#include "backends/metal/lower/families.h"
#include "backends/metal/lower/fold.h"

namespace lucid::metal {
namespace {

Tensors lower_cumsum(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const ValueType& type = b.out_type(node);
  if (type.dtype == DType::kInt64) b.refuse(node, "no metal lowering for int64");
  const Fold fold(type.shape, node.integer("dim"));
  const MPSDataType wide = is_floating(type.dtype) ? MPSDataTypeFloat32 : MPSDataTypeInt32;
  Tensor x = c.reshape(c.cast(b.in(node, 0), wide), fold.shape());
  Tensor sums = [c.graph() cumulativeSumWithTensor:x axis:1 name:nil];
  return {c.reshape(c.cast(sums, mps_type(type.dtype)), type.shape)};
}

/// Longest axis that is sorted in a graph, and most comparisons that it may take.
constexpr int64_t kMaxSorted = 4096;
constexpr int64_t kMaxComparisons = int64_t{1} << 26;

/// True where x stands before y whatever their places: smaller, nan as the largest.
Tensor stands_before(const Calc& c, Tensor x, Tensor y, bool is_floating_value) {
  if (!is_floating_value) return c.less(x, y);
  return c.either(c.less(x, y), c.both(c.is_nan(y), c.logical_not(c.is_nan(x))));
}

// MPSGraph's sort promises no order of equal elements and none of nan. Here the rank of an element
// is the number of those that stand before it; equal ones in the order of their places.
Tensors lower_sort(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const ValueType& type = b.out_type(node);
  const Fold fold(type.shape, node.integer("dim"));
  const int64_t size = fold.size;
  if (size > kMaxSorted || type.num_elements() > kMaxComparisons / size) {
    b.refuse(node, "too long to be sorted stably in a graph: " + ir::to_string(type));
  }
  const bool is_floating_value = is_floating(type.dtype);
  const bool descending = node.flag("descending");
  // bool compares as int32, half types as float32, exactly.
  const MPSDataType wide = is_floating_value             ? MPSDataTypeFloat32
                           : type.dtype == DType::kInt64 ? MPSDataTypeInt64
                                                         : MPSDataTypeInt32;
  Tensor x = c.cast(b.in(node, 0), wide);
  Tensor own = c.reshape(x, Shape{fold.outer, size, 1, fold.inner});
  Tensor other = c.reshape(x, Shape{fold.outer, 1, size, fold.inner});
  Tensor other_first = stands_before(c, other, own, is_floating_value);
  Tensor own_first = stands_before(c, own, other, is_floating_value);
  Tensor before = descending ? own_first : other_first;
  Tensor tie = c.logical_not(c.either(other_first, own_first));
  Tensor own_place = c.iota(Shape{1, size, 1, 1}, 1);
  Tensor other_place = c.iota(Shape{1, 1, size, 1}, 2);
  Tensor counts = c.either(before, c.both(tie, c.less(other_place, own_place)));
  Tensor rank = c.sum(c.cast(counts, MPSDataTypeInt32), Ints{2});
  // The element of rank r: the one sum of places over those whose rank is r.
  Tensor at_rank = c.equal(c.reshape(rank, Shape{fold.outer, 1, size, fold.inner}),
                           c.iota(Shape{1, size, 1, 1}, 1));
  Tensor chosen = c.select(at_rank, other_place, c.number_like(0, other_place));
  Tensor places = c.reshape(c.sum(chosen, Ints{2}), type.shape);
  const ValueId index = b.add_value({DType::kInt64, type.shape}, c.cast(places, MPSDataTypeInt64));
  b.bound(index, size);
  b.bound(node.outputs[1], size);
  const ValueId values = b.op("gather", {node.in(0), index}, {node.integer("dim")});
  return {b.tensor(values), b.tensor(index)};
}

const LoweringRow kRows[] = {
    {"cumsum", lower_cumsum},
    {"sort", lower_sort},
};

}  // namespace

std::span<const LoweringRow> order_lowerings() { return kRows; }

}  // namespace lucid::metal

// Reductions along axes. Half types are summed in float32, short integers and bools in int32.
#include <limits>

#include "backends/metal/lower/families.h"

namespace lucid::metal {
namespace {

using Reduce = Tensor (Calc::*)(Tensor x, std::span<const int64_t> axes) const;

/// The type in which elements of a type are reduced.
MPSDataType wide_type(DType dtype) {
  if (is_floating(dtype)) return MPSDataTypeFloat32;
  return dtype == DType::kInt64 ? MPSDataTypeInt64 : MPSDataTypeInt32;
}

/// The reduction along the node's axes, which the reshape drops or keeps.
Tensor reduced(Lowering& b, const Node& node, Tensor x, Reduce reduce) {
  const Ints& dims = node.ints("dims");
  const Calc& c = b.calc();
  Tensor result = dims.empty() ? x : (c.*reduce)(x, dims);
  return c.reshape(result, b.out_type(node).shape);
}

template <Reduce kReduce>
Tensors lower_reduction(Lowering& b, const Node& node) {
  const DType dtype = b.in_type(node, 0).dtype;
  Tensor wide = b.calc().cast(b.in(node, 0), wide_type(dtype));
  return {b.calc().cast(reduced(b, node, wide, kReduce), mps_type(dtype))};
}

/// any and all: the highest and lowest of ones and zeros.
template <Reduce kReduce>
Tensors lower_test(Lowering& b, const Node& node) {
  Tensor ones = b.calc().cast(b.calc().truth(b.in(node, 0)), MPSDataTypeInt32);
  return {b.calc().truth(reduced(b, node, ones, kReduce))};
}

// The lowest index among those whose element is the extreme, so that ties are the cpu's. nan is
// the extreme: it does not equal itself and is looked for.
template <Reduce kReduce>
Tensors lower_arg_extreme(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const ValueType& type = b.in_type(node, 0);
  const auto dim = static_cast<int>(node.integer("dim"));
  const Ints axes = {dim};
  const bool is_floating_value = is_floating(type.dtype);
  Tensor x = c.cast(b.in(node, 0), wide_type(type.dtype));
  Tensor hit = c.equal(x, (c.*kReduce)(x, axes));
  if (is_floating_value) hit = c.either(hit, c.is_nan(x));
  Tensor places = c.iota(type.shape, dim);
  Tensor none = c.number_like(std::numeric_limits<int32_t>::max(), places);
  Tensor first = c.lowest(c.select(hit, places, none), axes);
  b.bound(node.outputs[0], type.shape[dim]);
  return {c.reshape(c.cast(first, MPSDataTypeInt64), b.out_type(node).shape)};
}

Tensors lower_all_finite(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  Tensor all = c.number(1, MPSDataTypeBool);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    Tensor flat = c.reshape(b.in(node, i), Shape{b.in_type(node, i).num_elements()});
    Tensor finite = c.apply(
        "isfinite", [](MPSGraph* g, Tensor x) { return [g isFiniteWithTensor:x name:nil]; }, flat);
    all = c.both(all, c.truth(c.lowest(c.cast(finite, MPSDataTypeInt32), Ints{0})));
  }
  return {all};
}

const LoweringRow kRows[] = {
    {"all_finite", lower_all_finite},
    {"sum", lower_reduction<&Calc::sum>},
    {"prod", lower_reduction<&Calc::product>},
    {"amax", lower_reduction<&Calc::highest>},
    {"amin", lower_reduction<&Calc::lowest>},
    {"any", lower_test<&Calc::highest>},
    {"all", lower_test<&Calc::lowest>},
    {"argmax", lower_arg_extreme<&Calc::highest>},
    {"argmin", lower_arg_extreme<&Calc::lowest>},
};

}  // namespace

std::span<const LoweringRow> reduction_lowerings() { return kRows; }

}  // namespace lucid::metal

#include "ops/builder.h"

#include <utility>

#include "ops/registry.h"

namespace lucid::ops {
namespace {

Ints to_ints(const Shape& shape) { return {shape.sizes().begin(), shape.sizes().end()}; }

ir::AttrValue number_of(double value, DType dtype) {
  if (is_floating(dtype)) return value;
  return static_cast<int64_t>(value);
}

}  // namespace

ValueId Builder::op(std::string_view name, std::vector<std::optional<ValueId>> inputs,
                    Attrs attrs) {
  return emit(get(name), std::move(inputs), std::move(attrs)).front();
}

std::vector<ValueId> Builder::ops(std::string_view name, std::vector<std::optional<ValueId>> inputs,
                                  Attrs attrs) {
  return emit(get(name), std::move(inputs), std::move(attrs));
}

ValueId Builder::number(double value, ValueId like) {
  const DType dtype = type(like).dtype;
  return op("full", {}, {Ints{}, dtype, number_of(value, dtype)});
}

ValueId Builder::full_like(double value, ValueId like) {
  const ValueType& wanted = type(like);
  return op("full", {}, {to_ints(wanted.shape), wanted.dtype, number_of(value, wanted.dtype)});
}

ValueId Builder::reshape(ValueId a, const Shape& shape) {
  if (type(a).shape == shape) return a;
  return op("reshape", {a}, {to_ints(shape)});
}

ValueId Builder::broadcast_to(ValueId a, const Shape& shape) {
  if (type(a).shape == shape) return a;
  return op("broadcast_to", {a}, {to_ints(shape)});
}

ValueId Builder::permute(ValueId a, Ints dims) { return op("permute", {a}, {std::move(dims)}); }

ValueId Builder::cast(ValueId a, DType dtype) {
  if (type(a).dtype == dtype) return a;
  return op("cast", {a}, {dtype});
}

ValueId Builder::sum(ValueId a, Ints dims, bool keepdim) {
  return op("sum", {a}, {std::move(dims), keepdim});
}

ValueId Builder::sum_to(ValueId grad, const Shape& target) {
  const Shape from = type(grad).shape;
  if (from == target) return grad;
  const int lead = from.rank() - target.rank();
  Ints dims;
  for (int axis = 0; axis < from.rank(); ++axis) {
    const bool summed = axis < lead || (target[axis - lead] == 1 && from[axis] != 1);
    if (summed) dims.push_back(axis);
  }
  const ValueId summed = sum(grad, std::move(dims), false);
  return reshape(summed, target);
}

}  // namespace lucid::ops

// Rearrangements of elements by position, and nodes with empty inputs.
#include <algorithm>

#include "backends/metal/lower/families.h"

namespace lucid::metal {
namespace {

Tensors lower_reshape(Lowering& b, const Node& node) {
  return {b.calc().reshape(b.in(node, 0), b.out_type(node).shape)};
}

Tensors lower_permute(Lowering& b, const Node& node) {
  const Ints& dims = node.ints("dims");
  if (dims.size() < 2) return {b.in(node, 0)};
  return {b.calc().permute(b.in(node, 0), dims)};
}

Tensors lower_broadcast(Lowering& b, const Node& node) {
  return {b.calc().broadcast(b.in(node, 0), b.out_type(node).shape)};
}

Tensors lower_concat(Lowering& b, const Node& node) {
  std::vector<Tensor> parts;
  for (size_t i = 0; i < node.inputs.size(); ++i) parts.push_back(b.in(node, i));
  return {b.calc().concat(parts, static_cast<int>(node.integer("dim")))};
}

double number_of(const ir::AttrValue& value) {
  const int64_t* whole = std::get_if<int64_t>(&value);
  return whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value);
}

Tensors lower_pad(Lowering& b, const Node& node) {
  const Ints& low = node.ints("low");
  if (low.empty()) return {b.in(node, 0)};
  return {b.calc().pad(b.in(node, 0), low, node.ints("high"), number_of(node.attr("value")))};
}

/// A window of positive steps, and the axes along which it is then read backwards.
struct Window {
  Ints starts;
  Ints ends;
  Ints steps;
  Ints backward;
};

Window window_of(const Ints& starts, std::span<const int64_t> sizes, const Ints& steps) {
  Window window;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t step = sizes[i] == 1 ? 1 : steps[i];
    const int64_t last = starts[i] + (sizes[i] - 1) * step;
    window.starts.push_back(std::min(starts[i], last));
    window.ends.push_back(std::max(starts[i], last) + 1);
    window.steps.push_back(step < 0 ? -step : step);
    if (step < 0) window.backward.push_back(static_cast<int64_t>(i));
  }
  return window;
}

Tensors lower_slice(Lowering& b, const Node& node) {
  if (node.ints("starts").empty()) return {b.in(node, 0)};
  const Window window =
      window_of(node.ints("starts"), b.out_type(node).shape.sizes(), node.ints("steps"));
  Tensor part = b.calc().slice(b.in(node, 0), window.starts, window.ends, window.steps);
  return {window.backward.empty() ? part : b.calc().reverse(part, window.backward)};
}

/// Puts steps - 1 elements of `value` between the elements along each axis.
Tensor spread(const Calc& c, Tensor x, Ints sizes, const Ints& steps, double value) {
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    const int64_t step = steps[axis];
    if (step == 1) continue;
    const auto lead = product(std::span(sizes).first(axis + 1));
    const auto trail = product(std::span(sizes).subspan(axis + 1));
    Tensor apart = c.reshape(x, Shape{lead, 1, trail});
    Tensor padded = c.pad(apart, Ints{0, 0, 0}, Ints{0, step - 1, 0}, value);
    // The last element has no gap behind it.
    const int64_t size = sizes[axis];
    const int64_t outer = lead / size;
    Tensor rows = c.reshape(padded, Shape{outer, size * step, trail});
    sizes[axis] = (size - 1) * step + 1;
    Tensor cut = c.slice(rows, Ints{0, 0, 0}, Ints{outer, sizes[axis], trail}, Ints{1, 1, 1});
    x = c.reshape(cut, Shape(sizes));
  }
  return x;
}

/// `update` at its window of `shape`, `value` elsewhere.
Tensor placed(const Calc& c, Tensor update, std::span<const int64_t> update_sizes,
              const Window& window, const Shape& shape, double value) {
  Ints high;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    high.push_back(shape[axis] - window.ends[static_cast<size_t>(axis)]);
  }
  Tensor wide =
      spread(c, update, Ints(update_sizes.begin(), update_sizes.end()), window.steps, value);
  return c.pad(wide, window.starts, high, value);
}

// Selected by a mask that is placed as the update is: slice updates need macOS 14.4, and their
// gradients were seen to abort.
Tensors lower_slice_update(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const Shape& update_shape = b.in_type(node, 1).shape;
  Tensor update = b.in(node, 1);
  if (update_shape.rank() == 0) return {update};
  const Window window = window_of(node.ints("starts"), update_shape.sizes(), node.ints("steps"));
  if (!window.backward.empty()) update = c.reverse(update, window.backward);
  const Shape& shape = b.out_type(node).shape;
  Tensor ones = c.filled(1, update_shape, MPSDataTypeInt32);
  Tensor mask = c.truth(placed(c, ones, update_shape.sizes(), window, shape, 0));
  Tensor moved = placed(c, update, update_shape.sizes(), window, shape, 0);
  return {c.select(mask, moved, b.in(node, 0))};
}

Tensors lower_detach(Lowering& b, const Node& node) { return {b.in(node, 0)}; }

const LoweringRow kRows[] = {
    {"reshape", lower_reshape},
    {"permute", lower_permute},
    {"broadcast_to", lower_broadcast},
    {"concat", lower_concat},
    {"pad", lower_pad},
    {"slice", lower_slice},
    {"slice_update", lower_slice_update},
    {"detach", lower_detach},
};

/// The number that a reduction of nothing gives, or none.
std::optional<double> neutral(std::string_view op) {
  if (op == "sum" || op == "any" || op == "matmul" || op == "convolution_weight_grad" ||
      op == "convolution_input_grad") {
    return 0;
  }
  if (op == "prod" || op == "all") return 1;
  return std::nullopt;
}

/// The node without its empty inputs.
Tensors of_the_rest(Lowering& b, const Node& node) {
  std::vector<std::optional<ValueId>> rest;
  for (const auto& input : node.inputs) {
    if (b.tensor(*input) != nil) rest.push_back(input);
  }
  if (rest.empty()) return {b.calc().number(1, MPSDataTypeBool)};  // all_finite of nothing
  return {b.tensor(b.op(node.op->name, std::move(rest), node.attrs))};
}

}  // namespace

std::span<const LoweringRow> shape_lowerings() { return kRows; }

Tensors lower_of_empty(Lowering& b, const Node& node) {
  const std::string_view op = node.op->name;
  const ValueType& type = b.out_type(node);
  const auto filled = [&](double value) {
    return b.calc().filled(value, type.shape, mps_type(type.dtype));
  };
  if (const auto value = neutral(op)) return {filled(*value)};
  if (op == "pad") return {filled(number_of(node.attr("value")))};
  if (op == "concat" || op == "all_finite") return of_the_rest(b, node);
  const bool only_writes =
      op == "index_add" || op == "scatter" || op == "scatter_add" || op == "slice_update";
  if (only_writes && b.in(node, 0) != nil) return {b.in(node, 0)};
  if (op == "linear") {
    if (!node.has(2)) return {filled(0)};
    return {b.calc().broadcast(b.in(node, 2), type.shape)};
  }
  b.refuse(node, "an input is empty");
}

}  // namespace lucid::metal

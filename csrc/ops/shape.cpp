// Rearrangements of elements by position: reshape, permute, broadcast, concat, pad and slices.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/families.h"
#include "ops/infer.h"
#include "ops/vjp.h"

namespace lucid::ops {
namespace {

using ir::AttrType;
using ir::InferArgs;
using ir::ValueTypes;

using Wanted = std::vector<bool>;

Ints to_ints(const Shape& shape) { return {shape.sizes().begin(), shape.sizes().end()}; }

Ints filled(const Shape& shape, int64_t value) {
  return Ints(static_cast<size_t>(shape.rank()), value);
}

std::string list(const Ints& values) { return ir::to_string(values); }

ValueTypes infer_reshape(const InferArgs& args) {
  const Shape shape = shape_attr(args, "shape");
  const int64_t from = args.shape(0).num_elements();
  const int64_t to = shape.num_elements();
  if (from != to) {
    args.fail("element counts differ: " + to_string(args.shape(0)) + " has " +
              std::to_string(from) + " and " + to_string(shape) + " has " + std::to_string(to) +
              "; choose a shape of " + std::to_string(from));
  }
  return {{args.dtype(0), shape}};
}

ValueId reshape_rule(Builder& b, const Node& node, ValueId grad) {
  const Shape shape = b.shape(node.in(0));
  return b.reshape(grad, shape);
}

ValueTypes infer_permute(const InferArgs& args) {
  const Shape& shape = args.shape(0);
  const Ints dims = axes_attr(args, "dims", shape);
  if (dims.size() != static_cast<size_t>(shape.rank())) {
    args.fail(ErrorKind::kUser, "dims do not list every axis: " + list(dims) + " for shape " +
                                    to_string(shape) + "; list each of its " +
                                    std::to_string(shape.rank()) + " axes once");
  }
  std::vector<int64_t> sizes;
  for (const int64_t axis : dims) sizes.push_back(shape[static_cast<int>(axis)]);
  return {{args.dtype(0), Shape(sizes)}};
}

// The inverse permutation takes the gradient back.
ValueId permute_rule(Builder& b, const Node& node, ValueId grad) {
  const Ints& dims = node.ints("dims");
  Ints inverse(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    inverse[static_cast<size_t>(dims[i])] = static_cast<int64_t>(i);
  }
  return b.permute(grad, inverse);
}

bool broadcasts(const Shape& from, const Shape& to) {
  const int lead = to.rank() - from.rank();
  if (lead < 0) return false;
  for (int axis = 0; axis < from.rank(); ++axis) {
    if (from[axis] != 1 && from[axis] != to[lead + axis]) return false;
  }
  return true;
}

ValueTypes infer_broadcast_to(const InferArgs& args) {
  const Shape shape = shape_attr(args, "shape");
  if (!broadcasts(args.shape(0), shape)) {
    args.fail("shape does not broadcast: " + to_string(args.shape(0)) + " to " + to_string(shape) +
              "; sizes must be equal or 1, aligned at the last axis");
  }
  return {{args.dtype(0), shape}};
}

ValueId broadcast_to_rule(Builder& b, const Node& node, ValueId grad) {
  const Shape shape = b.shape(node.in(0));
  return b.sum_to(grad, shape);
}

ValueTypes infer_concat(const InferArgs& args) {
  const Shape& first = args.shape(0);
  const int dim = axis_attr(args, "dim", first);
  int64_t size = 0;
  for (size_t i = 0; i < args.num_inputs(); ++i) {
    require_same_dtype(args, 0, i);
    const Shape& shape = args.shape(i);
    if (shape.rank() != first.rank() || shape.with(dim, 0) != first.with(dim, 0)) {
      args.fail("shapes differ: " + to_string(first) + " and " + to_string(shape) +
                "; all sizes but that of axis " + std::to_string(dim) + " must be equal");
    }
    size += shape[dim];
  }
  return {{args.dtype(0), first.with(dim, size)}};
}

// Each input has its part of the gradient.
Grads concat_vjp(Builder& b, const Node& node, const Grads& grads, const Wanted& wanted) {
  Grads result = absent(node);
  if (!grads[0]) return result;
  const auto dim = static_cast<size_t>(node.integer("dim"));
  int64_t start = 0;
  for (size_t i = 0; i < result.size(); ++i) {
    const Shape shape = b.shape(node.in(i));
    Ints starts = filled(shape, 0);
    starts[dim] = start;
    start += shape[static_cast<int>(dim)];
    if (!wants(b, node, wanted, i)) continue;
    result[i] = b.op("slice", {grads[0]}, {starts, to_ints(shape), filled(shape, 1)});
  }
  return result;
}

/// True if every width may be added to a size.
bool are_widths(const Ints& values) {
  constexpr int64_t kMaxWidth = int64_t{1} << 60;
  return std::ranges::all_of(values, [](int64_t v) { return v >= 0 && v <= kMaxWidth; });
}

ValueTypes infer_pad(const InferArgs& args) {
  const Shape& shape = args.shape(0);
  const Ints& low = args.ints("low");
  const Ints& high = args.ints("high");
  const auto rank = static_cast<size_t>(shape.rank());
  if (low.size() != rank || high.size() != rank) {
    args.fail(ErrorKind::kUser, "widths do not fit: low " + list(low) + " and high " + list(high) +
                                    " for shape " + to_string(shape) +
                                    "; give one width for each axis");
  }
  if (!are_widths(low) || !are_widths(high)) {
    args.fail(ErrorKind::kUser, "width out of range: low " + list(low) + " and high " + list(high) +
                                    "; use 0 or more, and cut with slice");
  }
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < rank; ++i) {
    sizes.push_back(low[i] + shape[static_cast<int>(i)] + high[i]);
  }
  return {{args.dtype(0), Shape(sizes)}};
}

ValueId pad_rule(Builder& b, const Node& node, ValueId grad) {
  const Shape shape = b.shape(node.in(0));
  return b.op("slice", {grad}, {node.ints("low"), to_ints(shape), filled(shape, 1)});
}

/// The elements start + i step of each axis, i < size.
struct Window {
  const Ints& starts;
  const Ints& sizes;
  const Ints& steps;
};

/// True if every element lies on an axis of `length` elements.
bool is_inside(int64_t start, int64_t size, int64_t step, int64_t length) {
  if (size == 0) return true;
  if (start < 0 || start >= length) return false;
  if (size == 1) return true;
  const int64_t room = step > 0 ? length - 1 - start : start;
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(step) : -static_cast<uint64_t>(step);
  return distance != 0 && static_cast<uint64_t>(size - 1) <= static_cast<uint64_t>(room) / distance;
}

void require_window(const InferArgs& args, const Window& window) {
  const Shape& shape = args.shape(0);
  const auto rank = static_cast<size_t>(shape.rank());
  if (window.starts.size() != rank || window.sizes.size() != rank || window.steps.size() != rank) {
    args.fail(ErrorKind::kUser, "window does not fit: starts " + list(window.starts) + ", sizes " +
                                    list(window.sizes) + " and steps " + list(window.steps) +
                                    " for shape " + to_string(shape) +
                                    "; give one entry for each axis");
  }
  for (size_t i = 0; i < rank; ++i) {
    const int64_t length = shape[static_cast<int>(i)];
    if (is_inside(window.starts[i], window.sizes[i], window.steps[i], length)) continue;
    args.fail(ErrorKind::kIndex, "window out of range: start " + std::to_string(window.starts[i]) +
                                     ", size " + std::to_string(window.sizes[i]) + " and step " +
                                     std::to_string(window.steps[i]) + " on axis " +
                                     std::to_string(i) + " of shape " + to_string(shape) +
                                     "; keep each element on the axis");
  }
}

ValueTypes infer_slice(const InferArgs& args) {
  const Shape sizes = shape_attr(args, "sizes");
  require_window(args, {args.ints("starts"), args.ints("sizes"), args.ints("steps")});
  return {{args.dtype(0), sizes}};
}

// The gradient goes into zeros, where its elements came from.
ValueId slice_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId zeros = b.full_like(0.0, node.in(0));
  return b.op("slice_update", {zeros, grad}, {node.ints("starts"), node.ints("steps")});
}

ValueTypes infer_slice_update(const InferArgs& args) {
  require_same_dtype(args, 0, 1);
  const Ints sizes = to_ints(args.shape(1));
  require_window(args, {args.ints("starts"), sizes, args.ints("steps")});
  return {args.input(0)};
}

// x has the gradient outside the window, src inside it.
Grads slice_update_vjp(Builder& b, const Node& node, const Grads& grads, const Wanted& wanted) {
  Grads result = absent(node);
  if (!grads[0]) return result;
  const Ints& starts = node.ints("starts");
  const Ints& steps = node.ints("steps");
  if (wants(b, node, wanted, 0)) {
    const ValueId zeros = b.full_like(0.0, node.in(1));
    result[0] = b.op("slice_update", {grads[0], zeros}, {starts, steps});
  }
  if (wants(b, node, wanted, 1)) {
    const Ints sizes = to_ints(b.shape(node.in(1)));
    result[1] = b.op("slice", {grads[0]}, {starts, sizes, steps});
  }
  return result;
}

ValueTypes infer_detach(const InferArgs& args) { return {args.input(0)}; }

/// A row of one input whose gradient rule reads no value.
ir::Op unary(std::string_view name, std::string_view doc, std::vector<ir::AttrSpec> attrs,
             uint32_t traits, ir::InferFn infer, ir::VjpFn vjp) {
  return {.name = name,
          .doc = doc,
          .attrs = std::move(attrs),
          .traits = ir::kPure | traits,
          .infer = infer,
          .vjp = vjp,
          .vjp_reads_inputs = 0,
          .vjp_reads_outputs = 0};
}

}  // namespace

std::vector<ir::Op> shape_ops() {
  const ir::AttrSpec shape{"shape", AttrType::kInts};
  const ir::AttrSpec starts{.name = "starts", .type = AttrType::kInts, .run_time = true};
  const ir::AttrSpec steps{.name = "steps", .type = AttrType::kInts, .run_time = true};
  return {
      unary("reshape", "the same elements, row-major, in another shape", {shape},
            ir::kAlias | ir::kCheap, infer_reshape, unary_vjp<reshape_rule>),
      unary("permute", "axis i of the output is axis dims[i] of the input",
            {{"dims", AttrType::kInts}}, 0, infer_permute, unary_vjp<permute_rule>),
      unary("broadcast_to", "repeats axes of size 1, and adds axes in front", {shape}, ir::kCheap,
            infer_broadcast_to, unary_vjp<broadcast_to_rule>),
      {.name = "concat",
       .doc = "the inputs one after the other along an axis",
       .max_inputs = -1,
       .attrs = {{"dim", AttrType::kInt}},
       .traits = ir::kPure | ir::kPromotes,
       .infer = infer_concat,
       .vjp = concat_vjp,
       .vjp_reads_inputs = 0,
       .vjp_reads_outputs = 0},
      unary("pad", "low[i] elements of `value` before and high[i] after axis i",
            {{"low", AttrType::kInts}, {"high", AttrType::kInts}, {"value", AttrType::kNumber}}, 0,
            infer_pad, unary_vjp<pad_rule>),
      unary("slice", "elements starts[i] + j steps[i], j < sizes[i], of axis i",
            {starts, {"sizes", AttrType::kInts}, steps}, 0, infer_slice, unary_vjp<slice_rule>),
      {.name = "slice_update",
       .doc = "the first input with a slice of it replaced by the second",
       .min_inputs = 2,
       .max_inputs = 2,
       .attrs = {starts, steps},
       .traits = ir::kPure | ir::kInPlace,
       .infer = infer_slice_update,
       .vjp = slice_update_vjp,
       .vjp_reads_inputs = 0,
       .vjp_reads_outputs = 0},
      {.name = "detach",
       .doc = "the same value; no gradient flows through",
       .traits = ir::kPure | ir::kAlias | ir::kCheap,
       .infer = infer_detach,
       .vjp_reads_inputs = 0,
       .vjp_reads_outputs = 0,
       .nondifferentiable_outputs = 1},
  };
}

}  // namespace lucid::ops

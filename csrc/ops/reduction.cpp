// Reductions along axes, the running sum and sorting.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "ops/cost.h"
#include "ops/families.h"
#include "ops/infer.h"
#include "ops/vjp.h"

namespace lucid::ops {
namespace {

using ir::AttrSpec;
using ir::AttrType;
using ir::InferArgs;
using ir::ValueTypes;

using Wanted = std::vector<bool>;

Ints to_ints(const Shape& shape) { return {shape.sizes().begin(), shape.sizes().end()}; }

Shape reduced_input(const InferArgs& args) {
  const Ints axes = axes_attr(args, "dims", args.shape(0));
  return reduced_shape(args.shape(0), axes, args.flag("keepdim"));
}

void require_elements(const InferArgs& args, int64_t axis) {
  if (args.shape(0)[static_cast<int>(axis)] > 0) return;
  args.fail("axis is empty: axis " + std::to_string(axis) + " of shape " +
            to_string(args.shape(0)) + "; reduce an axis that has elements");
}

ValueTypes infer_sum(const InferArgs& args) {
  require_number(args, 0);
  return {{args.dtype(0), reduced_input(args)}};
}

ValueTypes infer_extreme(const InferArgs& args) {
  const Shape shape = reduced_input(args);
  for (const int64_t axis : args.ints("dims")) require_elements(args, axis);
  return {{args.dtype(0), shape}};
}

ValueTypes infer_test(const InferArgs& args) { return {{DType::kBool, reduced_input(args)}}; }

ValueTypes infer_all_finite(const InferArgs& args) {
  for (size_t i = 0; i < args.num_inputs(); ++i) require_floating(args, i);
  return {{DType::kBool, Shape{}}};
}

/// The value of a reduction's output, broadcast against the input: reduced axes stay as size 1.
ValueId with_kept_axes(Builder& b, const Node& node, ValueId value) {
  const Shape shape = reduced_shape(b.shape(node.in(0)), node.ints("dims"), true);
  return b.reshape(value, shape);
}

ValueId sum_rule(Builder& b, const Node& node, ValueId grad) {
  const Shape shape = b.shape(node.in(0));
  const ValueId kept = with_kept_axes(b, node, grad);
  return b.broadcast_to(kept, shape);
}

// Equal extremes share the gradient evenly, as in PyTorch; it is nan where the result is nan.
ValueId extreme_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId x = node.in(0);
  const ValueId extreme = with_kept_axes(b, node, node.outputs[0]);
  const ValueId kept_grad = with_kept_axes(b, node, grad);
  const ValueId chosen = b.op("eq", {x, extreme});
  const ValueId weight = b.cast(chosen, b.dtype(grad));
  const ValueId count = b.sum(weight, node.ints("dims"), true);
  const ValueId share = b.div(kept_grad, count);
  return b.mul(weight, share);
}

/// The rows of a matrix moved by `distance` along axis 1, to the front if `to_front`; ones follow.
ValueId moved(Builder& b, ValueId matrix, int64_t distance, bool to_front) {
  const Shape shape = b.shape(matrix);
  const int64_t width = shape[1] - distance;
  const int64_t start = to_front ? distance : 0;
  const Ints low = {0, to_front ? 0 : distance};
  const Ints high = {0, to_front ? distance : 0};
  const ValueId part = b.op("slice", {matrix}, {Ints{0, start}, Ints{shape[0], width}, Ints{1, 1}});
  return b.op("pad", {part}, {low, high, 1.0});
}

/// Product of the elements before each (after each if `after`) along axis 1 of a matrix, by
/// doubling the distance (Hillis and Steele 1986, "Data parallel algorithms").
ValueId exclusive_product(Builder& b, ValueId matrix, bool after) {
  const int64_t width = b.shape(matrix)[1];
  ValueId product = moved(b, matrix, 1, after);
  for (int64_t distance = 1; distance < width; distance *= 2) {
    const ValueId other = moved(b, product, distance, after);
    product = b.mul(product, other);
  }
  return product;
}

/// All axes, those that the reduction keeps first.
Ints kept_axes_first(const Shape& shape, const Ints& reduced) {
  Ints order;
  for (int64_t axis = 0; axis < shape.rank(); ++axis) {
    if (std::ranges::find(reduced, axis) == reduced.end()) order.push_back(axis);
  }
  order.insert(order.end(), reduced.begin(), reduced.end());
  return order;
}

Ints inverse(const Ints& order) {
  Ints result(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    result[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return result;
}

/// Product of all other elements that are reduced together with each: no division, so that zeros
/// and their second derivatives are right.
ValueId product_of_others(Builder& b, ValueId x, const Ints& reduced) {
  const Shape shape = b.shape(x);
  const Ints order = kept_axes_first(shape, reduced);
  int64_t width = 1;
  for (const int64_t axis : reduced) width *= shape[static_cast<int>(axis)];
  const ValueId grouped = b.permute(x, order);
  const Shape grouped_shape = b.shape(grouped);
  const ValueId matrix = b.reshape(grouped, Shape{shape.num_elements() / width, width});
  const ValueId before = exclusive_product(b, matrix, false);
  const ValueId after = exclusive_product(b, matrix, true);
  const ValueId others = b.mul(before, after);
  const ValueId regrouped = b.reshape(others, grouped_shape);
  return b.permute(regrouped, inverse(order));
}

// d prod(x) = sum over i of (product of the others) dx_i
ValueId prod_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId x = node.in(0);
  if (b.shape(x).num_elements() == 0) return b.full_like(0.0, x);
  const ValueId kept_grad = with_kept_axes(b, node, grad);
  const ValueId others = product_of_others(b, x, node.ints("dims"));
  return b.mul(others, kept_grad);
}

ValueTypes infer_arg_extreme(const InferArgs& args) {
  const int dim = axis_attr(args, "dim", args.shape(0));
  require_elements(args, dim);
  return {{DType::kInt64, reduced_shape(args.shape(0), {dim}, args.flag("keepdim"))}};
}

ValueTypes infer_cumsum(const InferArgs& args) {
  require_number(args, 0);
  axis_attr(args, "dim", args.shape(0));
  return {args.input(0)};
}

ValueId reversed(Builder& b, ValueId x, int64_t dim) {
  const Shape shape = b.shape(x);
  Ints starts(static_cast<size_t>(shape.rank()), 0);
  Ints steps(static_cast<size_t>(shape.rank()), 1);
  starts[static_cast<size_t>(dim)] = std::max<int64_t>(shape[static_cast<int>(dim)] - 1, 0);
  steps[static_cast<size_t>(dim)] = -1;
  return b.op("slice", {x}, {starts, to_ints(shape), steps});
}

// Element i is part of the sums i and later: the gradient is the running sum from the end.
ValueId cumsum_rule(Builder& b, const Node& node, ValueId grad) {
  const int64_t dim = node.integer("dim");
  const ValueId backward = reversed(b, grad, dim);
  const ValueId sums = b.op("cumsum", {backward}, {dim});
  return reversed(b, sums, dim);
}

ValueTypes infer_sort(const InferArgs& args) {
  axis_attr(args, "dim", args.shape(0));
  return {args.input(0), {DType::kInt64, args.shape(0)}};
}

// The indices of a row are a permutation: each gradient goes back to its place.
ValueId sort_rule(Builder& b, const Node& node, ValueId grad) {
  const ValueId zeros = b.full_like(0.0, grad);
  return b.op("scatter", {zeros, node.outputs[1], grad}, {node.integer("dim")});
}

// About log2(length) comparisons for each element.
double sort_flops(const ir::Graph& graph, const Node& node) {
  const Shape& shape = graph.type(node.in(0)).shape;
  const auto length = shape.rank() == 0 ? 1 : shape[static_cast<int>(node.integer("dim"))];
  return flops_per_input<1>(graph, node) * std::log2(static_cast<double>(length) + 1);
}

ir::Op reduction(std::string_view name, std::string_view doc, ir::InferFn infer, ir::VjpFn vjp,
                 Reads reads, ir::Autocast autocast = ir::Autocast::kNone) {
  return {.name = name,
          .doc = doc,
          .attrs = {{"dims", AttrType::kInts}, {"keepdim", AttrType::kBool}},
          .traits = ir::kPure | ir::kReduction,
          .infer = infer,
          .vjp = vjp,
          .vjp_reads_inputs = reads.inputs,
          .vjp_reads_outputs = reads.outputs,
          .nondifferentiable_outputs = vjp == nullptr ? 1u : 0u,
          .autocast = autocast};
}

ir::Op arg_extreme(std::string_view name, std::string_view doc) {
  return {.name = name,
          .doc = doc,
          .attrs = {{"dim", AttrType::kInt}, {"keepdim", AttrType::kBool}},
          .traits = ir::kPure | ir::kReduction,
          .infer = infer_arg_extreme,
          .vjp_reads_inputs = 0,
          .vjp_reads_outputs = 0,
          .nondifferentiable_outputs = 1};
}

}  // namespace

std::vector<ir::Op> reduction_ops() {
  constexpr Reads kReadsBoth{.inputs = 1, .outputs = 1};
  const AttrSpec dim{"dim", AttrType::kInt};
  return {
      reduction("sum", "sum along axes", infer_sum, unary_vjp<sum_rule>, kReadsNothing,
                ir::Autocast::kFloat32),
      reduction("prod", "product along axes", infer_sum, unary_vjp<prod_rule>, kReadsInput,
                ir::Autocast::kFloat32),
      reduction("amax", "maximum along axes; nan if one is nan", infer_extreme,
                unary_vjp<extreme_rule>, kReadsBoth),
      reduction("amin", "minimum along axes; nan if one is nan", infer_extreme,
                unary_vjp<extreme_rule>, kReadsBoth),
      reduction("any", "true if an element along the axes is not 0", infer_test, nullptr,
                kReadsNothing),
      reduction("all", "true if no element along the axes is 0", infer_test, nullptr,
                kReadsNothing),
      {.name = "all_finite",
       .doc = "true if no element of any input is inf or nan",
       .max_inputs = -1,
       .traits = ir::kPure | ir::kReduction,
       .infer = infer_all_finite,
       .vjp_reads_inputs = 0,
       .vjp_reads_outputs = 0,
       .nondifferentiable_outputs = 1},
      arg_extreme("argmax", "index of the first maximum along an axis; nan is the maximum"),
      arg_extreme("argmin", "index of the first minimum along an axis; nan is the minimum"),
      {.name = "cumsum",
       .doc = "running sum along an axis",
       .attrs = {dim},
       .traits = ir::kPure,
       .infer = infer_cumsum,
       .vjp = unary_vjp<cumsum_rule>,
       .vjp_reads_inputs = 0,
       .vjp_reads_outputs = 0,
       .autocast = ir::Autocast::kFloat32},
      {.name = "sort",
       .doc = "values in stable order along an axis, nan as the largest; and their indices",
       .attrs = {dim, {"descending", AttrType::kBool}},
       .traits = ir::kPure,
       .infer = infer_sort,
       .vjp = unary_vjp<sort_rule>,
       .flops = sort_flops,
       .vjp_reads_inputs = 0,
       .vjp_reads_outputs = 0b10,
       .nondifferentiable_outputs = 0b10},
  };
}

}  // namespace lucid::ops

// Reads and writes at indices held in tensors. Negative indices count from the end; an index out of
// range is found by the kernel.
#include <string>
#include <string_view>
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

/// x[:dim] + index + x[dim + 1:]
Shape taken_shape(const InferArgs& args, int dim) {
  const Shape& x = args.shape(0);
  const Shape& index = args.shape(1);
  std::vector<int64_t> sizes;
  for (int axis = 0; axis < dim; ++axis) sizes.push_back(x[axis]);
  for (const int64_t size : index.sizes()) sizes.push_back(size);
  for (int axis = dim + 1; axis < x.rank(); ++axis) sizes.push_back(x[axis]);
  if (sizes.size() > static_cast<size_t>(kMaxRank)) {
    args.fail("result has too many axes: " + std::to_string(sizes.size()) + " of shapes " +
              to_string(x) + " and " + to_string(index) + "; at most 8 are supported");
  }
  return Shape(sizes);
}

ValueTypes infer_take(const InferArgs& args) {
  require_index(args, 1);
  const int dim = axis_attr(args, "dim", args.shape(0));
  return {{args.dtype(0), taken_shape(args, dim)}};
}

// Elements taken several times have the sum of their gradients.
Grads take_vjp(Builder& b, const Node& node, const Grads& grads, const Wanted& wanted) {
  Grads result = absent(node);
  if (!grads[0] || !wants(b, node, wanted, 0)) return result;
  const ValueId zeros = b.full_like(0.0, node.in(0));
  result[0] = b.op("index_add", {zeros, node.in(1), grads[0]}, {node.integer("dim")});
  return result;
}

ValueTypes infer_index_add(const InferArgs& args) {
  require_same_dtype(args, 0, 2);
  require_number(args, 0);
  require_index(args, 1);
  const int dim = axis_attr(args, "dim", args.shape(0));
  const Shape expected = taken_shape(args, dim);
  if (args.shape(2) != expected) {
    args.fail("source does not fit: " + to_string(args.shape(2)) + " for input " +
              to_string(args.shape(0)) + " and index " + to_string(args.shape(1)) + "; use " +
              to_string(expected));
  }
  return {args.input(0)};
}

/// Gradients where the output is the input plus elements of the source: the input's is whole, the
/// source's is read back by `read`.
Grads added_vjp(Builder& b, const Node& node, const Grads& grads, const Wanted& wanted,
                std::string_view read) {
  Grads result = absent(node);
  if (!grads[0]) return result;
  if (wants(b, node, wanted, 0)) result[0] = grads[0];
  if (wants(b, node, wanted, 2)) {
    result[2] = b.op(read, {grads[0], node.in(1)}, {node.integer("dim")});
  }
  return result;
}

Grads index_add_vjp(Builder& b, const Node& node, const Grads& grads, const Wanted& wanted) {
  return added_vjp(b, node, grads, wanted, "take");
}

Grads scatter_add_vjp(Builder& b, const Node& node, const Grads& grads, const Wanted& wanted) {
  return added_vjp(b, node, grads, wanted, "gather");
}

/// Refuses an index that has another rank than x, or is larger off the axis.
void require_gather_index(const InferArgs& args) {
  require_index(args, 1);
  const Shape& x = args.shape(0);
  const Shape& index = args.shape(1);
  const int dim = axis_attr(args, "dim", x);
  bool fits = index.rank() == x.rank();
  for (int axis = 0; fits && axis < x.rank(); ++axis) {
    fits = axis == dim || index[axis] <= x[axis];
  }
  if (fits) return;
  args.fail("index does not fit: " + to_string(index) + " for input " + to_string(x) +
            "; it needs the same rank and, off axis " + std::to_string(dim) +
            ", sizes no larger than the input's");
}

ValueTypes infer_gather(const InferArgs& args) {
  require_gather_index(args);
  return {{args.dtype(0), args.shape(1)}};
}

Grads gather_vjp(Builder& b, const Node& node, const Grads& grads, const Wanted& wanted) {
  Grads result = absent(node);
  if (!grads[0] || !wants(b, node, wanted, 0)) return result;
  const ValueId zeros = b.full_like(0.0, node.in(0));
  result[0] = b.op("scatter_add", {zeros, node.in(1), grads[0]}, {node.integer("dim")});
  return result;
}

ValueTypes infer_scatter(const InferArgs& args) {
  require_same_dtype(args, 0, 2);
  require_gather_index(args);
  if (args.shape(1) != args.shape(2)) {
    args.fail("shapes of index and source differ: " + to_string(args.shape(1)) + " and " +
              to_string(args.shape(2)) + "; slice the source to the index's shape");
  }
  return {args.input(0)};
}

ValueTypes infer_scatter_add(const InferArgs& args) {
  require_number(args, 0);
  return infer_scatter(args);
}

// x has the gradient where nothing was written. As in PyTorch, each source element reads the
// gradient at its index, also one that a later write of the same index replaced: for repeated
// indices that is not the derivative.
Grads scatter_vjp(Builder& b, const Node& node, const Grads& grads, const Wanted& wanted) {
  Grads result = absent(node);
  if (!grads[0]) return result;
  const int64_t dim = node.integer("dim");
  if (wants(b, node, wanted, 0)) {
    const ValueId zeros = b.full_like(0.0, node.in(2));
    result[0] = b.op("scatter", {grads[0], node.in(1), zeros}, {dim});
  }
  if (wants(b, node, wanted, 2)) result[2] = b.op("gather", {grads[0], node.in(1)}, {dim});
  return result;
}

// As in PyTorch, elements of x and of the source that are the result share its gradient evenly.
Grads scatter_extreme_vjp(Builder& b, const Node& node, const Grads& grads, const Wanted& wanted) {
  Grads result = absent(node);
  const bool wants_x = wants(b, node, wanted, 0);
  const bool wants_src = wants(b, node, wanted, 2);
  if (!grads[0] || !(wants_x || wants_src)) return result;
  const int64_t dim = node.integer("dim");
  const ValueId x = node.in(0);
  const ValueId index = node.in(1);
  const ValueId src = node.in(2);
  const ValueId y = node.outputs[0];
  const DType dtype = b.type(x).dtype;
  const ValueId reached = b.op("gather", {y, index}, {dim});
  const ValueId x_equal = b.op("eq", {x, y});
  const ValueId src_equal = b.op("eq", {src, reached});
  const ValueId x_share = b.cast(x_equal, dtype);
  const ValueId src_share = b.cast(src_equal, dtype);
  const ValueId count = b.op("scatter_add", {x_share, index, src_share}, {dim});
  const ValueId each = b.op("div", {*grads[0], count});
  if (wants_x) result[0] = b.mul(each, x_share);
  if (wants_src) {
    const ValueId spread = b.op("gather", {each, index}, {dim});
    result[2] = b.mul(spread, src_share);
  }
  return result;
}

/// scatter_max or scatter_min, whose gradient rule reads everything.
ir::Op scattered_extreme(std::string_view name, std::string_view doc) {
  return {.name = name,
          .doc = doc,
          .min_inputs = 3,
          .max_inputs = 3,
          .attrs = {{"dim", AttrType::kInt}},
          .traits = ir::kPure | ir::kInPlace,
          .infer = infer_scatter_add,
          .vjp = scatter_extreme_vjp,
          .vjp_reads_inputs = 0b111,
          .vjp_reads_outputs = 0b1};
}

ValueTypes infer_from_front(const InferArgs& args) {
  require_index(args, 0);
  return {args.input(0)};
}

// What lies below 0 goes below -size, where the look-up that follows refuses it.
std::vector<ValueId> from_front_decompose(Builder& b, const Node& node) {
  const ValueId index = node.in(0);
  const ValueId size = b.number(static_cast<double>(node.integer("size")), index);
  const ValueId below = b.sub(index, size);
  const ValueId zero = b.number(0, index);
  const ValueId is_negative = b.op("lt", {index, zero});
  return {b.where(is_negative, below, index)};
}

/// A row whose gradient rule reads the index only.
ir::Op indexed(std::string_view name, std::string_view doc, int num_inputs, ir::InferFn infer,
               ir::VjpFn vjp) {
  const uint32_t in_place = num_inputs == 3 ? uint32_t{ir::kInPlace} : 0u;
  return {.name = name,
          .doc = doc,
          .min_inputs = num_inputs,
          .max_inputs = num_inputs,
          .attrs = {{"dim", AttrType::kInt}},
          .traits = ir::kPure | in_place,
          .infer = infer,
          .vjp = vjp,
          .vjp_reads_inputs = 0b010,
          .vjp_reads_outputs = 0};
}

}  // namespace

std::vector<ir::Op> index_ops() {
  return {
      indexed("take", "slices of x across an axis, chosen by an index of any shape", 2, infer_take,
              take_vjp),
      indexed("index_add", "adds slices to x at an index, in its order; adjoint of take", 3,
              infer_index_add, index_add_vjp),
      indexed("gather", "out[i, j] = x[index[i, j], j] along an axis", 2, infer_gather, gather_vjp),
      indexed("scatter", "x with x[index[i, j], j] = src[i, j]; the last write stays", 3,
              infer_scatter, scatter_vjp),
      indexed("scatter_add", "x with x[index[i, j], j] += src[i, j], in order; adjoint of gather",
              3, infer_scatter_add, scatter_add_vjp),
      scattered_extreme("scatter_max", "x with the larger of x[index[i, j], j] and src[i, j]"),
      scattered_extreme("scatter_min", "x with the smaller of x[index[i, j], j] and src[i, j]"),
      {.name = "index_from_front",
       .doc = "an index, refused in the name of `function` unless it lies in [0, size)",
       .min_inputs = 1,
       .max_inputs = 1,
       .attrs = {{"size", AttrType::kInt}, {"function", AttrType::kString}},
       .traits = ir::kPure,
       .infer = infer_from_front,
       .decompose = from_front_decompose},
  };
}

}  // namespace lucid::ops

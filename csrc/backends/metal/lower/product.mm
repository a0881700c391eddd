#include "backends/metal/lower/product.h"

#include <algorithm>
#include <array>

#include "backends/metal/lower/families.h"

namespace lucid::metal {
namespace {

// Longest inner size of one product on the GPUs that read past their operands otherwise.
constexpr int64_t kMaxInner = 32766;
constexpr int64_t kSmallSide = 16;  // products with fewer rows or columns are right there

int64_t from_end(const Shape& shape, int axis) { return shape[shape.rank() - axis]; }

Tensor transposed(const Calc& c, Tensor x, int rank) {
  Ints order;
  for (int axis = 0; axis < rank; ++axis) order.push_back(axis);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return c.permute(x, order);
}

/// Elements [start, end) along an axis of a tensor of that shape.
Tensor part(const Calc& c, Tensor x, const Shape& shape, int axis, int64_t start, int64_t end) {
  Ints starts(static_cast<size_t>(shape.rank()), 0);
  Ints ends(shape.sizes().begin(), shape.sizes().end());
  starts[static_cast<size_t>(axis)] = start;
  ends[static_cast<size_t>(axis)] = end;
  return c.slice(x, starts, ends, Ints(static_cast<size_t>(shape.rank()), 1));
}

/// An operand as (batch, rows, columns), its leading axes broadcast to `lead`.
struct Batched {
  Tensor tensor;
  Shape shape;
};

Batched batched(const Calc& c, Tensor x, const Shape& shape, std::span<const int64_t> lead) {
  std::vector<int64_t> full(lead.begin(), lead.end());
  full.push_back(from_end(shape, 2));
  full.push_back(from_end(shape, 1));
  const Shape wide(full);
  const Shape flat{product(lead), from_end(shape, 2), from_end(shape, 1)};
  return {c.reshape(wide == shape ? x : c.broadcast(x, wide), flat), flat};
}

Shape swapped(const Shape& shape) {
  const int rank = shape.rank();
  return shape.with(rank - 1, from_end(shape, 2)).with(rank - 2, from_end(shape, 1));
}

// Ranks above 4 abort in MPSGraph, so batches are flattened to one axis, or into the rows where one
// matrix serves them all.
Tensors lower_matmul(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const ValueType& out = b.out_type(node);
  if (!is_floating(out.dtype)) {
    b.refuse(node, "no metal lowering for " + std::string(name(out.dtype)));
  }
  Shape lhs_shape = b.in_type(node, 0).shape;
  Shape rhs_shape = b.in_type(node, 1).shape;
  Tensor lhs = b.in(node, 0);
  Tensor rhs = b.in(node, 1);
  if (node.flag("transpose_a")) {
    lhs = transposed(c, lhs, lhs_shape.rank());
    lhs_shape = swapped(lhs_shape);
  }
  if (node.flag("transpose_b")) {
    rhs = transposed(c, rhs, rhs_shape.rank());
    rhs_shape = swapped(rhs_shape);
  }
  Tensor result = nil;
  if (rhs_shape.rank() == 2) {
    const Shape rows{lhs_shape.num_elements() / from_end(lhs_shape, 1), from_end(lhs_shape, 1)};
    result = multiplied(b, c.reshape(lhs, rows), rows, rhs, rhs_shape);
  } else {
    const auto lead = out.shape.sizes().first(static_cast<size_t>(out.shape.rank() - 2));
    const Batched left = batched(c, lhs, lhs_shape, lead);
    const Batched right = batched(c, rhs, rhs_shape, lead);
    result = multiplied(b, left.tensor, left.shape, right.tensor, right.shape);
  }
  return {c.reshape(result, out.shape)};
}

Tensors lower_linear(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const Shape& weight = b.in_type(node, 1).shape;
  const Shape rows{b.in_type(node, 0).num_elements() / weight[1], weight[1]};
  Tensor x = c.reshape(b.in(node, 0), rows);
  Tensor w = transposed(c, b.in(node, 1), 2);
  Tensor y = multiplied(b, x, rows, w, swapped(weight));
  if (node.has(2)) y = c.add(y, c.reshape(b.in(node, 2), Shape{1, weight[0]}));
  return {c.reshape(y, b.out_type(node).shape)};
}

const LoweringRow kRows[] = {
    {"matmul", lower_matmul},
    {"linear", lower_linear},
};

}  // namespace

Tensor multiplied(Lowering& b, Tensor lhs, const Shape& lhs_shape, Tensor rhs,
                  const Shape& rhs_shape) {
  const Calc& c = b.calc();
  const int64_t inner = from_end(lhs_shape, 1);
  const bool is_small = from_end(lhs_shape, 2) < kSmallSide || from_end(rhs_shape, 1) < kSmallSide;
  if (!b.options().splits_long_products || inner <= kMaxInner || is_small) {
    return c.matmul(lhs, rhs);
  }
  const MPSDataType type = [lhs dataType];
  Tensor total = nil;
  for (int64_t start = 0; start < inner; start += kMaxInner) {
    const int64_t end = std::min(start + kMaxInner, inner);
    Tensor left = part(c, lhs, lhs_shape, lhs_shape.rank() - 1, start, end);
    Tensor right = part(c, rhs, rhs_shape, rhs_shape.rank() - 2, start, end);
    Tensor product = c.cast(c.matmul(left, right), MPSDataTypeFloat32);
    total = total == nil ? product : c.add(total, product);
  }
  return c.cast(total, type);
}

std::span<const LoweringRow> product_lowerings() { return kRows; }

}  // namespace lucid::metal

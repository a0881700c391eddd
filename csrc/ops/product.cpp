// Products: matmul with transposition as an attribute, and linear with a bias.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ops/cost.h"
#include "ops/families.h"
#include "ops/infer.h"
#include "ops/infer_window.h"
#include "ops/vjp.h"

namespace lucid::ops {
namespace {

using ir::AttrType;
using ir::InferArgs;
using ir::Op;
using ir::ValueTypes;

constexpr InputName kA{0, "first input"};
constexpr InputName kB{1, "second input"};

std::string both_shapes(const InferArgs& args) {
  return to_string(args.shape(0)) + " and " + to_string(args.shape(1));
}

/// Size of an axis counted from the end.
int64_t from_end(const Shape& shape, int axis) { return shape[shape.rank() - axis]; }

/// Leading axes of a product: broadcast from the right, all but the last two.
std::vector<int64_t> batch_sizes(const InferArgs& args) {
  const Shape& lhs = args.shape(0);
  const Shape& rhs = args.shape(1);
  const int rank = std::max(lhs.rank(), rhs.rank());
  std::vector<int64_t> sizes;
  for (int axis = rank; axis > 2; --axis) {
    const int64_t left = axis > lhs.rank() ? 1 : from_end(lhs, axis);
    const int64_t right = axis > rhs.rank() ? 1 : from_end(rhs, axis);
    if (left != right && left != 1 && right != 1) {
      args.fail("leading axes do not broadcast: " + both_shapes(args) +
                "; expand or reshape one of them");
    }
    sizes.push_back(left == 1 ? right : left);
  }
  return sizes;
}

ValueTypes infer_matmul(const InferArgs& args) {
  require_number(args, 0);
  require_same_dtype(args, 0, 1);
  const Shape& lhs = args.shape(0);
  const Shape& rhs = args.shape(1);
  if (lhs.rank() < 2 || rhs.rank() < 2) {
    args.fail("inputs need at least 2 axes: " + both_shapes(args) + "; add one with reshape");
  }
  const bool transpose_a = args.flag("transpose_a");
  const bool transpose_b = args.flag("transpose_b");
  const int64_t rows = from_end(lhs, transpose_a ? 1 : 2);
  const int64_t inner_a = from_end(lhs, transpose_a ? 2 : 1);
  const int64_t inner_b = from_end(rhs, transpose_b ? 1 : 2);
  const int64_t columns = from_end(rhs, transpose_b ? 2 : 1);
  if (inner_a != inner_b) {
    args.fail("inner sizes differ: " + described(args, kA) + " has " + std::to_string(inner_a) +
              ", " + described(args, kB) + " has " + std::to_string(inner_b) +
              "; transpose or reshape one of them");
  }
  std::vector<int64_t> sizes = batch_sizes(args);
  sizes.push_back(rows);
  sizes.push_back(columns);
  return {{args.dtype(0), Shape(sizes)}};
}

ValueId matmul(Builder& b, ValueId lhs, ValueId rhs, bool transpose_a, bool transpose_b) {
  return b.op("matmul", {lhs, rhs}, {transpose_a, transpose_b});
}

/// (..., rows, columns) as one matrix (product of the rest, columns).
ValueId as_matrix(Builder& b, ValueId value) {
  const Shape shape = b.shape(value);
  const int64_t columns = from_end(shape, 1);
  const int64_t rows = product(shape.sizes().first(static_cast<size_t>(shape.rank() - 1)));
  return b.reshape(value, Shape{rows, columns});
}

// y = A B: dA = dy B^T and dB = A^T dy (Giles 2008, "Collected matrix derivative results", 2.2.2).
// With A^T in place of A the result is transposed, which swaps the two factors.
ValueId matmul_grad_a(Builder& b, const Node& node, ValueId grad) {
  const ValueId rhs = node.in(1);
  const bool transpose_b = node.flag("transpose_b");
  const ValueId full = node.flag("transpose_a") ? matmul(b, rhs, grad, transpose_b, true)
                                                : matmul(b, grad, rhs, false, !transpose_b);
  const Shape target = b.shape(node.in(0));
  return b.sum_to(full, target);
}

ValueId matmul_grad_b(Builder& b, const Node& node, ValueId grad) {
  ValueId lhs = node.in(0);
  const Shape target = b.shape(node.in(1));
  const bool transpose_a = node.flag("transpose_a");
  if (target.rank() == 2 && !transpose_a) {
    // One matrix for all batches: their rows form one long product, with no sum left to do.
    lhs = as_matrix(b, lhs);
    grad = as_matrix(b, grad);
  }
  const ValueId full = node.flag("transpose_b") ? matmul(b, grad, lhs, true, transpose_a)
                                                : matmul(b, lhs, grad, !transpose_a, false);
  return b.sum_to(full, target);
}

Grads matmul_vjp(Builder& b, const Node& node, const Grads& grads,
                 const std::vector<bool>& wanted) {
  Grads result = absent(node);
  if (wants(b, node, wanted, 0)) result[0] = matmul_grad_a(b, node, *grads[0]);
  if (wants(b, node, wanted, 1)) result[1] = matmul_grad_b(b, node, *grads[0]);
  return result;
}

ValueTypes infer_linear(const InferArgs& args) {
  constexpr InputName kInput{0, "input"};
  constexpr InputName kWeight{1, "weight"};
  constexpr InputName kBias{2, "bias"};
  require_floating(args, {kInput, kWeight, kBias});
  const Shape& input = args.shape(0);
  const Shape& weight = args.shape(1);
  if (weight.rank() != 2) {
    args.fail("weight needs 2 axes: " + described(args, kWeight) +
              "; give (out_features, in_features)");
  }
  if (input.rank() < 1) {
    args.fail("input needs at least 1 axis: " + described(args, kInput) + "; add one with reshape");
  }
  const int last = input.rank() - 1;
  if (input[last] != weight[1]) {
    args.fail("features differ: " + described(args, kInput) + " has " +
              std::to_string(input[last]) + ", " + described(args, kWeight) + " expects " +
              std::to_string(weight[1]) + "; the last axis of input must be in_features");
  }
  require_shape(args, kBias, Shape{weight[0]}, kWeight);
  return {{args.dtype(0), input.with(last, weight[0])}};
}

// y = x W^T + b over rows: dx = dy W, dW = dy^T x, db = sum of the rows of dy.
Grads linear_vjp(Builder& b, const Node& node, const Grads& grads,
                 const std::vector<bool>& wanted) {
  Grads result = absent(node);
  const Shape input_shape = b.shape(node.in(0));
  const ValueId grad = as_matrix(b, *grads[0]);
  if (wants(b, node, wanted, 0)) {
    const ValueId rows = matmul(b, grad, node.in(1), false, false);
    result[0] = b.reshape(rows, input_shape);
  }
  if (wants(b, node, wanted, 1)) {
    const ValueId rows = as_matrix(b, node.in(0));
    result[1] = matmul(b, grad, rows, true, false);
  }
  if (wants(b, node, wanted, 2)) result[2] = b.sum(grad, {0}, false);
  return result;
}

// Each output element is a chain of K multiplications and additions.
double matmul_flops(const ir::Graph& graph, const Node& node) {
  const Shape& lhs = graph.type(node.in(0)).shape;
  const int64_t depth = from_end(lhs, node.flag("transpose_a") ? 2 : 1);
  return 2.0 * static_cast<double>(depth) * flops_per_output<1>(graph, node);
}

double linear_flops(const ir::Graph& graph, const Node& node) {
  const auto depth = static_cast<double>(graph.type(node.in(1)).shape[1]);
  return (2.0 * depth + (node.has(2) ? 1.0 : 0.0)) * flops_per_output<1>(graph, node);
}

}  // namespace

std::vector<Op> product_ops() {
  return {
      {.name = "matmul",
       .doc = "matrix product of the last two axes; leading axes broadcast",
       .min_inputs = 2,
       .max_inputs = 2,
       .attrs = {{"transpose_a", AttrType::kBool}, {"transpose_b", AttrType::kBool}},
       .traits = ir::kPure,
       .infer = infer_matmul,
       .vjp = matmul_vjp,
       .flops = matmul_flops,
       .vjp_reads_outputs = 0,
       .autocast = ir::Autocast::kLow},
      {.name = "linear",
       .doc = "x (..., K) times the transposed weight (N, K), plus bias (N,)",
       .min_inputs = 2,
       .max_inputs = 3,
       .traits = ir::kPure,
       .infer = infer_linear,
       .vjp = linear_vjp,
       .flops = linear_flops,
       .vjp_reads_inputs = 0b011,
       .vjp_reads_outputs = 0,
       .autocast = ir::Autocast::kLow},
  };
}

}  // namespace lucid::ops

// Softmax and the gradients of the normalisations. The other rows of the family are decomposed; the
// gradients have rows because decompositions see the saved statistics as functions of the input,
// which only second derivatives need.
#include "backends/metal/lower/families.h"

namespace lucid::metal {
namespace {

// A row of -inf only gives nan, as on the cpu.
Tensors lower_softmax(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  Tensor x = c.cast(b.in(node, 0), MPSDataTypeFloat32);
  Tensor y = [c.graph() softMaxWithTensor:x axis:node.integer("dim") name:nil];
  return {c.cast(y, mps_type(b.out_type(node).dtype))};
}

/// The axes that a normalisation folds and those that its weight lacks.
struct Layout {
  Ints folded;
  Ints others;
  Shape kept;    ///< statistics with the folded axes as size 1
  Shape affine;  ///< weight, broadcastable against x
  double count = 1;
};

Layout layout_of(const Shape& x, const Ints& folded, const Ints& others) {
  Layout layout{folded, others, x, x};
  for (const int64_t axis : folded) {
    layout.kept = layout.kept.with(static_cast<int>(axis), 1);
    layout.count *= static_cast<double>(x[static_cast<int>(axis)]);
  }
  for (const int64_t axis : others) layout.affine = layout.affine.with(static_cast<int>(axis), 1);
  return layout;
}

// With z = (x - mean) rstd and h = dy weight: dx = rstd (h - mean(h) - z mean(h z)),
// dweight = sum dy z, dbias = sum dy (see ops/normalization.cpp).
Tensors lower_grad(Lowering& b, const Node& node, const Layout& layout) {
  const Calc& c = b.calc();
  const auto wide = [&](size_t i) { return c.cast(b.in(node, i), MPSDataTypeFloat32); };
  const MPSDataType type = mps_type(b.out_type(node).dtype);
  Tensor grad = wide(0);
  Tensor rstd = c.reshape(wide(3), layout.kept);
  Tensor z = c.mul(c.sub(wide(1), c.reshape(wide(2), layout.kept)), rstd);
  Tensor h = node.has(4) ? c.mul(grad, c.reshape(wide(4), layout.affine)) : grad;
  const auto mean = [&](Tensor x) {
    return c.div(c.sum(x, layout.folded), c.number_like(layout.count, x));
  };
  const auto parameter_grad = [&](Tensor x) {
    Tensor total = layout.others.empty() ? x : c.sum(x, layout.others);
    return c.cast(c.reshape(total, b.out_type(node, 1).shape), type);
  };
  Tensor along_z = c.mul(z, mean(c.mul(h, z)));
  Tensor dx = c.mul(c.sub(c.sub(h, mean(h)), along_z), rstd);
  return {c.cast(dx, type), parameter_grad(c.mul(grad, z)), parameter_grad(grad)};
}

Tensors lower_layer_norm_grad(Lowering& b, const Node& node) {
  const Shape& x = b.in_type(node, 1).shape;
  const int64_t lead = x.rank() - node.integer("axes");
  Ints folded;
  Ints others;
  for (int64_t axis = 0; axis < x.rank(); ++axis) (axis < lead ? others : folded).push_back(axis);
  return lower_grad(b, node, layout_of(x, folded, others));
}

Tensors lower_batch_norm_grad(Lowering& b, const Node& node) {
  const Shape& x = b.in_type(node, 1).shape;
  Ints folded;
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    if (axis != 1) folded.push_back(axis);
  }
  return lower_grad(b, node, layout_of(x, folded, folded));
}

const LoweringRow kRows[] = {
    {"softmax", lower_softmax},
    {"layer_norm_grad", lower_layer_norm_grad},
    {"batch_norm_grad", lower_batch_norm_grad},
};

}  // namespace

std::span<const LoweringRow> normalization_lowerings() { return kRows; }

}  // namespace lucid::metal

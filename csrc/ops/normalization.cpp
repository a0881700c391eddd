// Softmax, layer and batch normalisation, and their gradients.
#include <algorithm>
#include <iterator>
#include <optional>
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

ValueTypes infer_softmax(const InferArgs& args) {
  require_floating(args, {{0, "input"}});
  axis_attr(args, "dim", args.shape(0));
  return {args.input(0)};
}

ValueTypes infer_softmax_grad(const InferArgs& args) {
  constexpr InputName kGrad{0, "grad"};
  constexpr InputName kOutput{1, "output"};
  require_floating(args, {kGrad, kOutput});
  require_shape(args, kGrad, args.shape(1), kOutput);
  axis_attr(args, "dim", args.shape(0));
  return {args.input(0)};
}

template <const char* kGradName>
Grads softmax_vjp(Builder& b, const Node& node, const Grads& grads,
                  const std::vector<bool>& wanted) {
  Grads result = absent(node);
  if (!wants(b, node, wanted, 0)) return result;
  result[0] = b.op(kGradName, {*grads[0], node.outputs[0]}, {node.attr("dim")});
  return result;
}

constexpr char kSoftmaxGrad[] = "softmax_grad";
constexpr char kLogSoftmaxGrad[] = "log_softmax_grad";

// softmax(x) = softmax(x - c) for any c of the row; the maximum keeps exp from overflowing, and,
// being free to choose, has no gradient.
ValueId minus_row_maximum(Builder& b, ValueId x, int64_t dim) {
  const ValueId high = b.op("amax", {x}, {Ints{dim}, true});
  const ValueId fixed = detached(b, high);
  return b.sub(x, fixed);
}

// y_i = exp(x_i) / sum_j exp(x_j) (Bridle 1990, "Probabilistic interpretation of feedforward
// classification network outputs").
std::vector<ValueId> softmax_decompose(Builder& b, const Node& node) {
  const DType dtype = b.dtype(node.in(0));
  if (b.shape(node.in(0)).num_elements() == 0) return {b.full_like(0, node.in(0))};
  const int64_t dim = node.integer("dim");
  const ValueId x = widened(b, node.in(0));
  const ValueId shifted = minus_row_maximum(b, x, dim);
  const ValueId powers = b.op("exp", {shifted});
  const ValueId total = b.sum(powers, {dim}, true);
  const ValueId y = b.div(powers, total);
  return {b.cast(y, dtype)};
}

// log y_i = x_i - log sum_j exp(x_j).
std::vector<ValueId> log_softmax_decompose(Builder& b, const Node& node) {
  const DType dtype = b.dtype(node.in(0));
  if (b.shape(node.in(0)).num_elements() == 0) return {b.full_like(0, node.in(0))};
  const int64_t dim = node.integer("dim");
  const ValueId x = widened(b, node.in(0));
  const ValueId shifted = minus_row_maximum(b, x, dim);
  const ValueId powers = b.op("exp", {shifted});
  const ValueId total = b.sum(powers, {dim}, true);
  const ValueId log_total = b.op("log", {total});
  const ValueId y = b.sub(shifted, log_total);
  return {b.cast(y, dtype)};
}

// dx = y (dy - sum_j dy_j y_j), from dy_i / dx_j = y_i (delta_ij - y_j).
std::vector<ValueId> softmax_grad_decompose(Builder& b, const Node& node) {
  const DType dtype = b.dtype(node.in(0));
  const ValueId grad = widened(b, node.in(0));
  const ValueId y = widened(b, node.in(1));
  const ValueId weighted = b.mul(grad, y);
  const ValueId total = b.sum(weighted, {node.integer("dim")}, true);
  const ValueId centred = b.sub(grad, total);
  const ValueId dx = b.mul(y, centred);
  return {b.cast(dx, dtype)};
}

// With y = log softmax(x): dx = dy - exp(y) sum_j dy_j.
std::vector<ValueId> log_softmax_grad_decompose(Builder& b, const Node& node) {
  const DType dtype = b.dtype(node.in(0));
  const ValueId grad = widened(b, node.in(0));
  const ValueId y = widened(b, node.in(1));
  const ValueId probability = b.op("exp", {y});
  const ValueId total = b.sum(grad, {node.integer("dim")}, true);
  const ValueId share = b.mul(probability, total);
  const ValueId dx = b.sub(grad, share);
  return {b.cast(dx, dtype)};
}

/// The axes that a normalisation folds, and the shapes that follow from them.
struct Layout {
  Ints folded;       ///< axes of the mean
  Ints others;       ///< axes that the gradients of weight and bias sum
  Shape kept;        ///< statistics, with the folded axes as size 1
  Shape statistics;  ///< statistics as they are stored
  Shape affine;      ///< weight and bias, broadcastable against x
  Shape parameter;   ///< weight and bias as they are stored
  double count = 1;  ///< elements under one mean
};

/// Layer normalisation: one mean for each leading index, one weight for each trailing index.
Layout layer_layout(const Shape& x, int64_t num_axes) {
  Layout layout;
  const auto lead = static_cast<size_t>(x.rank()) - static_cast<size_t>(num_axes);
  for (int axis = 0; axis < x.rank(); ++axis) {
    (static_cast<size_t>(axis) < lead ? layout.others : layout.folded).push_back(axis);
  }
  layout.kept = reduced_shape(x, layout.folded, true);
  layout.statistics = Shape(x.sizes().first(lead));
  layout.parameter = Shape(x.sizes().subspan(lead));
  layout.affine = layout.parameter;
  layout.count = static_cast<double>(layout.parameter.num_elements());
  return layout;
}

/// Batch normalisation: one mean and one weight for each channel (axis 1).
Layout channel_layout(const Shape& x) {
  Layout layout;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (axis != 1) layout.folded.push_back(axis);
  }
  layout.others = layout.folded;
  layout.kept = reduced_shape(x, layout.folded, true);
  layout.statistics = Shape{x[1]};
  layout.parameter = layout.statistics;
  layout.affine = layout.kept;
  for (const int64_t axis : layout.folded) {
    layout.count *= static_cast<double>(x[static_cast<int>(axis)]);
  }
  return layout;
}

Layout layer_layout(const InferArgs& args, InputName input) {
  const Shape& x = args.shape(input.index);
  const int64_t axes = args.integer("axes");
  if (axes < 1 || axes > x.rank()) {
    args.fail("axes out of range: " + std::to_string(axes) + " trailing axes of " +
              described(args, input) + "; normalise at least one axis and at most all");
  }
  return layer_layout(x, axes);
}

Layout channel_layout(const InferArgs& args, InputName input) {
  if (args.shape(input.index).rank() < 2) {
    args.fail("input needs at least 2 axes: " + described(args, input) +
              "; give (batch, channels, ...)");
  }
  return channel_layout(args.shape(input.index));
}

constexpr InputName kInput{0, "input"};
constexpr InputName kGrad{0, "grad"};
constexpr InputName kGradInput{1, "input"};

/// Checks (x, weight?, bias?) and gives y and `num_statistics` statistics.
ValueTypes infer_forward(const InferArgs& args, const Layout& layout, size_t num_statistics) {
  constexpr InputName kWeight{1, "weight"};
  constexpr InputName kBias{2, "bias"};
  require_floating(args, {kInput, kWeight, kBias});
  require_eps(args);
  require_shape(args, kWeight, layout.parameter, kInput);
  require_shape(args, kBias, layout.parameter, kInput);
  ValueTypes types(1 + num_statistics, {statistics_dtype(args.dtype(0)), layout.statistics});
  types[0] = args.input(0);
  return types;
}

/// Checks (grad, x, mean, rstd, weight?) and gives the gradients of x, weight and bias.
ValueTypes infer_backward(const InferArgs& args, const Layout& layout) {
  constexpr InputName kMean{2, "mean"};
  constexpr InputName kRstd{3, "rstd"};
  constexpr InputName kWeight{4, "weight"};
  require_floating(args, {kGrad, kGradInput, kWeight});
  const DType dtype = args.dtype(0);
  require_dtype(args, kMean, statistics_dtype(dtype));
  require_dtype(args, kRstd, statistics_dtype(dtype));
  require_shape(args, kGrad, args.shape(1), kGradInput);
  require_shape(args, kMean, layout.statistics, kGradInput);
  require_shape(args, kRstd, layout.statistics, kGradInput);
  require_shape(args, kWeight, layout.parameter, kGradInput);
  const ir::ValueType parameter{dtype, layout.parameter};
  return {args.input(0), parameter, parameter};
}

ValueTypes infer_layer_norm(const InferArgs& args) {
  return infer_forward(args, layer_layout(args, kInput), 2);
}
ValueTypes infer_layer_norm_grad(const InferArgs& args) {
  return infer_backward(args, layer_layout(args, kGradInput));
}
ValueTypes infer_batch_norm(const InferArgs& args) {
  return infer_forward(args, channel_layout(args, kInput), 3);
}
ValueTypes infer_batch_norm_grad(const InferArgs& args) {
  return infer_backward(args, channel_layout(args, kGradInput));
}

/// Mean over the folded axes, which stay as size 1.
ValueId mean_of(Builder& b, ValueId value, const Layout& layout) {
  const ValueId total = b.sum(value, layout.folded, true);
  const ValueId count = b.number(layout.count, total);
  return b.div(total, count);
}

/// Mean of squares, which is the variance if the value is centred.
ValueId mean_square(Builder& b, ValueId value, const Layout& layout) {
  const ValueId squares = b.mul(value, value);
  return mean_of(b, squares, layout);
}

/// An optional weight or bias, widened and broadcastable against x.
std::optional<ValueId> affine(Builder& b, const Node& node, size_t index, const Layout& layout) {
  if (!node.has(index)) return std::nullopt;
  const ValueId wide = widened(b, node.in(index));
  return b.reshape(wide, layout.affine);
}

struct Normalized {
  ValueId y;
  ValueId mean;
  ValueId variance;
  ValueId rstd;
};

// y = (x - mean) / sqrt(variance + eps) * weight + bias, the variance divided by the count
// (Ioffe and Szegedy 2015, arXiv:1502.03167, algorithm 1; Ba, Kiros, Hinton 2016,
// arXiv:1607.06450, equation 3).
Normalized normalize(Builder& b, const Node& node, const Layout& layout) {
  const DType dtype = b.dtype(node.in(0));
  const ValueId x = widened(b, node.in(0));
  const ValueId mean = mean_of(b, x, layout);
  const ValueId centred = b.sub(x, mean);
  const ValueId variance = mean_square(b, centred, layout);
  const ValueId eps = b.number(node.real("eps"), variance);
  const ValueId raised = b.add(variance, eps);
  const ValueId rstd = b.op("rsqrt", {raised});
  ValueId y = b.mul(centred, rstd);
  const auto weight = affine(b, node, 1, layout);
  if (weight) y = b.mul(y, *weight);
  const auto bias = affine(b, node, 2, layout);
  if (bias) y = b.add(y, *bias);
  const ValueId narrow = b.cast(y, dtype);
  const ValueId stored_mean = b.reshape(mean, layout.statistics);
  const ValueId stored_variance = b.reshape(variance, layout.statistics);
  const ValueId stored_rstd = b.reshape(rstd, layout.statistics);
  return {narrow, stored_mean, stored_variance, stored_rstd};
}

std::vector<ValueId> layer_norm_decompose(Builder& b, const Node& node) {
  const Layout layout = layer_layout(b.shape(node.in(0)), node.integer("axes"));
  const Normalized result = normalize(b, node, layout);
  return {result.y, result.mean, result.rstd};
}

std::vector<ValueId> batch_norm_decompose(Builder& b, const Node& node) {
  const Layout layout = channel_layout(b.shape(node.in(0)));
  const Normalized result = normalize(b, node, layout);
  return {result.y, result.mean, result.variance, result.rstd};
}

struct Standardized {
  ValueId value;  ///< (x - mean) * rstd
  ValueId rstd;   ///< with the folded axes as size 1
};

// The saved statistics are functions of x, and second derivatives must see that: mean is anchored
// to the mean of x, and rstd = (variance + eps)^(-1/2) with eps recovered from its saved value.
Standardized standardize(Builder& b, const Node& node, ValueId x, const Layout& layout) {
  const ValueId given_mean = b.reshape(node.in(2), layout.kept);
  const ValueId computed_mean = mean_of(b, x, layout);
  const ValueId mean = anchored(b, computed_mean, given_mean);
  const ValueId centred = b.sub(x, mean);
  const ValueId variance = mean_square(b, centred, layout);
  const ValueId given_rstd = b.reshape(node.in(3), layout.kept);
  const ValueId given_square = b.mul(given_rstd, given_rstd);
  const ValueId given_raised = b.op("reciprocal", {given_square});
  const ValueId raised = anchored(b, variance, given_raised);
  const ValueId rstd = b.op("rsqrt", {raised});
  return {b.mul(centred, rstd), rstd};
}

/// Gradient of weight or bias: sum over the axes that they do not have.
ValueId parameter_grad(Builder& b, ValueId value, const Layout& layout, DType dtype) {
  const ValueId total = layout.others.empty() ? value : b.sum(value, layout.others, false);
  const ValueId stored = b.reshape(total, layout.parameter);
  return b.cast(stored, dtype);
}

// With z the standardised x and h = dy * weight:
// dx = rstd (h - mean(h) - z mean(h z)), dweight = sum dy z, dbias = sum dy
// (Ioffe and Szegedy 2015, arXiv:1502.03167, section 3, the six equations after algorithm 1,
// put together; layer normalisation differs in the axes only).
std::vector<ValueId> normalize_grad(Builder& b, const Node& node, const Layout& layout) {
  const DType dtype = b.dtype(node.in(0));
  const ValueId grad = widened(b, node.in(0));
  const ValueId x = widened(b, node.in(1));
  const Standardized z = standardize(b, node, x, layout);
  const auto weight = affine(b, node, 4, layout);
  const ValueId h = weight ? b.mul(grad, *weight) : grad;
  const ValueId mean_h = mean_of(b, h, layout);
  const ValueId h_z = b.mul(h, z.value);
  const ValueId mean_h_z = mean_of(b, h_z, layout);
  const ValueId along_z = b.mul(z.value, mean_h_z);
  const ValueId centred = b.sub(h, mean_h);
  const ValueId projected = b.sub(centred, along_z);
  const ValueId dx = b.mul(projected, z.rstd);
  const ValueId narrow_dx = b.cast(dx, dtype);
  const ValueId grad_z = b.mul(grad, z.value);
  const ValueId dweight = parameter_grad(b, grad_z, layout, dtype);
  const ValueId dbias = parameter_grad(b, grad, layout, dtype);
  return {narrow_dx, dweight, dbias};
}

std::vector<ValueId> layer_norm_grad_decompose(Builder& b, const Node& node) {
  return normalize_grad(b, node, layer_layout(b.shape(node.in(1)), node.integer("axes")));
}

std::vector<ValueId> batch_norm_grad_decompose(Builder& b, const Node& node) {
  return normalize_grad(b, node, channel_layout(b.shape(node.in(1))));
}

/// Emits the gradient node and hands out what is wanted of x, weight and bias.
Grads normalization_vjp(Builder& b, const Node& node, const Grads& grads,
                        const std::vector<bool>& wanted, std::string_view grad_name, ValueId rstd,
                        Attrs attrs) {
  Grads result = absent(node);
  if (!grads[0]) return result;
  const auto weight = node.has(1) ? node.inputs[1] : std::nullopt;
  const std::vector<ValueId> made =
      b.ops(grad_name, {*grads[0], node.in(0), node.outputs[1], rstd, weight}, std::move(attrs));
  for (size_t i = 0; i < result.size(); ++i) {
    if (wants(b, node, wanted, i)) result[i] = made[i];
  }
  return result;
}

Grads layer_norm_vjp(Builder& b, const Node& node, const Grads& grads,
                     const std::vector<bool>& wanted) {
  return normalization_vjp(b, node, grads, wanted, "layer_norm_grad", node.outputs[2],
                           {node.attr("axes")});
}

Grads batch_norm_vjp(Builder& b, const Node& node, const Grads& grads,
                     const std::vector<bool>& wanted) {
  return normalization_vjp(b, node, grads, wanted, "batch_norm_grad", node.outputs[3], {});
}

// Operations on each element: softmax takes a maximum, exp, a sum and a division; the moments
// take two sums of differences, then scale and shift; their gradients three sums.
constexpr int kSoftmaxForward = 32;
constexpr int kSoftmaxBackward = 4;
constexpr int kMoments = 8;
constexpr int kMomentsGrad = 14;

std::vector<Op> softmax_rows() {
  return {
      {.name = "softmax",
       .doc = "exp(x) over its sum along dim",
       .attrs = {{"dim", AttrType::kInt}},
       .traits = ir::kPure | ir::kInPlace,
       .infer = infer_softmax,
       .vjp = softmax_vjp<kSoftmaxGrad>,
       .decompose = softmax_decompose,
       .flops = flops_per_input<kSoftmaxForward>,
       .vjp_reads_inputs = 0,
       .autocast = ir::Autocast::kFloat32},
      {.name = "log_softmax",
       .doc = "logarithm of softmax along dim",
       .attrs = {{"dim", AttrType::kInt}},
       .traits = ir::kPure | ir::kInPlace,
       .infer = infer_softmax,
       .vjp = softmax_vjp<kLogSoftmaxGrad>,
       .decompose = log_softmax_decompose,
       .flops = flops_per_input<kSoftmaxForward>,
       .vjp_reads_inputs = 0,
       .autocast = ir::Autocast::kFloat32},
      {.name = "softmax_grad",
       .doc = "gradient of softmax from its output",
       .min_inputs = 2,
       .max_inputs = 2,
       .attrs = {{"dim", AttrType::kInt}},
       .traits = ir::kPure | ir::kInPlace,
       .infer = infer_softmax_grad,
       .decompose = softmax_grad_decompose,
       .flops = flops_per_input<kSoftmaxBackward>},
      {.name = "log_softmax_grad",
       .doc = "gradient of log_softmax from its output",
       .min_inputs = 2,
       .max_inputs = 2,
       .attrs = {{"dim", AttrType::kInt}},
       .traits = ir::kPure | ir::kInPlace,
       .infer = infer_softmax_grad,
       .decompose = log_softmax_grad_decompose,
       .flops = flops_per_input<kSoftmaxForward>},
  };
}

std::vector<Op> moment_rows() {
  return {
      {.name = "layer_norm",
       .doc = "normalises the trailing axes; also gives mean and 1 / standard deviation",
       .max_inputs = 3,
       .attrs = {{"axes", AttrType::kInt}, {"eps", AttrType::kFloat}},
       .traits = ir::kPure | ir::kInPlace,
       .infer = infer_layer_norm,
       .vjp = layer_norm_vjp,
       .decompose = layer_norm_decompose,
       .flops = flops_per_input<kMoments>,
       .vjp_reads_inputs = 0b011,
       .vjp_reads_outputs = 0b110,
       .nondifferentiable_outputs = 0b110,
       .autocast = ir::Autocast::kFloat32},
      {.name = "layer_norm_grad",
       .doc = "gradients of layer_norm by x, weight and bias",
       .min_inputs = 4,
       .max_inputs = 5,
       .attrs = {{"axes", AttrType::kInt}},
       .traits = ir::kPure | ir::kInPlace,
       .infer = infer_layer_norm_grad,
       .decompose = layer_norm_grad_decompose,
       .flops = flops_per_input<kMomentsGrad>},
      {.name = "batch_norm",
       .doc = "normalises each channel; also gives mean, variance and 1 / standard deviation",
       .max_inputs = 3,
       .attrs = {{"eps", AttrType::kFloat}},
       .traits = ir::kPure | ir::kInPlace,
       .infer = infer_batch_norm,
       .vjp = batch_norm_vjp,
       .decompose = batch_norm_decompose,
       .flops = flops_per_input<kMoments>,
       .vjp_reads_inputs = 0b011,
       .vjp_reads_outputs = 0b1010,
       .nondifferentiable_outputs = 0b1110},
      {.name = "batch_norm_grad",
       .doc = "gradients of batch_norm by x, weight and bias",
       .min_inputs = 4,
       .max_inputs = 5,
       .traits = ir::kPure | ir::kInPlace,
       .infer = infer_batch_norm_grad,
       .decompose = batch_norm_grad_decompose,
       .flops = flops_per_input<kMomentsGrad>},
  };
}

}  // namespace

std::vector<Op> normalization_ops() {
  std::vector<Op> rows = softmax_rows();
  std::ranges::move(moment_rows(), std::back_inserter(rows));
  return rows;
}

}  // namespace lucid::ops

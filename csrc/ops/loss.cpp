// Cross-entropy of logits against class indices, and its gradient.
#include <optional>
#include <string>
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

/// Places of the inputs that cross_entropy and its gradient share.
struct Places {
  InputName logits;
  InputName target;
  InputName weight;
};
constexpr Places kForward{{0, "logits"}, {1, "target"}, {2, "weight"}};
constexpr Places kBackward{{1, "logits"}, {2, "target"}, {4, "weight"}};

void check_attributes(const InferArgs& args) {
  const std::string& reduction = args.string("reduction");
  if (reduction != "none" && reduction != "mean" && reduction != "sum") {
    args.fail(ErrorKind::kUser, "unknown reduction: got " + ir::to_string(reduction) +
                                    "; use \"none\", \"mean\" or \"sum\"");
  }
  const double smoothing = args.real("label_smoothing");
  if (smoothing >= 0 && smoothing <= 1) return;
  args.fail(ErrorKind::kUser, "label_smoothing must be from 0 to 1: got " +
                                  ir::to_string(smoothing) + "; 0.1 is usual");
}

void check_operands(const InferArgs& args, const Places& places) {
  check_attributes(args);
  require_floating(args, {places.logits, places.weight});
  require_index(args, places.target);
  const Shape& logits = args.shape(places.logits.index);
  if (logits.rank() != 2 || logits[1] < 1) {
    args.fail("logits need 2 axes and at least 1 class: " + described(args, places.logits) +
              "; reshape to (rows, classes)");
  }
  require_shape(args, places.target, Shape{logits[0]}, places.logits);
  require_shape(args, places.weight, Shape{logits[1]}, places.logits);
}

/// The loss: one number, or one for each row.
Shape loss_shape(const InferArgs& args, int64_t rows) {
  return args.string("reduction") == "none" ? Shape{rows} : Shape{};
}

ValueTypes infer_cross_entropy(const InferArgs& args) {
  check_operands(args, kForward);
  const DType dtype = args.dtype(0);
  const int64_t rows = args.shape(0)[0];
  return {{dtype, loss_shape(args, rows)}, {statistics_dtype(dtype), Shape{rows}}};
}

ValueTypes infer_cross_entropy_grad(const InferArgs& args) {
  constexpr InputName kGrad{0, "grad"};
  constexpr InputName kLogSumExp{3, "log_sum_exp"};
  require_floating(args, {kBackward.logits, kGrad});
  check_operands(args, kBackward);
  const int64_t rows = args.shape(1)[0];
  require_shape(args, kGrad, loss_shape(args, rows), kBackward.logits);
  require_dtype(args, kLogSumExp, statistics_dtype(args.dtype(1)));
  require_shape(args, kLogSumExp, Shape{rows}, kBackward.logits);
  return {args.input(1)};
}

Grads cross_entropy_vjp(Builder& b, const Node& node, const Grads& grads,
                        const std::vector<bool>& wanted) {
  Grads result = absent(node);
  if (!grads[0] || !wants(b, node, wanted, 0)) return result;
  const auto weight = node.has(2) ? node.inputs[2] : std::nullopt;
  result[0] =
      b.op("cross_entropy_grad", {*grads[0], node.in(0), node.in(1), node.outputs[1], weight},
           {node.attr("ignore_index"), node.attr("label_smoothing"), node.attr("reduction")});
  return result;
}

/// A value with a last axis of size 1, to stand beside the logits.
ValueId as_column(Builder& b, ValueId rows) {
  const int64_t count = b.shape(rows)[0];
  return b.reshape(rows, Shape{count, 1});
}

/// What the targets say of each row. All have shape (N,).
struct Rows {
  ValueId active;  ///< bool: the row is not ignored
  ValueId target;  ///< class of an active row, 0 of an ignored one: always safe to look up
  ValueId weight;  ///< weight of the target's class, 0 of an ignored row
};

Rows describe_rows(Builder& b, const Node& node, const Places& places,
                   std::optional<ValueId> weight, ValueId like) {
  const ValueId given = node.in(places.target.index);
  const ValueId ignored = b.op("full", {}, {Ints{}, b.dtype(given), node.integer("ignore_index")});
  const ValueId active = b.op("ne", {given, ignored});
  const ValueId first = b.number(0, given);
  const ValueId target = b.where(active, given, first);
  const ValueId weights =
      weight ? b.op("take", {*weight, target}, {int64_t{0}}) : b.number(1, like);
  const ValueId none = b.number(0, like);
  return {active, target, b.where(active, weights, none)};
}

/// The optional class weights (C,), widened.
std::optional<ValueId> class_weights(Builder& b, const Node& node, const Places& places) {
  if (!node.has(places.weight.index)) return std::nullopt;
  return widened(b, node.in(places.weight.index));
}

struct LogSoftmax {
  ValueId value;        ///< (N, C): log of the probabilities
  ValueId log_sum_exp;  ///< (N, 1)
};

LogSoftmax log_softmax_of(Builder& b, ValueId logits) {
  const ValueId maximum = b.op("amax", {logits}, {Ints{1}, true});
  const ValueId high = detached(b, maximum);
  const ValueId shifted = b.sub(logits, high);
  const ValueId powers = b.op("exp", {shifted});
  const ValueId total = b.sum(powers, {1}, true);
  const ValueId log_total = b.op("log", {total});
  const ValueId value = b.sub(shifted, log_total);
  return {value, b.add(log_total, high)};
}

/// -e / C * sum over classes of w_c log p_c: the part of the loss that smoothing adds.
ValueId smoothing_loss(Builder& b, ValueId log_probability, std::optional<ValueId> weight,
                       double share) {
  const ValueId weighted = weight ? b.mul(log_probability, *weight) : log_probability;
  const ValueId total = b.sum(weighted, {1}, false);
  const ValueId factor = b.number(-share, total);
  return b.mul(total, factor);
}

// With p = softmax(x), class weights w, smoothing e, target t of C classes, each row's loss is
//   (1 - e) w_t (-log p_t) + e / C sum_c w_c (-log p_c)
// (Szegedy et al. 2016, arXiv:1512.00567, section 7), 0 if ignored; the mean divides the sum by
// the sum of w_t over the rows that count (PyTorch, torch.nn.CrossEntropyLoss).
ValueId row_losses(Builder& b, const Node& node, const Rows& rows, std::optional<ValueId> weight,
                   ValueId log_probability) {
  const double smoothing = node.real("label_smoothing");
  const auto classes = static_cast<double>(b.shape(log_probability)[1]);
  const ValueId column = as_column(b, rows.target);
  const ValueId picked = b.op("gather", {log_probability, column}, {int64_t{1}});
  const ValueId at_target = b.reshape(picked, Shape{b.shape(picked)[0]});
  const ValueId negative = b.neg(at_target);
  ValueId loss = b.mul(negative, rows.weight);
  if (smoothing > 0) {
    const ValueId kept = b.number(1 - smoothing, loss);
    const ValueId sharp = b.mul(loss, kept);
    const ValueId smooth = smoothing_loss(b, log_probability, weight, smoothing / classes);
    loss = b.add(sharp, smooth);
  }
  const ValueId none = b.number(0, loss);
  return b.where(rows.active, loss, none);
}

std::vector<ValueId> cross_entropy_decompose(Builder& b, const Node& node) {
  const DType dtype = b.dtype(node.in(0));
  const ValueId logits = widened(b, node.in(0));
  const auto weight = class_weights(b, node, kForward);
  const Rows rows = describe_rows(b, node, kForward, weight, logits);
  const LogSoftmax log_softmax = log_softmax_of(b, logits);
  ValueId loss = row_losses(b, node, rows, weight, log_softmax.value);
  const std::string& reduction = node.string("reduction");
  if (reduction != "none") loss = b.sum(loss, {0}, false);
  if (reduction == "mean") {
    const ValueId total_weight = b.sum(rows.weight, {0}, false);
    loss = b.div(loss, total_weight);
  }
  const ValueId narrow = b.cast(loss, dtype);
  const Shape row_shape = b.shape(rows.target);
  const ValueId log_sum_exp = b.reshape(log_softmax.log_sum_exp, row_shape);
  return {narrow, log_sum_exp};
}

/// Gradient of each row's loss, (N, 1): that of the result, over the total weight for a mean.
/// 0 where the row is ignored, also where the total weight is 0.
ValueId row_grads(Builder& b, const Node& node, const Rows& rows) {
  ValueId grad = widened(b, node.in(0));
  if (node.string("reduction") == "mean") {
    const ValueId total_weight = b.sum(rows.weight, {0}, false);
    grad = b.div(grad, total_weight);
  }
  const ValueId none = b.number(0, grad);
  const ValueId each = b.where(rows.active, grad, none);
  return as_column(b, each);
}

/// (1 - e) w_t at the target plus e / C w_c everywhere: the weighted target distribution, (N, C).
ValueId target_distribution(Builder& b, const Node& node, const Rows& rows,
                            std::optional<ValueId> weight, int64_t num_classes) {
  const double smoothing = node.real("label_smoothing");
  const ValueId column = as_column(b, rows.target);
  const DType index_dtype = b.dtype(column);
  const ValueId classes = b.op("arange", {}, {int64_t{0}, int64_t{1}, num_classes, index_dtype});
  const ValueId is_target = b.op("eq", {column, classes});
  ValueId at_target = as_column(b, rows.weight);
  if (smoothing > 0) {
    const ValueId kept = b.number(1 - smoothing, at_target);
    at_target = b.mul(at_target, kept);
  }
  const ValueId none = b.number(0, at_target);
  const ValueId sharp = b.where(is_target, at_target, none);
  if (smoothing <= 0) return sharp;
  const ValueId share = b.number(smoothing / static_cast<double>(num_classes), sharp);
  const ValueId smooth = weight ? b.mul(*weight, share) : share;
  return b.add(sharp, smooth);
}

// With q the weighted target distribution, the loss of a row is -sum_c q_c log p_c, so that
// dx_c = g (p_c sum_k q_k - q_c) (Bridle 1990, "Training stochastic model recognition algorithms
// as networks"). log_sum_exp is anchored to the logits, whose function it is.
std::vector<ValueId> cross_entropy_grad_decompose(Builder& b, const Node& node) {
  const DType dtype = b.dtype(node.in(1));
  const ValueId logits = widened(b, node.in(1));
  const auto weight = class_weights(b, node, kBackward);
  const Rows rows = describe_rows(b, node, kBackward, weight, logits);
  const ValueId grad = row_grads(b, node, rows);
  const ValueId given = as_column(b, node.in(3));
  const LogSoftmax log_softmax = log_softmax_of(b, logits);
  const ValueId log_sum_exp = anchored(b, log_softmax.log_sum_exp, given);
  const ValueId log_probability = b.sub(logits, log_sum_exp);
  const ValueId probability = b.op("exp", {log_probability});
  const int64_t num_classes = b.shape(logits)[1];
  const ValueId wanted = target_distribution(b, node, rows, weight, num_classes);
  const ValueId mass = b.sum(wanted, {1}, true);
  const ValueId expected = b.mul(probability, mass);
  const ValueId difference = b.sub(expected, wanted);
  const ValueId slope = b.mul(grad, difference);
  const ValueId active = as_column(b, rows.active);
  const ValueId none = b.number(0, slope);
  const ValueId dx = b.where(active, slope, none);
  return {b.cast(dx, dtype)};
}

// A maximum, exp and a sum for each logit.
constexpr int kLogitFlops = 32;

double logit_flops(const ir::Graph& graph, const Node& node) {
  return kLogitFlops * static_cast<double>(graph.type(node.in(1)).num_elements());
}

}  // namespace

std::vector<Op> loss_ops() {
  return {
      {.name = "cross_entropy",
       .doc = "cross-entropy of logits (N, C) against class indices (N,); also log-sum-exp (N,)",
       .min_inputs = 2,
       .max_inputs = 3,
       .attrs = {{"ignore_index", AttrType::kInt},
                 {"label_smoothing", AttrType::kFloat},
                 {"reduction", AttrType::kString}},
       .traits = ir::kPure,
       .infer = infer_cross_entropy,
       .vjp = cross_entropy_vjp,
       .decompose = cross_entropy_decompose,
       .flops = flops_per_input<kLogitFlops>,
       .vjp_reads_inputs = 0b111,
       .vjp_reads_outputs = 0b10,
       .nondifferentiable_outputs = 0b10,
       .autocast = ir::Autocast::kFloat32},
      {.name = "cross_entropy_grad",
       .doc = "gradient of cross_entropy by the logits",
       .min_inputs = 4,
       .max_inputs = 5,
       .attrs = {{"ignore_index", AttrType::kInt},
                 {"label_smoothing", AttrType::kFloat},
                 {"reduction", AttrType::kString}},
       .traits = ir::kPure | ir::kInPlace,
       .infer = infer_cross_entropy_grad,
       .decompose = cross_entropy_grad_decompose,
       .flops = logit_flops,
       .in_place_input = 1},
  };
}

}  // namespace lucid::ops

// Convolution (cross-correlation) and its two adjoints, over one to three spatial axes.
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

using ir::AttrSpec;
using ir::AttrType;
using ir::InferArgs;
using ir::Op;
using ir::ValueTypes;

/// Shapes that belong together, with the names that messages give them.
struct Operands {
  Shape input;   ///< (N, C, *spatial)
  Shape weight;  ///< (O, C / groups, *kernel)

  std::string text() const { return "input " + to_string(input) + ", weight " + to_string(weight); }
  int num_spatial() const { return input.rank() - 2; }
};

void check_ranks(const InferArgs& args, const Operands& operands) {
  const int rank = operands.input.rank();
  if (rank < 3 || rank > 5) {
    args.fail("input needs 1 to 3 spatial axes after batch and channels: " + operands.text() +
              "; add or merge axes with reshape");
  }
  if (operands.weight.rank() == rank) return;
  args.fail("input and weight need the same number of axes: " + operands.text() +
            "; give weight (out_channels, in_channels / groups, *kernel)");
}

void check_channels(const InferArgs& args, const Operands& operands) {
  const int64_t groups = args.integer("groups");
  const int64_t filters = operands.weight[0];
  if (groups < 1 || filters % groups != 0) {
    args.fail("groups must divide the " + std::to_string(filters) + " output channels: groups = " +
              std::to_string(groups) + ", " + operands.text() + "; choose a divisor");
  }
  const int64_t channels = operands.input[1];
  const int64_t each = operands.weight[1];
  if (channels % groups == 0 && channels / groups == each) return;
  args.fail("channels differ: input " + to_string(operands.input) + " has " +
            std::to_string(channels) + ", weight " + to_string(operands.weight) + " expects " +
            std::to_string(each) + " in each of " + std::to_string(groups) +
            (groups == 1 ? " group" : " groups") + "; channels must be weight's second size" +
            " times groups");
}

/// Output of the convolution of these operands: (N, O, *places of the window).
Shape output_shape(const InferArgs& args, const Operands& operands) {
  check_ranks(args, operands);
  const int num_spatial = operands.num_spatial();
  require_window(args, "stride", num_spatial, 1);
  require_window(args, "padding_low", num_spatial, 0);
  require_window(args, "padding_high", num_spatial, 0);
  require_window(args, "dilation", num_spatial, 1);
  check_channels(args, operands);
  std::vector<int64_t> sizes = {operands.input[0], operands.weight[0]};
  for (int i = 0; i < num_spatial; ++i) {
    const auto at = static_cast<size_t>(i);
    const Window window{.kernel = operands.weight[i + 2],
                        .stride = args.ints("stride")[at],
                        .padding_low = args.ints("padding_low")[at],
                        .padding_high = args.ints("padding_high")[at],
                        .dilation = args.ints("dilation")[at]};
    if (window.kernel < 1 || window.kernel > kMaxWindow) {
      args.fail("kernel size out of range: " + operands.text() + "; give weight a kernel of 1 to " +
                std::to_string(kMaxWindow));
    }
    const int64_t places = window.count(operands.input[i + 2]);
    if (places < 1) {
      args.fail("kernel is larger than the padded input: " + operands.text() + ", axis " +
                std::to_string(i + 2) + " has " +
                std::to_string(operands.input[i + 2] + window.padding_low + window.padding_high) +
                " with padding, the kernel covers " + std::to_string(window.extent()) +
                "; pad more or take a smaller kernel");
    }
    sizes.push_back(places);
  }
  return Shape(sizes);
}

/// Refuses a gradient (input 0) that is not shaped like the convolution's output.
void check_grad(const InferArgs& args, const Operands& operands) {
  const Shape expected = output_shape(args, operands);
  if (args.shape(0) == expected) return;
  args.fail("gradient does not fit: grad " + to_string(args.shape(0)) + ", " + operands.text() +
            "; give grad the shape " + to_string(expected));
}

ValueTypes infer_convolution(const InferArgs& args) {
  constexpr InputName kWeight{1, "weight"};
  constexpr InputName kBias{2, "bias"};
  require_floating(args, {{0, "input"}, kWeight, kBias});
  const Shape result = output_shape(args, {args.shape(0), args.shape(1)});
  require_shape(args, kBias, Shape{args.shape(1)[0]}, kWeight);
  return {{args.dtype(0), result}};
}

ValueTypes infer_input_grad(const InferArgs& args) {
  require_floating(args, {{0, "grad"}, {1, "weight"}});
  const Shape input = shape_attr(args, "input_shape");
  check_grad(args, {input, args.shape(1)});
  return {{args.dtype(0), input}};
}

ValueTypes infer_weight_grad(const InferArgs& args) {
  require_floating(args, {{0, "grad"}, {1, "input"}});
  const Shape weight = shape_attr(args, "weight_shape");
  check_grad(args, {args.shape(1), weight});
  return {{args.dtype(0), weight}};
}

/// The five attributes that all three operations end with.
Attrs geometry(const Node& node) {
  return {node.attr("stride"), node.attr("padding_low"), node.attr("padding_high"),
          node.attr("dilation"), node.attr("groups")};
}

ValueId convolve(Builder& b, const Node& like, ValueId input, ValueId weight) {
  return b.op("convolution", {input, weight, std::nullopt}, geometry(like));
}

ValueId input_grad(Builder& b, const Node& like, ValueId grad, ValueId weight,
                   const Shape& input_shape) {
  Attrs attrs = geometry(like);
  attrs.insert(attrs.begin(), to_ints(input_shape));
  return b.op("convolution_input_grad", {grad, weight}, std::move(attrs));
}

ValueId weight_grad(Builder& b, const Node& like, ValueId grad, ValueId input,
                    const Shape& weight_shape) {
  Attrs attrs = geometry(like);
  attrs.insert(attrs.begin(), to_ints(weight_shape));
  return b.op("convolution_weight_grad", {grad, input}, std::move(attrs));
}

/// Sum over batch and space: one number a channel.
ValueId bias_grad(Builder& b, ValueId grad) {
  Ints dims = {0};
  for (int axis = 2; axis < b.shape(grad).rank(); ++axis) dims.push_back(axis);
  return b.sum(grad, std::move(dims), false);
}

// The three operations are the three views of one trilinear form T(grad, x, w) = <grad, x * w>:
// each is T's derivative by one argument, so the gradients of each are the two others.
// Source: Dumoulin and Visin 2016, "A guide to convolution arithmetic", arXiv:1603.07285,
// section 4.
Grads convolution_vjp(Builder& b, const Node& node, const Grads& grads,
                      const std::vector<bool>& wanted) {
  Grads result = absent(node);
  const ValueId grad = *grads[0];
  const ValueId input = node.in(0);
  const ValueId weight = node.in(1);
  const Shape input_shape = b.shape(input);
  const Shape weight_shape = b.shape(weight);
  if (wants(b, node, wanted, 0)) result[0] = input_grad(b, node, grad, weight, input_shape);
  if (wants(b, node, wanted, 1)) result[1] = weight_grad(b, node, grad, input, weight_shape);
  if (wants(b, node, wanted, 2)) result[2] = bias_grad(b, grad);
  return result;
}

Grads input_grad_vjp(Builder& b, const Node& node, const Grads& grads,
                     const std::vector<bool>& wanted) {
  Grads result = absent(node);
  const ValueId tangent = *grads[0];  // shaped like the convolution's input
  const ValueId weight = node.in(1);
  const Shape weight_shape = b.shape(weight);
  if (wants(b, node, wanted, 0)) result[0] = convolve(b, node, tangent, weight);
  if (wants(b, node, wanted, 1)) {
    result[1] = weight_grad(b, node, node.in(0), tangent, weight_shape);
  }
  return result;
}

Grads weight_grad_vjp(Builder& b, const Node& node, const Grads& grads,
                      const std::vector<bool>& wanted) {
  Grads result = absent(node);
  const ValueId tangent = *grads[0];  // shaped like the convolution's weight
  const ValueId input = node.in(1);
  const Shape input_shape = b.shape(input);
  if (wants(b, node, wanted, 0)) result[0] = convolve(b, node, input, tangent);
  if (wants(b, node, wanted, 1)) {
    result[1] = input_grad(b, node, node.in(0), tangent, input_shape);
  }
  return result;
}

/// The schema that ends with the geometry; the adjoints put a shape in front.
std::vector<AttrSpec> with_geometry(std::vector<AttrSpec> front) {
  front.insert(front.end(), {{"stride", AttrType::kInts},
                             {"padding_low", AttrType::kInts},
                             {"padding_high", AttrType::kInts},
                             {"dilation", AttrType::kInts},
                             {"groups", AttrType::kInt}});
  return front;
}

// Each element of the convolution's output is one product of a filter's length; the adjoints do
// the same multiplications and sum them otherwise.
double convolution_flops(double num_outputs, const Shape& weight) {
  if (weight.num_elements() == 0) return 0;
  return 2.0 * num_outputs * static_cast<double>(weight.num_elements() / weight[0]);
}

double forward_flops(const ir::Graph& graph, const Node& node) {
  return convolution_flops(flops_per_output<1>(graph, node), graph.type(node.in(1)).shape);
}

double input_grad_flops(const ir::Graph& graph, const Node& node) {
  return convolution_flops(flops_per_input<1>(graph, node), graph.type(node.in(1)).shape);
}

double weight_grad_flops(const ir::Graph& graph, const Node& node) {
  const Shape& weight = graph.type(node.outputs.front()).shape;
  return convolution_flops(flops_per_input<1>(graph, node), weight);
}

}  // namespace

std::vector<Op> convolution_ops() {
  return {
      {.name = "convolution",
       .doc = "cross-correlation of x (N, C, *spatial) with w (O, C / groups, *kernel), plus bias",
       .min_inputs = 2,
       .max_inputs = 3,
       .attrs = with_geometry({}),
       .traits = ir::kPure,
       .infer = infer_convolution,
       .vjp = convolution_vjp,
       .flops = forward_flops,
       .vjp_reads_inputs = 0b011,
       .vjp_reads_outputs = 0,
       .autocast = ir::Autocast::kLow},
      {.name = "convolution_input_grad",
       .doc = "gradient of convolution by its input; transposed convolution",
       .min_inputs = 2,
       .max_inputs = 2,
       .attrs = with_geometry({{"input_shape", AttrType::kInts}}),
       .traits = ir::kPure,
       .infer = infer_input_grad,
       .vjp = input_grad_vjp,
       .flops = input_grad_flops,
       .vjp_reads_outputs = 0,
       .autocast = ir::Autocast::kLow},
      {.name = "convolution_weight_grad",
       .doc = "gradient of convolution by its weight",
       .min_inputs = 2,
       .max_inputs = 2,
       .attrs = with_geometry({{"weight_shape", AttrType::kInts}}),
       .traits = ir::kPure,
       .infer = infer_weight_grad,
       .vjp = weight_grad_vjp,
       .flops = weight_grad_flops,
       .vjp_reads_outputs = 0},
  };
}

}  // namespace lucid::ops

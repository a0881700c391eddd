// Maximum and average pooling and their gradients, over one to three spatial axes.
#include <algorithm>
#include <limits>
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

/// Refuses other inputs than (N, C, *spatial) with one kernel size for each spatial axis.
void check_ranks(const InferArgs& args, const Shape& input) {
  const auto num_spatial = args.ints("kernel").size();
  const bool fits =
      num_spatial >= 1 && num_spatial <= 3 && static_cast<size_t>(input.rank()) == num_spatial + 2;
  if (fits) return;
  args.fail("kernel does not fit input: kernel " + ir::to_string(args.ints("kernel")) + ", input " +
            to_string(input) + "; give (batch, channels, *spatial) with 1 to 3 " +
            "spatial axes and one kernel size for each");
}

void check_attributes(const InferArgs& args, int num_spatial) {
  require_window(args, "kernel", num_spatial, 1);
  require_window(args, "stride", num_spatial, 1);
  require_window(args, "padding", num_spatial, 0);
}

/// The window along spatial axis `at`, its padding at most half of its extent: then every window
/// of a kernel without dilation holds an element.
Window window_at(const InferArgs& args, size_t at, int64_t dilation) {
  const int64_t padding = args.ints("padding")[at];
  const Window window{.kernel = args.ints("kernel")[at],
                      .stride = args.ints("stride")[at],
                      .padding_low = padding,
                      .padding_high = padding,
                      .dilation = dilation,
                      .ceil_mode = args.flag("ceil_mode")};
  if (padding <= window.extent() / 2) return window;
  args.fail(ErrorKind::kUser, "padding is more than half the kernel: padding " +
                                  std::to_string(padding) + ", kernel extent " +
                                  std::to_string(window.extent()) +
                                  "; pad the input with pad first");
}

/// True if each of the window's `count` places has a tap inside an axis of `size` elements.
bool always_meets_input(const Window& window, int64_t count, int64_t size) {
  if (window.dilation == 1) return true;
  for (int64_t place = 0; place < count; ++place) {
    const int64_t start = place * window.stride - window.padding_low;
    const int64_t skipped = start < 0 ? (-start + window.dilation - 1) / window.dilation : 0;
    if (skipped >= window.kernel || start + skipped * window.dilation >= size) return false;
  }
  return true;
}

int64_t places(const InferArgs& args, const Window& window, const Shape& input, int axis) {
  const int64_t size = input[axis];
  const int64_t count = size == 0 ? 0 : window.count(size);
  if (count < 1) {
    args.fail("kernel is larger than the padded input: input " + to_string(input) + ", axis " +
              std::to_string(axis) + " has " + std::to_string(size + 2 * window.padding_low) +
              " with padding, the kernel covers " + std::to_string(window.extent()) +
              "; take a smaller kernel");
  }
  if (!always_meets_input(window, count, size)) {
    args.fail("a window lies in the padding only: input " + to_string(input) + ", axis " +
              std::to_string(axis) + ", padding " + std::to_string(window.padding_low) +
              ", dilation " + std::to_string(window.dilation) + "; pad or dilate less");
  }
  return count;
}

/// (N, C, *places) of pooling an input of that shape; no dilation means 1 everywhere.
Shape pooled_shape(const InferArgs& args, const Shape& input, const Ints& dilation) {
  std::vector<int64_t> sizes = {input[0], input[1]};
  for (size_t at = 0; at + 2 < static_cast<size_t>(input.rank()); ++at) {
    const Window window = window_at(args, at, dilation.empty() ? 1 : dilation[at]);
    sizes.push_back(places(args, window, input, static_cast<int>(at) + 2));
  }
  return Shape(sizes);
}

/// Elements of one channel's plane.
int64_t plane_size(const Shape& shape) { return product(shape.sizes().subspan(2)); }

/// Indices of maximum pooling are int32, so a plane has at most 2^31-1 elements.
void check_plane(const InferArgs& args, const Shape& input) {
  const bool empty = input.num_elements() == 0;
  if (empty || plane_size(input) <= std::numeric_limits<int32_t>::max()) return;
  args.fail(ErrorKind::kUnsupported,
            "plane has 2^31 elements or more: input " + to_string(input) + "; split it");
}

ValueTypes infer_max_pool(const InferArgs& args) {
  require_floating(args, {{0, "input"}});
  const Shape& input = args.shape(0);
  check_ranks(args, input);
  check_attributes(args, input.rank() - 2);
  require_window(args, "dilation", input.rank() - 2, 1);
  check_plane(args, input);
  const Shape result = pooled_shape(args, input, args.ints("dilation"));
  return {{args.dtype(0), result}, {DType::kInt32, result}};
}

ValueTypes infer_max_pool_grad(const InferArgs& args) {
  constexpr InputName kGrad{0, "grad"};
  constexpr InputName kIndices{1, "indices"};
  require_floating(args, {kGrad});
  require_dtype(args, kIndices, DType::kInt32);
  require_shape(args, kIndices, args.shape(0), kGrad);
  const Shape input = shape_attr(args, "input_shape");
  const Shape& grad = args.shape(0);
  const bool fits = grad.rank() == input.rank() && grad.rank() >= 3 && grad.rank() <= 5 &&
                    grad[0] == input[0] && grad[1] == input[1];
  if (!fits) {
    args.fail("grad does not fit the pooled input: grad " + to_string(grad) + ", input " +
              to_string(input) + "; batch, channels and number of axes must agree");
  }
  return {{args.dtype(0), input}};
}

ValueTypes infer_avg_pool(const InferArgs& args) {
  require_floating(args, {{0, "input"}});
  const Shape& input = args.shape(0);
  check_ranks(args, input);
  check_attributes(args, input.rank() - 2);
  return {{args.dtype(0), pooled_shape(args, input, {})}};
}

ValueTypes infer_avg_pool_grad(const InferArgs& args) {
  require_floating(args, {{0, "grad"}});
  const Shape input = shape_attr(args, "input_shape");
  check_ranks(args, input);
  check_attributes(args, input.rank() - 2);
  const Shape expected = pooled_shape(args, input, {});
  if (args.shape(0) != expected) {
    args.fail("grad does not fit the pooled input: grad " + to_string(args.shape(0)) + ", input " +
              to_string(input) + "; give grad the shape " + to_string(expected));
  }
  return {{args.dtype(0), input}};
}

// The maximum passes its gradient to the element that it came from.
Grads max_pool_vjp(Builder& b, const Node& node, const Grads& grads,
                   const std::vector<bool>& wanted) {
  Grads result = absent(node);
  if (!grads[0] || !wants(b, node, wanted, 0)) return result;
  const Ints input_shape = to_ints(b.shape(node.in(0)));
  result[0] = b.op("max_pool_grad", {*grads[0], node.outputs[1]}, {input_shape});
  return result;
}

/// (N, C, *spatial) as (N, C, plane).
ValueId with_flat_plane(Builder& b, ValueId value) {
  const Shape shape = b.shape(value);
  return b.reshape(value, Shape{shape[0], shape[1], plane_size(shape)});
}

// Scattering by indices is linear; its adjoint reads the same places.
Grads max_pool_grad_vjp(Builder& b, const Node& node, const Grads& grads,
                        const std::vector<bool>& wanted) {
  Grads result = absent(node);
  if (!wants(b, node, wanted, 0)) return result;
  const Shape pooled = b.shape(node.in(0));
  const ValueId plane = with_flat_plane(b, *grads[0]);
  const ValueId indices = with_flat_plane(b, node.in(1));
  const ValueId read = b.op("gather", {plane, indices}, {int64_t{2}});
  result[0] = b.reshape(read, pooled);
  return result;
}

/// The attributes that avg_pool and avg_pool_grad share.
Attrs average_attrs(const Node& node) {
  return {node.attr("kernel"),
          node.attr("stride"),
          node.attr("padding"),
          node.attr("ceil_mode"),
          node.attr("count_include_pad"),
          node.attr("divisor")};
}

Grads avg_pool_vjp(Builder& b, const Node& node, const Grads& grads,
                   const std::vector<bool>& wanted) {
  Grads result = absent(node);
  if (!wants(b, node, wanted, 0)) return result;
  Attrs attrs = average_attrs(node);
  attrs.insert(attrs.begin(), to_ints(b.shape(node.in(0))));
  result[0] = b.op("avg_pool_grad", {*grads[0]}, std::move(attrs));
  return result;
}

Grads avg_pool_grad_vjp(Builder& b, const Node& node, const Grads& grads,
                        const std::vector<bool>& wanted) {
  Grads result = absent(node);
  if (!wants(b, node, wanted, 0)) return result;
  result[0] = b.op("avg_pool", {*grads[0]}, average_attrs(node));
  return result;
}

/// The schema of averaging; the gradient puts the input's shape in front.
std::vector<AttrSpec> with_average_attrs(std::vector<AttrSpec> front) {
  front.insert(front.end(), {{"kernel", AttrType::kInts},
                             {"stride", AttrType::kInts},
                             {"padding", AttrType::kInts},
                             {"ceil_mode", AttrType::kBool},
                             {"count_include_pad", AttrType::kBool},
                             {"divisor", AttrType::kInt}});
  return front;
}

// The element of a tap lies apart from that of the next. On the machine of bench/RESULTS.md a tap
// takes the time of 20 operations of a product, and of 50 to 150 where windows overlap.
constexpr double kEffortPerTap = 24;

// One comparison or addition for each tap of each window.
double window_flops(const ir::Graph& graph, const Node& node) {
  return static_cast<double>(product(node.ints("kernel"))) * flops_per_output<1>(graph, node);
}

double window_grad_flops(const ir::Graph& graph, const Node& node) {
  return static_cast<double>(product(node.ints("kernel"))) * flops_per_input<1>(graph, node);
}

}  // namespace

std::vector<Op> pooling_ops() {
  return {
      {.name = "max_pool",
       .doc = "maximum of each window, and its flat position in the plane (the first of equals)",
       .attrs = {{"kernel", AttrType::kInts},
                 {"stride", AttrType::kInts},
                 {"padding", AttrType::kInts},
                 {"dilation", AttrType::kInts},
                 {"ceil_mode", AttrType::kBool}},
       .traits = ir::kPure,
       .infer = infer_max_pool,
       .vjp = max_pool_vjp,
       .flops = window_flops,
       .effort_per_flop = kEffortPerTap,
       .vjp_reads_inputs = 0,
       .vjp_reads_outputs = 0b10,
       .nondifferentiable_outputs = 0b10},
      {.name = "max_pool_grad",
       .doc = "zeros with grad added at the indices of max_pool",
       .min_inputs = 2,
       .max_inputs = 2,
       .attrs = {{"input_shape", AttrType::kInts}},
       .traits = ir::kPure,
       .infer = infer_max_pool_grad,
       .vjp = max_pool_grad_vjp,
       .flops = flops_per_input<1>,
       .vjp_reads_inputs = 0b10,
       .vjp_reads_outputs = 0},
      {.name = "avg_pool",
       .doc = "sum of each window over its size, or over divisor unless that is 0",
       .attrs = with_average_attrs({}),
       .traits = ir::kPure,
       .infer = infer_avg_pool,
       .vjp = avg_pool_vjp,
       .flops = window_flops,
       .effort_per_flop = kEffortPerTap,
       .vjp_reads_inputs = 0,
       .vjp_reads_outputs = 0},
      {.name = "avg_pool_grad",
       .doc = "gradient of avg_pool by its input",
       .attrs = with_average_attrs({{"input_shape", AttrType::kInts}}),
       .traits = ir::kPure,
       .infer = infer_avg_pool_grad,
       .vjp = avg_pool_grad_vjp,
       .flops = window_grad_flops,
       .effort_per_flop = kEffortPerTap,
       .vjp_reads_inputs = 0,
       .vjp_reads_outputs = 0},
  };
}

}  // namespace lucid::ops

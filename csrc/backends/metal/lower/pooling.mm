// Pooling and its gradients. Averages are sums of windows over divisors that the host counts; three
// spatial axes are averaged in two steps.
#include <algorithm>
#include <array>
#include <vector>

#include "backends/metal/lower/families.h"

namespace lucid::metal {
namespace {

/// A window along one axis: `high` covers what the last place needs.
struct Axis {
  int64_t size = 1;
  int64_t out = 1;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t low = 0;
  int64_t dilation = 1;

  int64_t high() const {
    const int64_t end = (out - 1) * stride + dilation * (kernel - 1) + 1;
    return std::max<int64_t>(end - size - low, 0);
  }
  int64_t padded() const { return low + size + high(); }
};

/// Depth, height and width; missing axes are of size and kernel 1.
using Axes = std::array<Axis, 3>;

Axes axes_of(const Node& node, const Shape& input, const Shape& output) {
  Axes axes;
  const auto num_spatial = static_cast<size_t>(input.rank()) - 2;
  const bool has_dilation = node.op->attr_index("dilation") >= 0;
  for (size_t i = 0; i < num_spatial; ++i) {
    axes[3 - num_spatial + i] = {.size = input[static_cast<int>(i) + 2],
                                 .out = output[static_cast<int>(i) + 2],
                                 .kernel = node.ints("kernel")[i],
                                 .stride = node.ints("stride")[i],
                                 .low = node.ints("padding")[i],
                                 .dilation = has_dilation ? node.ints("dilation")[i] : 1};
  }
  return axes;
}

/// The window over (y, x) of (N, C, H, W), padded by Metal or not. Paddings stand in pairs, before
/// and after each axis.
MPSGraphPooling4DOpDescriptor* descriptor(const Axis& y, const Axis& x, bool pads) {
  const Ints padding = pads ? Ints{0, 0, 0, 0, y.low, y.high(), x.low, x.high()} : Ints(8, 0);
  return [MPSGraphPooling4DOpDescriptor
      descriptorWithKernelSizes:mps_numbers(Ints{1, 1, y.kernel, x.kernel})
                        strides:mps_numbers(Ints{1, 1, y.stride, x.stride})
                  dilationRates:mps_numbers(Ints{1, 1, y.dilation, x.dilation})
                  paddingValues:mps_numbers(padding)
                   paddingStyle:MPSGraphPaddingStyleExplicit];
}

Tensors lower_max_pool(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const Shape& shape = b.in_type(node, 0).shape;
  const Shape& out = b.out_type(node).shape;
  if (shape.rank() == 5) b.refuse(node, "no metal lowering for three spatial axes");
  const Axes axes = axes_of(node, shape, out);
  MPSGraphPooling4DOpDescriptor* window = descriptor(axes[1], axes[2], true);
  [window setReturnIndicesMode:MPSGraphPoolingReturnIndicesGlobalFlatten2D];
  [window setReturnIndicesDataType:MPSDataTypeInt32];
  const Shape flat{shape[0], shape[1], axes[1].size, axes[2].size};
  NSArray<MPSGraphTensor*>* found =
      [c.graph() maxPooling4DReturnIndicesWithSourceTensor:c.reshape(b.in(node, 0), flat)
                                                descriptor:window
                                                      name:nil];
  b.bound(node.outputs[1], axes[1].size * axes[2].size);
  return {c.reshape([found objectAtIndex:0], out), c.reshape([found objectAtIndex:1], out)};
}

Tensors lower_max_pool_grad(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const ValueType& out = b.out_type(node);
  const Shape& shape = b.in_type(node, 0).shape;
  const auto planes = [](const Shape& full) {
    return Shape{full[0] * full[1], full.num_elements() / (full[0] * full[1])};
  };
  const Shape flat = planes(out.shape);
  Tensor zeros = c.filled(0, flat, MPSDataTypeFloat32);
  Tensor index = c.reshape(b.indices(node, 1, flat[1]), planes(shape));
  Tensor grad = c.cast(c.reshape(b.in(node, 0), planes(shape)), MPSDataTypeFloat32);
  Tensor sums = [c.graph() scatterAlongAxis:1
                             withDataTensor:zeros
                              updatesTensor:grad
                              indicesTensor:index
                                       mode:MPSGraphScatterModeAdd
                                       name:nil];
  return {c.reshape(c.cast(sums, mps_type(out.dtype)), out.shape)};
}

/// One step of averaging: planes (count, 1, H, W) by a window over height and width.
struct Step {
  int64_t count;
  Axis y;
  Axis x;

  Shape in() const { return Shape{count, 1, y.size, x.size}; }
  Shape padded() const { return Shape{count, 1, y.padded(), x.padded()}; }
  Shape out() const { return Shape{count, 1, y.out, x.out}; }
  bool is_padded() const { return padded() != in(); }
};

/// The steps of averaging (N, C, *spatial): over height and width, then over depth.
std::vector<Step> steps_of(const Shape& shape, const Axes& axes) {
  const int64_t planes = shape[0] * shape[1];
  std::vector<Step> steps = {{planes * axes[0].size, axes[1], axes[2]}};
  if (shape.rank() == 5) {
    const int64_t rest = axes[1].out * axes[2].out;
    steps.push_back({planes, axes[0], {.size = rest, .out = rest}});
  }
  return steps;
}

Tensor averaged(const Calc& c, Tensor x, const Step& step) {
  Tensor planes = c.reshape(x, step.in());
  if (step.is_padded()) {
    planes = c.pad(planes, Ints{0, 0, step.y.low, step.x.low},
                   Ints{0, 0, step.y.high(), step.x.high()}, 0);
  }
  return [c.graph() avgPooling4DWithSourceTensor:planes
                                      descriptor:descriptor(step.y, step.x, false)
                                            name:nil];
}

Tensor averaged_grad(const Calc& c, Tensor grad, const Step& step) {
  Tensor source = c.broadcast(c.number(0, MPSDataTypeFloat32), step.padded());
  Tensor dx = [c.graph() avgPooling4DGradientWithGradientTensor:c.reshape(grad, step.out())
                                                   sourceTensor:source
                                                     descriptor:descriptor(step.y, step.x, false)
                                                           name:nil];
  if (!step.is_padded()) return dx;
  const Ints starts = {0, 0, step.y.low, step.x.low};
  const Ints ends = {step.count, 1, step.y.low + step.y.size, step.x.low + step.x.size};
  return c.slice(dx, starts, ends, Ints{1, 1, 1, 1});
}

/// Elements that the window at each place of an axis is divided by.
std::vector<double> divisors(const Axis& axis, bool count_include_pad) {
  std::vector<double> result;
  for (int64_t place = 0; place < axis.out; ++place) {
    const int64_t start = place * axis.stride - axis.low;
    const int64_t end = std::min(start + axis.kernel, axis.size + axis.low);
    const int64_t inside = std::min(end, axis.size) - std::max<int64_t>(start, 0);
    result.push_back(static_cast<double>(count_include_pad ? end - start : inside));
  }
  return result;
}

/// What a mean over whole windows is multiplied with: elements of the window over the divisor, in
/// the shape (1, 1, *places) of the output.
Tensor correction(const Calc& c, const Node& node, const Axes& axes, const Shape& out) {
  const int64_t given = node.integer("divisor");
  const bool include = node.flag("count_include_pad");
  const auto whole = static_cast<double>(axes[0].kernel * axes[1].kernel * axes[2].kernel);
  std::vector<float> factors;
  for (const double depth : divisors(axes[0], include)) {
    for (const double height : divisors(axes[1], include)) {
      for (const double width : divisors(axes[2], include)) {
        const double divisor = given != 0 ? static_cast<double>(given) : depth * height * width;
        factors.push_back(static_cast<float>(whole / divisor));
      }
    }
  }
  return c.data(factors.data(), static_cast<int64_t>(factors.size() * sizeof(float)),
                out.with(0, 1).with(1, 1), DType::kFloat32);
}

Tensors lower_avg_pool(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const Shape& shape = b.in_type(node, 0).shape;
  const ValueType& out = b.out_type(node);
  const Axes axes = axes_of(node, shape, out.shape);
  Tensor x = c.cast(b.in(node, 0), MPSDataTypeFloat32);
  for (const Step& step : steps_of(shape, axes)) x = averaged(c, x, step);
  Tensor mean = c.mul(c.reshape(x, out.shape), correction(c, node, axes, out.shape));
  return {c.cast(mean, mps_type(out.dtype))};
}

Tensors lower_avg_pool_grad(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const ValueType& out = b.out_type(node);  // of the input's shape
  const Shape& shape = b.in_type(node, 0).shape;
  const Axes axes = axes_of(node, out.shape, shape);
  Tensor grad = c.cast(b.in(node, 0), MPSDataTypeFloat32);
  grad = c.mul(grad, correction(c, node, axes, shape));
  std::vector<Step> steps = steps_of(out.shape, axes);
  std::ranges::reverse(steps);
  for (const Step& step : steps) grad = averaged_grad(c, grad, step);
  return {c.reshape(c.cast(grad, mps_type(out.dtype)), out.shape)};
}

const LoweringRow kRows[] = {
    {"max_pool", lower_max_pool},
    {"max_pool_grad", lower_max_pool_grad},
    {"avg_pool", lower_avg_pool},
    {"avg_pool_grad", lower_avg_pool_grad},
};

}  // namespace

std::span<const LoweringRow> pooling_lowerings() { return kRows; }

}  // namespace lucid::metal

// Convolution and its two adjoints over one to three spatial axes. One axis gets a height of 1;
// three axes run in the layout NDHWC (NCDHW was seen to be wrong: PyTorch issue 197114).
#include <algorithm>
#include <array>

#include "backends/metal/lower/families.h"

namespace lucid::metal {
namespace {

// Weight gradients of 65536 images and more are wrong: a counter of 16 bits (PyTorch 96225).
constexpr int64_t kMaxBatch = 65535;
// Wrong above that (PyTorch 129207, 142836).
constexpr int64_t kMaxChannels = 65536;

/// Sizes of the window along depth, height and width; missing axes are 1 and 0.
struct Geometry {
  std::array<NSUInteger, 3> stride{1, 1, 1};
  std::array<NSUInteger, 3> dilation{1, 1, 1};
  std::array<NSUInteger, 3> low{0, 0, 0};
  std::array<NSUInteger, 3> high{0, 0, 0};
  NSUInteger groups = 1;
  size_t num_spatial = 2;

  explicit Geometry(const Node& node) : groups(mps_size(node.integer("groups"))) {
    const Ints& strides = node.ints("stride");
    num_spatial = strides.size();
    for (size_t i = 0; i < num_spatial; ++i) {
      const size_t at = 3 - num_spatial + i;
      stride[at] = mps_size(strides[i]);
      dilation[at] = mps_size(node.ints("dilation")[i]);
      low[at] = mps_size(node.ints("padding_low")[i]);
      high[at] = mps_size(node.ints("padding_high")[i]);
    }
  }
  bool is_3d() const { return num_spatial == 3; }
};

MPSGraphConvolution2DOpDescriptor* descriptor_2d(const Geometry& g) {
  return
      [MPSGraphConvolution2DOpDescriptor descriptorWithStrideInX:g.stride[2]
                                                       strideInY:g.stride[1]
                                                 dilationRateInX:g.dilation[2]
                                                 dilationRateInY:g.dilation[1]
                                                          groups:g.groups
                                                     paddingLeft:g.low[2]
                                                    paddingRight:g.high[2]
                                                      paddingTop:g.low[1]
                                                   paddingBottom:g.high[1]
                                                    paddingStyle:MPSGraphPaddingStyleExplicit
                                                      dataLayout:MPSGraphTensorNamedDataLayoutNCHW
                                                   weightsLayout:MPSGraphTensorNamedDataLayoutOIHW];
}

MPSGraphConvolution3DOpDescriptor* descriptor_3d(const Geometry& g) {
  return [MPSGraphConvolution3DOpDescriptor
      descriptorWithStrideInX:g.stride[2]
                    strideInY:g.stride[1]
                    strideInZ:g.stride[0]
              dilationRateInX:g.dilation[2]
              dilationRateInY:g.dilation[1]
              dilationRateInZ:g.dilation[0]
                       groups:g.groups
                  paddingLeft:g.low[2]
                 paddingRight:g.high[2]
                   paddingTop:g.low[1]
                paddingBottom:g.high[1]
                 paddingFront:g.low[0]
                  paddingBack:g.high[0]
                 paddingStyle:MPSGraphPaddingStyleExplicit
                   dataLayout:MPSGraphTensorNamedDataLayoutNDHWC
                weightsLayout:MPSGraphTensorNamedDataLayoutOIDHW];
}

/// (N, C, L) as (N, C, 1, L).
Shape with_height(const Shape& shape) {
  return shape.rank() == 3 ? Shape{shape[0], shape[1], 1, shape[2]} : shape;
}

/// (N, C, D, H, W) as (N, D, H, W, C).
Shape channels_last(const Shape& shape) {
  return Shape{shape[0], shape[2], shape[3], shape[4], shape[1]};
}

/// Data in the layout that runs.
Tensor laid_out(const Calc& c, Tensor x, const Shape& shape) {
  if (shape.rank() == 5) return c.permute(x, Ints{0, 2, 3, 4, 1});
  return shape.rank() == 3 ? c.reshape(x, with_height(shape)) : x;
}

Tensor weights_laid_out(const Calc& c, Tensor w, const Shape& shape) {
  return shape.rank() == 3 ? c.reshape(w, with_height(shape)) : w;
}

/// The result in the node's own layout.
Tensor given_back(const Calc& c, Tensor y, const Shape& shape) {
  if (shape.rank() == 5) return c.permute(y, Ints{0, 4, 1, 2, 3});
  return shape.rank() == 3 ? c.reshape(y, shape) : y;
}

void check_channels(Lowering& b, const Node& node, const Shape& input, const Shape& output) {
  if (std::max(input[1], output[1]) <= kMaxChannels) return;
  b.refuse(node, "more than 65536 channels, which Metal computes wrongly: " + to_string(input) +
                     " to " + to_string(output));
}

Tensors lower_convolution(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const Geometry g(node);
  const Shape& shape = b.in_type(node, 0).shape;
  const Shape& out_shape = b.out_type(node).shape;
  check_channels(b, node, shape, out_shape);
  Tensor x = laid_out(c, b.in(node, 0), shape);
  Tensor w = weights_laid_out(c, b.in(node, 1), b.in_type(node, 1).shape);
  Tensor y = g.is_3d() ? [c.graph() convolution3DWithSourceTensor:x
                                                    weightsTensor:w
                                                       descriptor:descriptor_3d(g)
                                                             name:nil]
                       : [c.graph() convolution2DWithSourceTensor:x
                                                    weightsTensor:w
                                                       descriptor:descriptor_2d(g)
                                                             name:nil];
  y = given_back(c, y, out_shape);
  if (node.has(2)) {
    std::vector<int64_t> sizes(static_cast<size_t>(out_shape.rank()), 1);
    sizes[1] = out_shape[1];
    y = c.add(y, c.reshape(b.in(node, 2), Shape(sizes)));
  }
  return {y};
}

Tensors lower_input_grad(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const Geometry g(node);
  const Shape& shape = b.in_type(node, 0).shape;
  const Shape& input_shape = b.out_type(node).shape;
  check_channels(b, node, input_shape, shape);
  Tensor grad = laid_out(c, b.in(node, 0), shape);
  Tensor w = weights_laid_out(c, b.in(node, 1), b.in_type(node, 1).shape);
  Tensor dx = nil;
  if (g.is_3d()) {
    dx = [c.graph()
        convolution3DDataGradientWithIncomingGradientTensor:grad
                                              weightsTensor:w
                                                outputShape:mps_shape(channels_last(input_shape))
                               forwardConvolutionDescriptor:descriptor_3d(g)
                                                       name:nil];
  } else {
    dx = [c.graph()
        convolution2DDataGradientWithIncomingGradientTensor:grad
                                              weightsTensor:w
                                                outputShape:mps_shape(with_height(input_shape))
                               forwardConvolutionDescriptor:descriptor_2d(g)
                                                       name:nil];
  }
  return {given_back(c, dx, input_shape)};
}

/// The gradient of one slice of the batch.
Tensor weight_grad(const Calc& c, const Geometry& g, Tensor grad, Tensor x, const Shape& weight) {
  if (g.is_3d()) {
    return [c.graph() convolution3DWeightsGradientWithIncomingGradientTensor:grad
                                                                sourceTensor:x
                                                                 outputShape:mps_shape(weight)
                                                forwardConvolutionDescriptor:descriptor_3d(g)
                                                                        name:nil];
  }
  return [c.graph()
      convolution2DWeightsGradientWithIncomingGradientTensor:grad
                                                sourceTensor:x
                                                 outputShape:mps_shape(with_height(weight))
                                forwardConvolutionDescriptor:descriptor_2d(g)
                                                        name:nil];
}

/// Images [start, end) of a tensor whose laid-out shape is `shape`.
Tensor images(const Calc& c, Tensor x, const Shape& shape, int64_t start, int64_t end) {
  Ints starts(static_cast<size_t>(shape.rank()), 0);
  Ints ends(shape.sizes().begin(), shape.sizes().end());
  starts[0] = start;
  ends[0] = end;
  return c.slice(x, starts, ends, Ints(static_cast<size_t>(shape.rank()), 1));
}

Tensors lower_weight_grad(Lowering& b, const Node& node) {
  const Calc& c = b.calc();
  const Geometry g(node);
  const Shape& shape = b.in_type(node, 0).shape;
  const Shape& input_shape = b.in_type(node, 1).shape;
  const Shape& weight = b.out_type(node).shape;
  check_channels(b, node, input_shape, shape);
  Tensor grad = laid_out(c, b.in(node, 0), shape);
  Tensor x = laid_out(c, b.in(node, 1), input_shape);
  const Shape grad_sizes = g.is_3d() ? channels_last(shape) : with_height(shape);
  const Shape x_sizes = g.is_3d() ? channels_last(input_shape) : with_height(input_shape);
  Tensor total = nil;
  for (int64_t start = 0; start < shape[0]; start += kMaxBatch) {
    const int64_t end = std::min(start + kMaxBatch, shape[0]);
    const bool is_all = shape[0] <= kMaxBatch;
    Tensor grad_part = is_all ? grad : images(c, grad, grad_sizes, start, end);
    Tensor x_part = is_all ? x : images(c, x, x_sizes, start, end);
    Tensor part = weight_grad(c, g, grad_part, x_part, weight);
    total = total == nil ? part : c.add(total, part);
  }
  return {weight.rank() == 3 ? c.reshape(total, weight) : total};
}

const LoweringRow kRows[] = {
    {"convolution", lower_convolution},
    {"convolution_input_grad", lower_input_grad},
    {"convolution_weight_grad", lower_weight_grad},
};

}  // namespace

std::span<const LoweringRow> convolution_lowerings() { return kRows; }

}  // namespace lucid::metal

// Kernels of convolution and its two gradients.
#include "backends/cpu/engine/convolution.h"

#include <memory>
#include <utility>

#include "backends/cpu/kernels/families.h"
#include "backends/cpu/kernels/half_operands.h"

namespace lucid::cpu {
namespace {

/// The convolution that a node belongs to, from the shapes of x (N, C, *input), w (O, C / groups,
/// *kernel) and y (N, O, *output). One or two spatial axes are the last of three.
ConvolutionSpec convolution_spec(const NodeView& view, const Shape& x, const Shape& w,
                                 const Shape& y) {
  ConvolutionSpec spec{.batch = x[0],
                       .channels = x[1],
                       .filters = w[0],
                       .groups = view.node.integer("groups"),
                       .axes = {},
                       .dtype = view.input(0).dtype};
  if (is_half(spec.dtype)) spec.dtype = DType::kFloat32;
  const int num_spatial = x.rank() - 2;
  for (int i = 0; i < num_spatial; ++i) {
    const auto at = static_cast<size_t>(i);
    spec.axes[static_cast<size_t>(3 - num_spatial + i)] = {
        .input = x[i + 2],
        .kernel = w[i + 2],
        .output = y[i + 2],
        .stride = view.node.ints("stride")[at],
        .padding = view.node.ints("padding_low")[at],
        .dilation = view.node.ints("dilation")[at]};
  }
  return spec;
}

class ConvolutionKernel final : public Kernel {
 public:
  ConvolutionKernel(std::unique_ptr<Convolution> convolution, bool bias)
      : convolution_(std::move(convolution)), bias_(bias) {}

  size_t scratch_bytes() const override { return convolution_->scratch_bytes(); }
  void run(const RunContext& context) const override {
    convolution_->run(context.inputs[0], context.inputs[1], bias_ ? context.inputs[2] : nullptr,
                      context.outputs[0], context.scratch);
  }

 private:
  std::unique_ptr<Convolution> convolution_;
  bool bias_;
};

std::unique_ptr<Kernel> make_kernel_of(const NodeView& view,
                                       std::unique_ptr<Convolution> convolution, bool bias) {
  auto kernel = std::make_unique<ConvolutionKernel>(std::move(convolution), bias);
  if (!is_half(view.input(0).dtype)) return kernel;
  return with_half_operands(view, std::move(kernel));
}

std::unique_ptr<Kernel> make_forward(const NodeView& view) {
  const ConvolutionSpec spec =
      convolution_spec(view, view.input(0).shape, view.input(1).shape, view.output(0).shape);
  return make_kernel_of(view, make_convolution(spec), view.has(2));
}

std::unique_ptr<Kernel> make_input_grad(const NodeView& view) {
  const ConvolutionSpec spec =
      convolution_spec(view, view.output(0).shape, view.input(1).shape, view.input(0).shape);
  return make_kernel_of(view, make_convolution_input_grad(spec), false);
}

std::unique_ptr<Kernel> make_weight_grad(const NodeView& view) {
  const ConvolutionSpec spec =
      convolution_spec(view, view.input(1).shape, view.output(0).shape, view.input(0).shape);
  return make_kernel_of(view, make_convolution_weight_grad(spec), false);
}

constexpr KernelRow kRows[] = {{"convolution", make_forward},
                               {"convolution_input_grad", make_input_grad},
                               {"convolution_weight_grad", make_weight_grad}};

}  // namespace

std::span<const KernelRow> convolution_kernels() { return kRows; }

}  // namespace lucid::cpu

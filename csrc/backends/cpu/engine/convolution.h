// Prepared convolutions: forward and the two gradients, over up to three spatial axes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "support/dtype.h"

namespace lucid::cpu {

/// One spatial axis of a convolution.
struct ConvolutionAxis {
  int64_t input = 1;
  int64_t kernel = 1;
  int64_t output = 1;
  int64_t stride = 1;
  int64_t padding = 0;  ///< before the first element; what lies behind follows from `output`
  int64_t dilation = 1;
};

/// x (batch, channels, *input), w (filters, channels / groups, *kernel),
/// y (batch, filters, *output); dense and row-major. Axes that are not there have size 1.
struct ConvolutionSpec {
  int64_t batch = 1;
  int64_t channels = 1;
  int64_t filters = 1;
  int64_t groups = 1;
  std::array<ConvolutionAxis, 3> axes;  ///< depth, height, width
  DType dtype = DType::kFloat32;

  int64_t group_channels() const { return channels / groups; }
  int64_t group_filters() const { return filters / groups; }
  int64_t input_size() const { return axes[0].input * axes[1].input * axes[2].input; }
  int64_t output_size() const { return axes[0].output * axes[1].output * axes[2].output; }
  int64_t kernel_size() const { return axes[0].kernel * axes[1].kernel * axes[2].kernel; }
};

/// A convolution made ready for its shape. Bits depend on the spec only.
class Convolution {
 public:
  virtual ~Convolution() = default;
  /// `scratch` has scratch_bytes() bytes, 64-byte aligned. May be called from several threads.
  ///   forward:          first = x,  second = w, third = bias (filters,) or null, result = y
  ///   input gradient:   first = dy, second = w, third = null, result = dx
  ///   weight gradient:  first = dy, second = x, third = null, result = dw
  virtual void run(const void* first, const void* second, const void* third, void* result,
                   void* scratch) const = 0;
  virtual size_t scratch_bytes() const = 0;
};

/// Each throws UnsupportedError unless the dtype is float32 or float64.
std::unique_ptr<Convolution> make_convolution(const ConvolutionSpec& spec);
std::unique_ptr<Convolution> make_convolution_input_grad(const ConvolutionSpec& spec);
/// With an empty batch the gradient is zero.
std::unique_ptr<Convolution> make_convolution_weight_grad(const ConvolutionSpec& spec);

}  // namespace lucid::cpu

// Convolutions as one product of the weight with a window that slides over padded images.
#pragma once

#include <memory>
#include <vector>

#include "backends/cpu/engine/convolution.h"

namespace lucid::cpu {

/// A convolution of one tap and step 1 sees its input as one long row; others stay as they are.
ConvolutionSpec flatten_pointwise(ConvolutionSpec spec);

std::unique_ptr<Convolution> make_window_convolution(const ConvolutionSpec& spec);
std::unique_ptr<Convolution> make_window_input_grad(const ConvolutionSpec& spec);
std::unique_ptr<Convolution> make_window_weight_grad(const ConvolutionSpec& spec);

}  // namespace lucid::cpu

// Convolutions of 3 x 3 taps by Winograd's minimal filtering F(2x2, 3x3) (Lavin and Gray 2016,
// arXiv:1509.09308): 16 products an output tile and channel instead of 36.
#pragma once

#include <memory>

#include "backends/cpu/engine/convolution.h"

namespace lucid::cpu {

/// True where these are faster than the plain convolution; by the shape alone, unless the
/// environment variable LUCID_WINOGRAD, read once, is 0. An output's error is relative to the
/// largest of the 4 x 4 inputs of its tile times the largest tap: small values beside much larger
/// ones lose digits that a plain sum would keep, inputs beyond a quarter of the largest number
/// overflow, and where the plain sum is infinite the result may be nan.
bool winograd_gains(const ConvolutionSpec& spec);

std::unique_ptr<Convolution> make_winograd_convolution(const ConvolutionSpec& spec);
std::unique_ptr<Convolution> make_winograd_input_grad(const ConvolutionSpec& spec);
std::unique_ptr<Convolution> make_winograd_weight_grad(const ConvolutionSpec& spec);

}  // namespace lucid::cpu

// Convolutions of 3 x 3 taps by Winograd's minimal filtering F(2x2, 3x3) (Lavin and Gray 2016,
// arXiv:1509.09308): 16 products an output tile and channel instead of 36.
#pragma once

#include <memory>

#include "backends/cpu/engine/convolution.h"

namespace lucid::cpu {

/// True where these are faster than the plain convolution; by the shape alone. Their results differ
/// from those of a plain sum by a few roundings, and a value that is not finite spreads over the
/// outputs of its tiles.
bool winograd_gains(const ConvolutionSpec& spec);

std::unique_ptr<Convolution> make_winograd_convolution(const ConvolutionSpec& spec);
std::unique_ptr<Convolution> make_winograd_input_grad(const ConvolutionSpec& spec);
std::unique_ptr<Convolution> make_winograd_weight_grad(const ConvolutionSpec& spec);

}  // namespace lucid::cpu

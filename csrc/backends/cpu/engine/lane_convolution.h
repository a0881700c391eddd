// Convolutions whose registers hold one element of many images each.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/cpu/engine/convolution.h"

namespace lucid::cpu {

/// Outputs whose lines the weight gradient keeps at a time: of a tile's filters they fill half a
/// cache.
constexpr int64_t kLaneStripOutputs = 96;

/// No size is zero, and the elements of a group are few enough for 32 bits: see
/// convolution_cost.h.
std::unique_ptr<Convolution> make_lane_convolution(const ConvolutionSpec& spec);
std::unique_ptr<Convolution> make_lane_input_grad(const ConvolutionSpec& spec);
std::unique_ptr<Convolution> make_lane_weight_grad(const ConvolutionSpec& spec);

}  // namespace lucid::cpu

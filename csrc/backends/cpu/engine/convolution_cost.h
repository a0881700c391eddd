// Which of two forms of a convolution is the faster one. Bits may depend on it (taps in the
// padding, the order of a weight gradient's sums), so it rests on the shape and the instruction set
// alone.
#pragma once

#include "backends/cpu/engine/convolution.h"

namespace lucid::cpu {

/// True if registers of many images beat a window that slides over each image.
bool lanes_beat_window(const ConvolutionSpec& spec);
bool lanes_beat_window_input_grad(const ConvolutionSpec& spec);
bool lanes_beat_window_weight_grad(const ConvolutionSpec& spec);

}  // namespace lucid::cpu

// Which taps of a convolution reach which elements, along one axis.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/engine/convolution.h"

namespace lucid::cpu {

/// A tap of the stored weight and the element of the source that it meets.
struct AxisTap {
  int64_t tap;
  int64_t element;
};

/// The taps of one place that lie inside the source; elements ascend.
using AxisTaps = std::vector<AxisTap>;

/// For each output the taps that meet an element of the input.
inline std::vector<AxisTaps> forward_taps(const ConvolutionAxis& axis) {
  std::vector<AxisTaps> places(static_cast<size_t>(axis.output));
  for (int64_t o = 0; o < axis.output; ++o) {
    for (int64_t k = 0; k < axis.kernel; ++k) {
      const int64_t element = o * axis.stride + k * axis.dilation - axis.padding;
      if (element < 0 || element >= axis.input) continue;
      places[static_cast<size_t>(o)].push_back({k, element});
    }
  }
  return places;
}

/// For each element of the input the taps through which outputs reach it.
inline std::vector<AxisTaps> input_grad_taps(const ConvolutionAxis& axis) {
  std::vector<AxisTaps> places(static_cast<size_t>(axis.input));
  for (int64_t i = 0; i < axis.input; ++i) {
    for (int64_t k = axis.kernel - 1; k >= 0; --k) {
      const int64_t at = i + axis.padding - k * axis.dilation;
      if (at < 0 || at % axis.stride != 0 || at / axis.stride >= axis.output) continue;
      places[static_cast<size_t>(i)].push_back({k, at / axis.stride});
    }
  }
  return places;
}

}  // namespace lucid::cpu

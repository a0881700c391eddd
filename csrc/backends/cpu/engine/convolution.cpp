#include "backends/cpu/engine/convolution.h"

#include <string>

#include "backends/cpu/engine/convolution_cost.h"
#include "backends/cpu/engine/lane_convolution.h"
#include "backends/cpu/engine/window_convolution.h"
#include "backends/cpu/engine/winograd.h"
#include "support/errors.h"

namespace lucid::cpu {
namespace {

void check_dtype(const ConvolutionSpec& spec) {
  if (spec.dtype == DType::kFloat32 || spec.dtype == DType::kFloat64) return;
  throw Error(ErrorKind::kUnsupported, "convolution: no kernel for dtype " +
                                           std::string(name(spec.dtype)) +
                                           "; cast to float32 or float64");
}

}  // namespace

std::unique_ptr<Convolution> make_convolution(const ConvolutionSpec& spec) {
  check_dtype(spec);
  if (winograd_gains(spec)) return make_winograd_convolution(spec);
  if (lanes_beat_window(spec)) return make_lane_convolution(spec);
  return make_window_convolution(spec);
}

std::unique_ptr<Convolution> make_convolution_input_grad(const ConvolutionSpec& spec) {
  check_dtype(spec);
  if (winograd_gains(spec)) return make_winograd_input_grad(spec);
  if (lanes_beat_window_input_grad(spec)) return make_lane_input_grad(spec);
  return make_window_input_grad(spec);
}

std::unique_ptr<Convolution> make_convolution_weight_grad(const ConvolutionSpec& spec) {
  check_dtype(spec);
  if (winograd_gains(spec)) return make_winograd_weight_grad(spec);
  if (lanes_beat_window_weight_grad(spec)) return make_lane_weight_grad(spec);
  return make_window_weight_grad(spec);
}

}  // namespace lucid::cpu

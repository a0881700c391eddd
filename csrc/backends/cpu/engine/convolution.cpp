#include "backends/cpu/engine/convolution.h"

#include <cstring>
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

/// A convolution of no channels: all sums are empty, so the result is the bias, or zeros.
class EmptySums final : public Convolution {
 public:
  EmptySums(int64_t batch, int64_t planes, int64_t plane_size, DType dtype)
      : batch_(batch),
        planes_(planes),
        plane_size_(plane_size),
        item_(dtype == DType::kFloat64 ? sizeof(double) : sizeof(float)) {}

  size_t scratch_bytes() const override { return 0; }

  void run(const void*, const void*, const void* bias, void* result, void*) const override {
    char* to = static_cast<char*>(result);
    const int64_t size = batch_ * planes_ * plane_size_;
    std::memset(to, 0, static_cast<size_t>(size) * item_);
    if (bias == nullptr) return;
    for (int64_t i = 0; i < size; ++i, to += item_) {
      const int64_t plane = i / plane_size_ % planes_;
      std::memcpy(to, static_cast<const char*>(bias) + static_cast<size_t>(plane) * item_, item_);
    }
  }

 private:
  int64_t batch_;
  int64_t planes_;
  int64_t plane_size_;
  size_t item_;
};

}  // namespace

std::unique_ptr<Convolution> make_convolution(const ConvolutionSpec& spec) {
  check_dtype(spec);
  if (spec.channels == 0) {
    return std::make_unique<EmptySums>(spec.batch, spec.filters, spec.output_size(), spec.dtype);
  }
  if (winograd_gains(spec)) return make_winograd_convolution(spec);
  if (lanes_beat_window(spec)) return make_lane_convolution(spec);
  return make_window_convolution(spec);
}

std::unique_ptr<Convolution> make_convolution_input_grad(const ConvolutionSpec& spec) {
  check_dtype(spec);
  if (spec.filters == 0) {
    return std::make_unique<EmptySums>(spec.batch, spec.channels, spec.input_size(), spec.dtype);
  }
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

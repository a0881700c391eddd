#include "backends/cpu/engine/convolution_cost.h"

#include <algorithm>
#include <array>
#include <limits>

#include "backends/cpu/engine/axis_taps.h"
#include "backends/cpu/engine/lane_product.h"
#include "backends/cpu/engine/sizes.h"

namespace lucid::cpu {
namespace {

// Cycles, and parts of the peak of two products of registers a cycle, measured on AVX-512
// processors of 2017 and 2024 with the convolutions of ResNet and LeNet.
constexpr double kLaneProductsPerCycle = 2 * 0.85;
constexpr double kWindowProductsPerCycle = 2 * 0.92;
constexpr double kGatheredProductsPerCycle = 2 * 0.53;
constexpr double kSumsForPeak = 8;  // registers of sums that hide a product's latency
constexpr double kLineCycles = 7;   // to turn a register of elements into one of images, or back
constexpr double kPickCycles = 2;   // an element that is picked out of a row
constexpr double kFillCycles = 0.15;
constexpr double kStridedFillCycles = 1.5;
constexpr int64_t kGatherFilters = 6;
// Offsets of taps and lines are 32 bits wide.
constexpr double kMostElements = std::numeric_limits<int32_t>::max() / 64;

/// What both forms are asked to do; sizes are of a group.
struct Work {
  double images;  ///< times groups
  double channels;
  double filters;
  double source;       ///< elements of a channel that are read
  double result;       ///< elements of a filter
  double taps;         ///< pairs of a result and a tap that meets an element
  bool picks = false;  ///< the source is not read as it lies
};

double taps_of(const ConvolutionSpec& spec) {
  double taps = 1;
  for (const ConvolutionAxis& axis : spec.axes) {
    int64_t along = 0;
    for (const AxisTaps& place : forward_taps(axis)) along += static_cast<int64_t>(place.size());
    taps *= static_cast<double>(along);
  }
  return taps;
}

double lane_cycles(const ConvolutionSpec& spec, const Work& work, int64_t lanes) {
  const double filled = static_cast<double>(spec.batch) /
                        static_cast<double>(round_up(std::max<int64_t>(spec.batch, 1), lanes));
  const double sums = std::min(1.0, work.filters * 4 / kSumsForPeak);
  const double products = work.filters * work.channels * work.taps / kLaneProductsPerCycle / sums;
  const double lines = work.channels * work.source + work.filters * work.result;
  const double picked = work.picks ? work.channels * work.source * kPickCycles : 0;
  return work.images *
         ((products + lines * kLineCycles) / static_cast<double>(lanes) / filled + picked);
}

/// Registers that the rows of one phase of a result take, and whether they are gathered.
double window_cycles(const Work& work, const std::array<int64_t, 3>& result, double taps,
                     int64_t lanes) {
  const int64_t rows = result[0] * result[1];
  const int64_t by_rows = rows * divide_up(result[2], lanes);
  const int64_t gathered = divide_up(rows * result[2], lanes);
  const double filters = work.filters;
  const bool gathers = static_cast<double>(gathered) * (filters + kGatherFilters) <
                       static_cast<double>(by_rows) * filters;
  const double sums = std::min(1.0, filters * 2 / kSumsForPeak);
  return filters * work.channels * taps * static_cast<double>(gathers ? gathered : by_rows) /
         (gathers ? kGatheredProductsPerCycle : kWindowProductsPerCycle) / sums;
}

bool is_small_enough(const ConvolutionSpec& spec) {
  const auto weight = static_cast<double>(spec.filters * spec.group_channels()) *
                      static_cast<double>(spec.kernel_size());
  const auto largest = std::max(spec.group_channels() * spec.input_size(),
                                spec.group_filters() * spec.output_size());
  return weight < kMostElements && static_cast<double>(largest) < kMostElements;
}

bool is_empty(const ConvolutionSpec& spec) {
  return spec.batch == 0 || spec.input_size() == 0 || spec.output_size() == 0 ||
         spec.group_channels() == 0 || spec.group_filters() == 0;
}

bool has_stride(const ConvolutionSpec& spec) {
  return std::ranges::any_of(spec.axes, [](const auto& axis) { return axis.stride > 1; });
}

int64_t lanes_of(const ConvolutionSpec& spec) {
  return spec.dtype == DType::kFloat64 ? lane_kernels<double>().lanes : lane_kernels<float>().lanes;
}

}  // namespace

bool lanes_beat_window(const ConvolutionSpec& spec) {
  if (is_empty(spec) || !is_small_enough(spec)) return false;
  const int64_t lanes = lanes_of(spec);
  const ConvolutionAxis& width = spec.axes[2];
  const bool picks = width.kernel < width.stride;
  const auto source = static_cast<double>(picks ? spec.output_size() : spec.input_size());
  const Work work{.images = static_cast<double>(spec.batch * spec.groups),
                  .channels = static_cast<double>(spec.group_channels()),
                  .filters = static_cast<double>(spec.group_filters()),
                  .source = source,
                  .result = static_cast<double>(spec.output_size()),
                  .taps = taps_of(spec),
                  .picks = picks};
  const std::array<int64_t, 3> result = {spec.axes[0].output, spec.axes[1].output, width.output};
  const double fill = has_stride(spec) ? kStridedFillCycles : kFillCycles;
  const double window =
      work.images * (window_cycles(work, result, static_cast<double>(spec.kernel_size()), lanes) +
                     work.channels * source * fill);
  return lane_cycles(spec, work, lanes) < window;
}

bool lanes_beat_window_input_grad(const ConvolutionSpec& spec) {
  if (is_empty(spec) || !is_small_enough(spec)) return false;
  const int64_t lanes = lanes_of(spec);
  const Work work{.images = static_cast<double>(spec.batch * spec.groups),
                  .channels = static_cast<double>(spec.group_filters()),
                  .filters = static_cast<double>(spec.group_channels()),
                  .source = static_cast<double>(spec.output_size()),
                  .result = static_cast<double>(spec.input_size()),
                  .taps = taps_of(spec)};
  std::array<int64_t, 3> result{};
  int64_t phases = 1;
  for (size_t i = 0; i < 3; ++i) {
    result[i] = divide_up(spec.axes[i].input, spec.axes[i].stride);
    phases *= spec.axes[i].stride;
  }
  // The phases share the taps; where there are several, their results are then interleaved.
  const double interleaved = phases > 1 ? work.filters * work.result * kStridedFillCycles : 0;
  const double window =
      work.images *
      (window_cycles(work, result, static_cast<double>(spec.kernel_size()), lanes) + interleaved +
       static_cast<double>(phases) * work.channels * work.source * kFillCycles);
  return lane_cycles(spec, work, lanes) < window;
}

}  // namespace lucid::cpu

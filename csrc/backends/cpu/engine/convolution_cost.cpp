#include "backends/cpu/engine/convolution_cost.h"

#include <algorithm>
#include <array>
#include <limits>

#include "backends/cpu/engine/axis_taps.h"
#include "backends/cpu/engine/lane_convolution.h"
#include "backends/cpu/engine/lane_product.h"
#include "backends/cpu/engine/sizes.h"

namespace lucid::cpu {
namespace {

// Cycles, and parts of the peak of two products of registers a cycle, measured on AVX-512
// processors of 2017 and 2024 with the convolutions of ResNet and LeNet.
constexpr double kLaneProductsPerCycle = 2 * 0.85;
constexpr double kWindowProductsPerCycle = 2 * 0.92;
constexpr double kGatheredProductsPerCycle = 2 * 0.84;
constexpr double kLaneGradientsPerCycle = 2 * 0.96;
constexpr double kWindowGradientsPerCycle = 2 * 0.87;
constexpr double kNarrowGradients = 0.75;  // of that where filters fill one register
constexpr double kSumsForPeak = 8;         // registers of sums that hide a product's latency
constexpr double kLineCycles = 7;   // to turn a register of elements into one of images, or back
constexpr double kSumCycles = 4.6;  // to put aside a register of sums and take it up again
constexpr double kFillCycles = 0.15;
constexpr double kSplitFillCycles = 0.5;  // of a row whose even and odd elements are taken apart
constexpr double kStridedFillCycles = 1.5;
constexpr int64_t kGatherFilters = 6;
// Offsets of taps and lines are 32 bits wide.
constexpr double kMostElements = std::numeric_limits<int32_t>::max() / 64;

/// What both forms are asked to do; sizes are of a group.
struct Work {
  double images;  ///< times groups
  double channels;
  double filters;
  double source;  ///< elements of a channel that are read
  double result;  ///< elements of a filter
  double taps;    ///< pairs of a result and a tap that meets an element
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

/// The part of the lanes that hold an image.
double filled_lanes(const ConvolutionSpec& spec, int64_t lanes) {
  const int64_t rounded = round_up(std::max<int64_t>(spec.batch, 1), lanes);
  return static_cast<double>(spec.batch) / static_cast<double>(rounded);
}

double lane_cycles(const ConvolutionSpec& spec, const Work& work, int64_t lanes) {
  const double sums = std::min(1.0, work.filters * 4 / kSumsForPeak);
  const double products = work.filters * work.channels * work.taps / kLaneProductsPerCycle / sums;
  const double lines = work.channels * work.source + work.filters * work.result;
  return work.images * (products + lines * kLineCycles) / static_cast<double>(lanes) /
         filled_lanes(spec, lanes);
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
  const double registers = gathers ? static_cast<double>(gathered) * (filters + kGatherFilters)
                                   : static_cast<double>(by_rows) * filters;
  return work.channels * taps * registers /
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

/// Cycles to copy an element of the source into the frame that a window slides over.
double fill_cycles(const ConvolutionSpec& spec) {
  if (spec.axes[2].stride == 2 && spec.axes[2].kernel > 1) return kSplitFillCycles;
  const bool has_stride =
      std::ranges::any_of(spec.axes, [](const auto& axis) { return axis.stride > 1; });
  return has_stride ? kStridedFillCycles : kFillCycles;
}

/// Elements of a channel in the rows that a window reaches.
double read_elements(const ConvolutionSpec& spec) {
  double elements = static_cast<double>(spec.axes[2].input);
  for (size_t i = 0; i < 2; ++i) {
    const ConvolutionAxis& axis = spec.axes[i];
    elements *= static_cast<double>(axis.kernel < axis.stride ? axis.output : axis.input);
  }
  return elements;
}

int64_t lanes_of(const ConvolutionSpec& spec) {
  return spec.dtype == DType::kFloat64 ? lane_kernels<double>().lanes : lane_kernels<float>().lanes;
}

}  // namespace

bool lanes_beat_window(const ConvolutionSpec& spec) {
  if (is_empty(spec) || !is_small_enough(spec)) return false;
  const int64_t lanes = lanes_of(spec);
  const ConvolutionAxis& width = spec.axes[2];
  const double source = read_elements(spec);
  const Work work{.images = static_cast<double>(spec.batch * spec.groups),
                  .channels = static_cast<double>(spec.group_channels()),
                  .filters = static_cast<double>(spec.group_filters()),
                  .source = source,
                  .result = static_cast<double>(spec.output_size()),
                  .taps = taps_of(spec)};
  const std::array<int64_t, 3> result = {spec.axes[0].output, spec.axes[1].output, width.output};
  const double fill = fill_cycles(spec);
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

bool lanes_beat_window_weight_grad(const ConvolutionSpec& spec) {
  if (is_empty(spec) || !is_small_enough(spec)) return false;
  const int64_t lanes = lanes_of(spec);
  const auto rows = static_cast<double>(spec.group_channels() * spec.kernel_size());
  const auto filters = static_cast<double>(spec.group_filters());
  const auto outputs = static_cast<double>(spec.output_size());
  const double source = static_cast<double>(spec.group_channels()) * read_elements(spec);
  const auto images = static_cast<double>(spec.batch * spec.groups);
  const auto width = static_cast<double>(lanes);

  const ConvolutionAxis& height = spec.axes[1];
  const int64_t strip =
      std::clamp<int64_t>(kLaneStripOutputs / spec.axes[2].output, 1, height.output);
  const auto strips = static_cast<double>(divide_up(height.output, strip));
  const double overlap = 1 + static_cast<double>((height.kernel - 1) * height.dilation) /
                                 static_cast<double>(strip * height.stride);
  const double lane = rows * filters * outputs / kLaneGradientsPerCycle +
                      (source * overlap + filters * outputs) * kLineCycles +
                      rows * filters * strips * kSumCycles;
  const int64_t registers = divide_up(spec.group_filters(), lanes);
  const double fill = fill_cycles(spec);
  const double window = rows * static_cast<double>(registers) * outputs / kWindowGradientsPerCycle /
                            (registers == 1 ? kNarrowGradients : 1) +
                        source * fill + filters * outputs * kLineCycles / width;
  return images * lane / width / filled_lanes(spec, lanes) < images * window;
}

}  // namespace lucid::cpu

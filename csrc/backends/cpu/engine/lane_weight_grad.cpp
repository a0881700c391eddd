// The gradient of the weight with one image a lane: both operands are lines, and each lane has a
// chain of its own. Lanes are added in a tree, chunks of images in order.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "backends/cpu/engine/lane_convolution.h"
#include "backends/cpu/engine/lane_product.h"
#include "backends/cpu/engine/padded_layout.h"
#include "backends/cpu/engine/sizes.h"
#include "backends/cpu/engine/slots.h"
#include "backends/cpu/engine/speed.h"
#include "backends/cpu/engine/weight_partials.h"

namespace lucid::cpu {
namespace {

constexpr int64_t kMaxPartialElements = int64_t{1} << 16;
constexpr int64_t kTasksPerThread = 2;  // of which each turns the whole gradient

/// Rows are turned as they lie, which costs less than to pick what a step leaves of them.
PaddedAxis whole_axis(const ConvolutionAxis& axis) {
  return {.source = axis.input,
          .length = (axis.output - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1,
          .lead = axis.padding};
}

template <class T>
class LaneWeightGrad final : public Convolution {
 public:
  explicit LaneWeightGrad(const ConvolutionSpec& spec)
      : spec_(spec),
        axes_{window_axis(spec.axes[0]), window_axis(spec.axes[1]), whole_axis(spec.axes[2])},
        image_groups_(divide_up(spec.batch, lanes_)),
        chunk_(choose_chunk(spec, image_groups_, kMaxPartialElements)),
        chunks_(divide_up(image_groups_, chunk_)) {
    choose_split();
    make_offsets();
    const auto bytes = [](int64_t elements) {
      return aligned(static_cast<size_t>(elements) * sizeof(T));
    };
    frame_bytes_ = bytes(channels_ * channel_size() * lanes_);
    grad_bytes_ = bytes(filters() * strip_size() * lanes_);
    sums_bytes_ = bytes(channels_ * spec.kernel_size() * filters() * lanes_);
    partial_bytes_ = bytes(chunks_ * weight_size());
    num_slots_ = static_cast<int>(std::clamp<int64_t>(num_tasks(), 1, num_threads()));
    const double flops = 2.0 * static_cast<double>(spec.batch * spec.output_size()) *
                         static_cast<double>(weight_size());
    task_ns_ = flops * sizeof(T) / kConvolutionBytesPerNs /
               static_cast<double>(std::max<int64_t>(num_tasks(), 1));
  }

  size_t scratch_bytes() const override {
    return partial_bytes_ + slot_bytes() * static_cast<size_t>(num_slots_);
  }

  void run(const void* first, const void* second, const void*, void* result,
           void* scratch) const override {
    T* const partials = static_cast<T*>(scratch);
    char* const slots = static_cast<char*>(scratch) + partial_bytes_;
    for_each_in_slots(num_tasks(), num_slots_, task_ns_, [&](int64_t slot, int64_t task) {
      run_task(static_cast<const T*>(first), static_cast<const T*>(second), partials,
               slots + static_cast<size_t>(slot) * slot_bytes(), task);
    });
    add_partials(spec_, chunks_, partials, static_cast<T*>(result));
  }

 private:
  size_t slot_bytes() const { return frame_bytes_ + grad_bytes_ + sums_bytes_; }
  int64_t filters() const { return spec_.group_filters(); }
  int64_t weight_size() const {
    return spec_.filters * spec_.group_channels() * spec_.kernel_size();
  }
  int64_t num_tasks() const { return chunks_ * spec_.groups * channel_parts_; }
  /// Lines of a channel's frame, and of a filter's strip.
  int64_t channel_size() const { return axes_[0].length * frame_rows_ * axes_[2].length; }
  int64_t strip_size() const { return spec_.axes[0].output * strip_ * spec_.axes[2].output; }

  void choose_split() {
    const int64_t tasks = std::max<int64_t>(chunks_ * spec_.groups, 1);
    const int64_t channels = std::max<int64_t>(spec_.group_channels(), 1);
    const int64_t wanted = num_threads() > 1 ? num_threads() * kTasksPerThread : 1;
    const int64_t parts = std::clamp<int64_t>(wanted / tasks, 1, channels);
    channels_ = divide_up(channels, parts);
    channel_parts_ = divide_up(spec_.group_channels(), channels_);
    const ConvolutionAxis& height = spec_.axes[1];
    strip_ = height.output;
    if (spec_.axes[0].output == 1 && axes_[0].length == 1) {
      strip_ = std::clamp<int64_t>(kLaneStripOutputs / spec_.axes[2].output, 1, strip_);
    }
    frame_rows_ = (strip_ - 1) * window_step(height) + (height.kernel - 1) * height.dilation + 1;
  }

  int64_t line(int64_t depth, int64_t row, int64_t column) const {
    return ((depth * frame_rows_ + row) * axes_[2].length + column) * lanes_;
  }

  void make_offsets() {
    const auto& axes = spec_.axes;
    for (int64_t channel = 0; channel < channels_; ++channel) {
      for (int64_t d = 0; d < axes[0].kernel; ++d) {
        for (int64_t h = 0; h < axes[1].kernel; ++h) {
          for (int64_t w = 0; w < axes[2].kernel; ++w) {
            row_offsets_.push_back(channel * channel_size() * lanes_ + line(d * axes[0].dilation,
                                                                            h * axes[1].dilation,
                                                                            w * axes[2].dilation));
          }
        }
      }
    }
    for (int64_t d = 0; d < axes[0].output; ++d) {
      for (int64_t h = 0; h < strip_; ++h) {
        segments_.push_back({line(d * window_step(axes[0]), h * window_step(axes[1]), 0),
                             (d * strip_ + h) * axes[2].output * lanes_});
      }
    }
  }

  void run_task(const T* grad, const T* source, T* partials, char* scratch, int64_t task) const {
    const int64_t part = task % channel_parts_;
    const int64_t group = task / channel_parts_ % spec_.groups;
    const int64_t chunk = task / channel_parts_ / spec_.groups;
    const int64_t channel = part * channels_;
    const int64_t channels = std::min(channels_, spec_.group_channels() - channel);
    T* const frame = reinterpret_cast<T*>(scratch);
    T* const lines = reinterpret_cast<T*>(scratch + frame_bytes_);
    T* const sums = reinterpret_cast<T*>(scratch + frame_bytes_ + grad_bytes_);
    const int64_t taps = spec_.kernel_size();
    LaneGradient<T> gradient{.x = frame,
                             .row_offsets = row_offsets_.data(),
                             .x_step = spec_.axes[2].stride * lanes_,
                             .grad = lines,
                             .grad_row = strip_size() * lanes_,
                             .segments = segments_.data(),
                             .num_segments = 0,
                             .length = spec_.axes[2].output,
                             .sums = sums,
                             .rows = channels * taps,
                             .filters = filters(),
                             .accumulate = false};
    const int64_t end = std::min((chunk + 1) * chunk_, image_groups_);
    for (int64_t i = chunk * chunk_; i < end; ++i) {
      const int64_t image = i * lanes_;
      const int64_t images = std::min(lanes_, spec_.batch - image);
      const T* const x =
          source +
          (image * spec_.channels + group * spec_.group_channels() + channel) * spec_.input_size();
      const T* const dy = grad + (image * spec_.filters + group * filters()) * spec_.output_size();
      for (int64_t top = 0; top < spec_.axes[1].output; top += strip_) {
        const int64_t strip = std::min(strip_, spec_.axes[1].output - top);
        fill_frame(x, channels, top * window_step(spec_.axes[1]), images, frame);
        fill_grad(dy, top, strip, images, lines);
        gradient.num_segments = spec_.axes[0].output * strip;
        kernels_.gradient(gradient);
        gradient.accumulate = true;
      }
    }
    const int64_t first = (chunk * spec_.groups + group) * spec_.group_channels() + channel;
    kernels_.fold(sums, channels * taps * filters(), partials + first * taps * filters());
  }

  void fill_grad(const T* dy, int64_t top, int64_t strip, int64_t images, T* lines) const {
    const int64_t width = spec_.axes[2].output;
    const int64_t plane = spec_.output_size();
    const int64_t image = spec_.filters * plane;
    if (strip == spec_.axes[1].output) {
      kernels_.to_lines(dy, image, images, filters() * plane, lines);
      return;
    }
    for (int64_t f = 0; f < filters(); ++f) {
      kernels_.to_lines(dy + f * plane + top * width, image, images, strip * width,
                        lines + f * strip_size() * lanes_);
    }
  }

  void fill_frame(const T* x, int64_t channels, int64_t top, int64_t images, T* frame) const {
    const int64_t plane = spec_.input_size();
    if (channel_size() == plane && axes_[1].length == frame_rows_ && is_plain()) {
      kernels_.to_lines(x, spec_.channels * plane, images, channels * plane, frame);
      return;
    }
    const int64_t row_size = axes_[2].length * lanes_;
    const int64_t end = std::min(top + frame_rows_, axes_[1].length);
    for (int64_t channel = 0; channel < channels; ++channel, x += plane) {
      for (int64_t d = 0; d < axes_[0].length; ++d) {
        const int64_t depth = axes_[0].element(d);
        T* to = frame + channel * channel_size() * lanes_ + line(d, 0, 0);
        for (int64_t h = top; h < end; ++h, to += row_size) {
          const int64_t height = axes_[1].element(h);
          if (depth < 0 || height < 0) {
            std::fill_n(to, row_size, T{0});
            continue;
          }
          fill_row(x + (depth * axes_[1].source + height) * axes_[2].source, images, to);
        }
      }
    }
  }

  /// True if the frame holds every element once, as it lies.
  bool is_plain() const {
    return std::ranges::all_of(axes_, [](const PaddedAxis& axis) {
      return axis.lead == 0 && axis.take == 1 && axis.length == axis.source;
    });
  }

  /// One row of a channel of all images, with its padding.
  void fill_row(const T* from, int64_t images, T* to) const {
    const PaddedAxis& axis = axes_[2];
    const int64_t image = spec_.channels * spec_.input_size();
    const int64_t begin = std::clamp<int64_t>(axis.lead, 0, axis.length);
    const int64_t end = std::clamp(axis.source + axis.lead, begin, axis.length);
    std::fill_n(to, begin * lanes_, T{0});
    if (end > begin) {
      kernels_.to_lines(from + begin - axis.lead, image, images, end - begin, to + begin * lanes_);
    }
    std::fill_n(to + end * lanes_, (axis.length - end) * lanes_, T{0});
  }

  ConvolutionSpec spec_;
  std::array<PaddedAxis, 3> axes_;
  const LaneKernels<T>& kernels_ = lane_kernels<T>();
  int64_t lanes_ = kernels_.lanes;
  int64_t image_groups_;
  int64_t chunk_;  ///< groups of images
  int64_t chunks_;
  int64_t channels_ = 1;  ///< of a task
  int64_t channel_parts_ = 1;
  int64_t strip_ = 1;  ///< rows of output that are summed at a time
  int64_t frame_rows_ = 1;
  std::vector<int64_t> row_offsets_;
  std::vector<LaneSegment> segments_;
  size_t frame_bytes_ = 0;
  size_t grad_bytes_ = 0;
  size_t sums_bytes_ = 0;
  size_t partial_bytes_ = 0;
  int num_slots_ = 1;
  double task_ns_ = 0;
};

}  // namespace

std::unique_ptr<Convolution> make_lane_weight_grad(const ConvolutionSpec& spec) {
  if (spec.dtype == DType::kFloat64) return std::make_unique<LaneWeightGrad<double>>(spec);
  return std::make_unique<LaneWeightGrad<float>>(spec);
}

}  // namespace lucid::cpu

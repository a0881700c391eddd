// The gradient of the weight: fixed chunks of images, each one chain of sums, added in order.
#include <algorithm>
#include <utility>
#include <vector>

#include "backends/cpu/engine/padded_layout.h"
#include "backends/cpu/engine/sizes.h"
#include "backends/cpu/engine/slots.h"
#include "backends/cpu/engine/speed.h"
#include "backends/cpu/engine/weight_partials.h"
#include "backends/cpu/engine/window_convolution.h"
#include "backends/cpu/engine/window_product.h"

namespace lucid::cpu {
namespace {

constexpr int64_t kFrameBytes = 256 * 1024;        // what is summed at a time: part of a cache
constexpr int64_t kLargeFrameBytes = 1024 * 1024;  // where the sums themselves fill a cache
constexpr int64_t kLargeWeightBytes = 512 * 1024;
constexpr int64_t kMaxPartialElements = int64_t{1} << 19;
constexpr int64_t kTasksPerThread = 4;

/// dw[f][c, tap] = sum over images and outputs of x[c][output * stride + tap] dy[f][output]. A
/// chunk's sums are kept as (group, channel and tap, filter): the filters fill the registers.
template <class T>
class WindowWeightGrad final : public Convolution {
 public:
  explicit WindowWeightGrad(const ConvolutionSpec& spec)
      : spec_(spec),
        rows_(spec.group_channels() * spec.kernel_size()),
        filters_(spec.group_filters()),
        chunk_(choose_chunk(spec, spec.batch, kMaxPartialElements)),
        chunks_(divide_up(spec.batch, chunk_)) {
    const auto& axes = spec.axes;
    layout_ = PaddedLayout({window_axis(axes[0]), window_axis(axes[1]), window_axis(axes[2])},
                           window_step(axes[2]));
    choose_split();
    make_offsets();
    frame_bytes_ = aligned(static_cast<size_t>(images_ * frame_size()) * sizeof(T));
    turned_bytes_ = aligned(static_cast<size_t>(images_ * turned_size()) * sizeof(T));
    partial_bytes_ = aligned(static_cast<size_t>(chunks_ * weight_size()) * sizeof(T));
    num_slots_ = static_cast<int>(std::clamp<int64_t>(num_tasks(), 1, num_threads()));
    const double flops = 2.0 * static_cast<double>(spec.batch * spec.output_size()) *
                         static_cast<double>(weight_size());
    task_ns_ = flops * sizeof(T) / kConvolutionBytesPerNs /
               static_cast<double>(std::max<int64_t>(num_tasks(), 1));
  }

  size_t scratch_bytes() const override {
    return partial_bytes_ + (frame_bytes_ + turned_bytes_) * static_cast<size_t>(num_slots_);
  }

  void run(const void* first, const void* second, const void*, void* result,
           void* scratch) const override {
    const T* const grad = static_cast<const T*>(first);
    const T* const source = static_cast<const T*>(second);
    T* const partials = static_cast<T*>(scratch);
    char* const slots = static_cast<char*>(scratch) + partial_bytes_;
    for_each_in_slots(num_tasks(), num_slots_, task_ns_, [&](int64_t slot, int64_t task) {
      char* const own = slots + static_cast<size_t>(slot) * (frame_bytes_ + turned_bytes_);
      run_task(grad, source, partials, reinterpret_cast<T*>(own),
               reinterpret_cast<T*>(own + frame_bytes_), task);
    });
    add_partials(spec_, chunks_, partials, static_cast<T*>(result));
  }

 private:
  int64_t weight_size() const { return spec_.groups * rows_ * filters_; }
  int64_t num_tasks() const { return chunks_ * spec_.groups * channel_parts_; }
  /// Elements of an image's frame, and of its output's gradient.
  int64_t frame_size() const { return channels_ * layout_.channel_size(frame_rows_); }
  int64_t turned_size() const { return strip_ * outputs_of_row() * filters_; }
  /// Outputs of one row of the height, over all of the depth.
  int64_t outputs_of_row() const { return spec_.axes[0].output * spec_.axes[2].output; }

  void choose_split() {
    const int64_t tasks = std::max<int64_t>(chunks_ * spec_.groups, 1);
    const int64_t channels = std::max<int64_t>(spec_.group_channels(), 1);
    int64_t parts = 1;
    if (tasks < num_threads() * kTasksPerThread && num_threads() > 1) {
      parts = std::clamp<int64_t>(num_threads() * kTasksPerThread / tasks, 1, channels);
    }
    channels_ = divide_up(channels, parts);
    channel_parts_ = divide_up(spec_.group_channels(), channels_);
    const ConvolutionAxis& height = spec_.axes[1];
    const int64_t row_bytes =
        (channels_ * layout_.channel_size(1) * window_step(height) + filters_ * outputs_of_row()) *
        static_cast<int64_t>(sizeof(T));
    strip_ = height.output;
    if (spec_.axes[0].output == 1) {
      strip_ = std::clamp<int64_t>(kFrameBytes / row_bytes, std::min<int64_t>(4, strip_), strip_);
    }
    frame_rows_ = (strip_ - 1) * window_step(height) + (height.kernel - 1) * height.dilation + 1;
    if (strip_ < height.output) return;
    const int64_t sums_bytes =
        channels_ * spec_.kernel_size() * filters_ * static_cast<int64_t>(sizeof(T));
    const int64_t limit = sums_bytes > kLargeWeightBytes ? kLargeFrameBytes : kFrameBytes;
    const int64_t image_bytes = (frame_size() + turned_size()) * static_cast<int64_t>(sizeof(T));
    images_ = std::clamp<int64_t>(limit / std::max<int64_t>(image_bytes, 1), 1, chunk_);
  }

  void make_offsets() {
    const auto& axes = spec_.axes;
    for (int64_t channel = 0; channel < channels_; ++channel) {
      const int64_t start = channel * layout_.channel_size(frame_rows_);
      for (int64_t d = 0; d < axes[0].kernel; ++d) {
        for (int64_t h = 0; h < axes[1].kernel; ++h) {
          for (int64_t w = 0; w < axes[2].kernel; ++w) {
            offsets_.push_back(start + layout_.offset(d * axes[0].dilation, h * axes[1].dilation,
                                                      w * axes[2].dilation, frame_rows_));
          }
        }
      }
    }
    for (int64_t image = 0; image < images_; ++image) {
      for (int64_t d = 0; d < axes[0].output; ++d) {
        for (int64_t h = 0; h < strip_; ++h) {
          segments_.push_back(image * frame_size() + layout_.offset(d * window_step(axes[0]),
                                                                    h * window_step(axes[1]), 0,
                                                                    frame_rows_));
        }
      }
    }
  }

  void run_task(const T* grad, const T* source, T* partials, T* frame, T* turned,
                int64_t task) const {
    const int64_t part = task % channel_parts_;
    const int64_t group = task / channel_parts_ % spec_.groups;
    const int64_t chunk = task / channel_parts_ / spec_.groups;
    const int64_t channel = part * channels_;
    const int64_t channels = std::min(channels_, spec_.group_channels() - channel);
    const int64_t end = std::min((chunk + 1) * chunk_, spec_.batch);
    SegmentProduct<T> product{.a = frame,
                              .a_offsets = offsets_.data(),
                              .segments = segments_.data(),
                              .num_segments = 0,
                              .length = spec_.axes[2].output,
                              .b = turned,
                              .b_depth = filters_,
                              .c = partials + (chunk * spec_.groups + group) * rows_ * filters_ +
                                   channel * spec_.kernel_size() * filters_,
                              .c_row = filters_,
                              .m = channels * spec_.kernel_size(),
                              .n = filters_,
                              .accumulate = false};
    for (int64_t image = chunk * chunk_; image < end; image += images_) {
      const int64_t images = std::min(images_, end - image);
      for (int64_t row = 0; row < spec_.axes[1].output; row += strip_) {
        const int64_t strip = std::min(strip_, spec_.axes[1].output - row);
        for (int64_t i = 0; i < images; ++i) {
          load_image(grad, source, image + i, group, channel, channels, row, strip,
                     frame + i * frame_size(), turned + i * turned_size());
        }
        product.num_segments = images * spec_.axes[0].output * strip;
        window_product_kernels<T>().segments(product);
        product.accumulate = true;
      }
    }
  }

  /// Frames an image's channels, and turns its gradient to (output, filter).
  void load_image(const T* grad, const T* source, int64_t image, int64_t group, int64_t channel,
                  int64_t channels, int64_t row, int64_t strip, T* frame, T* turned) const {
    const int64_t first = image * spec_.channels + group * spec_.group_channels() + channel;
    layout_.fill(source + first * spec_.input_size(), channels, row * window_step(spec_.axes[1]),
                 frame_rows_, frame);
    const T* const from = grad + (image * spec_.filters + group * filters_) * spec_.output_size();
    transpose(from + row * spec_.axes[2].output, spec_.output_size(), filters_,
              strip * outputs_of_row(), turned, filters_);
  }

  ConvolutionSpec spec_;
  int64_t rows_;     ///< channels and taps of a group
  int64_t filters_;  ///< of a group
  int64_t chunk_;
  int64_t chunks_;
  PaddedLayout layout_;
  int64_t channels_ = 1;  ///< of a task
  int64_t channel_parts_ = 1;
  int64_t strip_ = 1;   ///< rows of output that are summed at a time
  int64_t images_ = 1;  ///< that are summed at a time; more than one only if strips are whole
  int64_t frame_rows_ = 1;
  std::vector<int64_t> offsets_;
  std::vector<int64_t> segments_;
  size_t frame_bytes_ = 0;
  size_t turned_bytes_ = 0;
  size_t partial_bytes_ = 0;
  int num_slots_ = 1;
  double task_ns_ = 0;
};

}  // namespace

std::unique_ptr<Convolution> make_window_weight_grad(const ConvolutionSpec& spec) {
  const ConvolutionSpec flat = flatten_pointwise(spec);
  if (spec.dtype == DType::kFloat64) return std::make_unique<WindowWeightGrad<double>>(flat);
  return std::make_unique<WindowWeightGrad<float>>(flat);
}

}  // namespace lucid::cpu

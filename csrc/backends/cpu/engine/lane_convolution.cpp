#include "backends/cpu/engine/lane_convolution.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "backends/cpu/engine/axis_taps.h"
#include "backends/cpu/engine/lane_product.h"
#include "backends/cpu/engine/sizes.h"
#include "backends/cpu/engine/slots.h"
#include "backends/cpu/engine/speed.h"

namespace lucid::cpu {
namespace {

constexpr int64_t kTaskBytes = 640 * 1024;  // lines of one task: part of the second cache
constexpr int64_t kBlockBytes = 80 * 1024;  // lines that a tile of rows passes over
constexpr int64_t kBlockDepth = 96;         // multiply-adds that pay for a load and a store
constexpr int64_t kListedTaps = 24;
constexpr int64_t kTasksPerThread = 4;

/// A convolution as places of the result and the taps that reach them.
struct LanePlan {
  int64_t batch = 0;
  int64_t groups = 1;
  int64_t channels = 1;  ///< of a group of the source
  int64_t filters = 1;   ///< of a group of the result
  std::array<int64_t, 3> source{1, 1, 1};
  std::array<int64_t, 3> kernel{1, 1, 1};
  std::array<std::vector<AxisTaps>, 3> taps;  ///< of each place of the result, by axis
  int64_t weight_row = 0;                     ///< elements between the weights of two filters
  int64_t weight_channel = 0;                 ///< and of two channels

  int64_t result(size_t axis) const { return static_cast<int64_t>(taps[axis].size()); }
  int64_t source_size() const { return source[0] * source[1] * source[2]; }
  int64_t result_size() const { return result(0) * result(1) * result(2); }
  int64_t kernel_size() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t weight_size() const { return groups * filters * channels * kernel_size(); }
};

LanePlan empty_plan(const ConvolutionSpec& spec) {
  LanePlan plan;
  plan.batch = spec.batch;
  plan.groups = spec.groups;
  for (size_t i = 0; i < 3; ++i) plan.kernel[i] = spec.axes[i].kernel;
  return plan;
}

LanePlan forward_plan(const ConvolutionSpec& spec) {
  LanePlan plan = empty_plan(spec);
  plan.channels = spec.group_channels();
  plan.filters = spec.group_filters();
  plan.weight_row = plan.channels * plan.kernel_size();
  plan.weight_channel = plan.kernel_size();
  for (size_t i = 0; i < 3; ++i) {
    plan.source[i] = spec.axes[i].input;
    plan.taps[i] = forward_taps(spec.axes[i]);
  }
  return plan;
}

LanePlan input_grad_plan(const ConvolutionSpec& spec) {
  LanePlan plan = empty_plan(spec);
  plan.channels = spec.group_filters();
  plan.filters = spec.group_channels();
  plan.weight_row = plan.kernel_size();
  plan.weight_channel = plan.filters * plan.kernel_size();
  for (size_t i = 0; i < 3; ++i) {
    plan.source[i] = spec.axes[i].output;
    plan.taps[i] = input_grad_taps(spec.axes[i]);
  }
  return plan;
}

/// Elements that the places [begin, end) of an axis reach, in ascending order, each once.
std::vector<int64_t> reached(const std::vector<AxisTaps>& places, int64_t begin, int64_t end) {
  std::vector<int64_t> elements;
  for (int64_t place = begin; place < end; ++place) {
    for (const AxisTap& tap : places[static_cast<size_t>(place)]) elements.push_back(tap.element);
  }
  std::ranges::sort(elements);
  elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
  return elements;
}

std::vector<int64_t> all_elements(int64_t size) {
  std::vector<int64_t> elements(static_cast<size_t>(size));
  std::iota(elements.begin(), elements.end(), 0);
  return elements;
}

/// Taps and where their lines are from the first one: places that agree in it share a list.
using AxisPattern = std::vector<std::pair<int64_t, int64_t>>;

/// The places [begin, end) of an axis in terms of the elements that a frame holds: those that are
/// reached, or more.
class FramedAxis {
 public:
  FramedAxis() = default;
  FramedAxis(const std::vector<AxisTaps>& places, int64_t begin, int64_t end,
             std::vector<int64_t> elements)
      : elements_(std::move(elements)) {
    for (int64_t place = begin; place < end; ++place) {
      AxisPattern pattern;
      int64_t first = 0;
      for (const AxisTap& tap : places[static_cast<size_t>(place)]) {
        const int64_t at = std::ranges::lower_bound(elements_, tap.element) - elements_.begin();
        if (pattern.empty()) first = at;
        pattern.emplace_back(tap.tap, at - first);
      }
      firsts_.push_back(first);
      patterns_.push_back(std::move(pattern));
    }
  }

  const std::vector<int64_t>& elements() const { return elements_; }
  int64_t size() const { return static_cast<int64_t>(elements_.size()); }
  int64_t num_places() const { return static_cast<int64_t>(firsts_.size()); }
  int64_t first(int64_t place) const { return firsts_[static_cast<size_t>(place)]; }
  const AxisPattern& pattern(int64_t place) const { return patterns_[static_cast<size_t>(place)]; }
  /// True if the elements are neighbours in the source.
  bool is_run() const { return size() > 0 && elements_.back() - elements_.front() + 1 == size(); }

 private:
  std::vector<int64_t> elements_;
  std::vector<int64_t> firsts_;
  std::vector<AxisPattern> patterns_;
};

/// Places that share their taps.
struct PlaceClass {
  std::vector<LaneTap> taps;
  std::vector<LanePlace> places;
};

/// Rows of the result along the height, over all of its depth.
struct Strip {
  int64_t row = 0;
  std::array<FramedAxis, 3> axes;
  std::vector<PlaceClass> classes;

  int64_t frame_size() const { return axes[0].size() * axes[1].size() * axes[2].size(); }
  int64_t num_places() const {
    return axes[0].num_places() * axes[1].num_places() * axes[2].num_places();
  }
};

template <class T>
class LaneConvolution final : public Convolution {
 public:
  explicit LaneConvolution(LanePlan plan) : plan_(std::move(plan)) {
    image_groups_ = divide_up(plan_.batch, lanes_);
    choose_strips();
    choose_blocks();
    for (int64_t row = 0; row < plan_.result(1); row += strip_rows_) add_strip(row);
    choose_filter_parts();
    int64_t frame = 0;
    int64_t places = 0;
    for (const Strip& strip : strips_) {
      frame = std::max(frame, strip.frame_size());
      places = std::max(places, strip.num_places());
    }
    frame_bytes_ = aligned(static_cast<size_t>(plan_.channels * frame * lanes_) * sizeof(T));
    result_bytes_ = aligned(static_cast<size_t>(part_filters_ * places * lanes_) * sizeof(T));
    num_slots_ = static_cast<int>(std::clamp<int64_t>(num_tasks(), 1, num_threads()));
    const double flops = 2.0 * static_cast<double>(plan_.batch * plan_.result_size()) *
                         static_cast<double>(plan_.weight_size());
    task_ns_ = flops * sizeof(T) / kConvolutionBytesPerNs / static_cast<double>(num_tasks());
  }

  size_t scratch_bytes() const override { return static_cast<size_t>(num_slots_) * slot_bytes(); }

  void run(const void* first, const void* second, const void* third, void* result,
           void* scratch) const override {
    char* const slots = static_cast<char*>(scratch);
    for_each_in_slots(num_tasks(), num_slots_, task_ns_, [&](int64_t slot, int64_t task) {
      char* const own = slots + static_cast<size_t>(slot) * slot_bytes();
      run_task(static_cast<const T*>(first), static_cast<const T*>(second),
               static_cast<const T*>(third), static_cast<T*>(result), own, task);
    });
  }

 private:
  size_t slot_bytes() const { return frame_bytes_ + result_bytes_; }
  int64_t num_strips() const { return static_cast<int64_t>(strips_.size()); }
  int64_t num_tasks() const { return image_groups_ * plan_.groups * num_strips() * filter_parts_; }

  /// Rows so many that the lines of a task stay in a cache.
  void choose_strips() {
    strip_rows_ = plan_.result(1);
    if (plan_.result(0) > 1 || plan_.source[0] > 1) return;
    const auto bytes = [&](int64_t rows) {
      const int64_t reach =
          std::min(plan_.source[1],
                   divide_up(rows * plan_.source[1], plan_.result(1)) + plan_.kernel[1] - 1);
      const int64_t lines =
          plan_.channels * reach * plan_.source[2] + plan_.filters * rows * plan_.result(2);
      return lines * lanes_ * static_cast<int64_t>(sizeof(T));
    };
    const int64_t least = std::min(divide_up(lanes_, plan_.result(2)), strip_rows_);
    while (strip_rows_ > least && bytes(strip_rows_) > kTaskBytes) {
      strip_rows_ = std::max(least, divide_up(strip_rows_, 2));
    }
  }

  /// Channels that are summed before the next tile of rows, in whole lists of taps.
  void choose_blocks() {
    int64_t taps = 1;  // that the places have in all
    for (const auto& axis : plan_.taps) {
      int64_t along = 0;
      for (const AxisTaps& place : axis) along += static_cast<int64_t>(place.size());
      taps *= along;
    }
    const int64_t each = std::max<int64_t>(taps / plan_.result_size(), 1);
    listed_ = std::clamp<int64_t>(kListedTaps / each, 1, plan_.channels);
    while (plan_.channels % listed_ != 0) --listed_;
    const int64_t rows = std::min(plan_.source[1], strip_rows_ + plan_.kernel[1] - 1);
    const int64_t channel_bytes =
        plan_.source[0] * rows * plan_.source[2] * lanes_ * static_cast<int64_t>(sizeof(T));
    const int64_t wanted = std::max(kBlockBytes / channel_bytes, divide_up(kBlockDepth, each));
    const int64_t blocks = divide_up(plan_.channels, wanted);
    block_ = round_up(divide_up(plan_.channels, blocks), listed_);
  }

  void choose_filter_parts() {
    const int64_t tasks = image_groups_ * plan_.groups * num_strips();
    const int64_t wanted = num_threads() > 1 ? num_threads() * kTasksPerThread : 1;
    const int64_t parts =
        std::clamp<int64_t>(divide_up(wanted, tasks), 1, divide_up(plan_.filters, kernels_.rows));
    part_filters_ = divide_up(plan_.filters, parts);
    filter_parts_ = divide_up(plan_.filters, part_filters_);
  }

  void add_strip(int64_t row) {
    Strip strip;
    strip.row = row;
    const int64_t end = std::min(row + strip_rows_, plan_.result(1));
    const auto& taps = plan_.taps;
    // Rows are turned as they lie, which costs less than to pick what a step leaves of them.
    strip.axes = {FramedAxis(taps[0], 0, plan_.result(0), reached(taps[0], 0, plan_.result(0))),
                  FramedAxis(taps[1], row, end, reached(taps[1], row, end)),
                  FramedAxis(taps[2], 0, plan_.result(2), all_elements(plan_.source[2]))};
    using Patterns = std::array<const AxisPattern*, 3>;
    const auto less = [](const Patterns& a, const Patterns& b) {
      for (size_t i = 0; i < 3; ++i) {
        if (*a[i] != *b[i]) return *a[i] < *b[i];
      }
      return false;
    };
    std::map<Patterns, size_t, decltype(less)> found(less);
    const auto& [depth, height, width] = strip.axes;
    int64_t result = 0;
    for (int64_t d = 0; d < depth.num_places(); ++d) {
      for (int64_t h = 0; h < height.num_places(); ++h) {
        for (int64_t w = 0; w < width.num_places(); ++w, ++result) {
          const Patterns patterns = {&depth.pattern(d), &height.pattern(h), &width.pattern(w)};
          const auto [at, is_new] = found.emplace(patterns, strip.classes.size());
          if (is_new) strip.classes.push_back({listed_taps(strip, patterns), {}});
          const int64_t source =
              (depth.first(d) * height.size() + height.first(h)) * width.size() + width.first(w);
          strip.classes[at->second].places.push_back({source * lanes_, result * lanes_});
        }
      }
    }
    strips_.push_back(std::move(strip));
  }

  std::vector<LaneTap> listed_taps(const Strip& strip,
                                   const std::array<const AxisPattern*, 3>& patterns) const {
    const auto& [depth, height, width] = strip.axes;
    std::vector<LaneTap> taps;
    for (int64_t channel = 0; channel < listed_; ++channel) {
      for (const auto& [d, z] : *patterns[0]) {
        for (const auto& [h, y] : *patterns[1]) {
          for (const auto& [w, x] : *patterns[2]) {
            const int64_t tap = (d * plan_.kernel[1] + h) * plan_.kernel[2] + w;
            const int64_t line =
                channel * strip.frame_size() + (z * height.size() + y) * width.size() + x;
            taps.push_back({static_cast<int32_t>(channel * plan_.weight_channel + tap),
                            static_cast<int32_t>(line * lanes_)});
          }
        }
      }
    }
    return taps;
  }

  void run_task(const T* source, const T* weight, const T* bias, T* result, char* scratch,
                int64_t task) const {
    const int64_t part = task % filter_parts_;
    task /= filter_parts_;
    const Strip& strip = strips_[static_cast<size_t>(task % num_strips())];
    task /= num_strips();
    const int64_t group = task % plan_.groups;
    const int64_t image = task / plan_.groups * lanes_;
    T* const frame = reinterpret_cast<T*>(scratch);
    T* const sums = reinterpret_cast<T*>(scratch + frame_bytes_);
    const int64_t images = std::min(lanes_, plan_.batch - image);
    const int64_t filter = group * plan_.filters + part * part_filters_;
    const int64_t filters = std::min(part_filters_, plan_.filters - part * part_filters_);
    fill_frame(source, strip, group, image, images, frame);
    sum(weight + group * plan_.filters * plan_.channels * plan_.kernel_size() +
            part * part_filters_ * plan_.weight_row,
        bias == nullptr ? nullptr : bias + filter, strip, filters, frame, sums);
    const int64_t plane = plan_.result_size();
    const int64_t image_size = plan_.groups * plan_.filters * plane;
    T* const to = result + image * image_size + filter * plane + strip.row * plan_.result(2);
    const int64_t places = strip.num_places();
    if (places == plane) {
      kernels_.from_lines(sums, filters * places, images, to, image_size);
      return;
    }
    for (int64_t i = 0; i < filters; ++i) {
      kernels_.from_lines(sums + i * places * lanes_, places, images, to + i * plane, image_size);
    }
  }

  void fill_frame(const T* source, const Strip& strip, int64_t group, int64_t image, int64_t images,
                  T* frame) const {
    const auto& [depth, height, width] = strip.axes;
    const int64_t plane = plan_.source_size();
    const int64_t image_size = plan_.groups * plan_.channels * plane;
    const T* from = source + image * image_size + group * plan_.channels * plane;
    if (strip.frame_size() == plane) {
      kernels_.to_lines(from, image_size, images, plan_.channels * plane, frame);
      return;
    }
    const auto turn = [&](const T* first, int64_t count) {
      kernels_.to_lines(first, image_size, images, count, frame);
      frame += count * lanes_;
    };
    for (int64_t channel = 0; channel < plan_.channels; ++channel, from += plane) {
      for (const int64_t d : depth.elements()) {
        const T* const rows = from + d * plan_.source[1] * plan_.source[2];
        if (height.is_run()) {
          turn(rows + height.elements().front() * plan_.source[2], height.size() * width.size());
          continue;
        }
        for (const int64_t h : height.elements()) turn(rows + h * plan_.source[2], width.size());
      }
    }
  }

  /// Blocks of channels, then tiles of filters: a tile's weights stay in the first cache.
  void sum(const T* weight, const T* bias, const Strip& strip, int64_t filters, const T* frame,
           T* sums) const {
    const int64_t row = strip.num_places() * lanes_;
    const int64_t tiles = divide_up(filters, kernels_.rows);
    for (int64_t channel = 0; channel < plan_.channels; channel += block_) {
      const int64_t channels = std::min(block_, plan_.channels - channel);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t begin = filters * tile / tiles;
        const bool is_last = channel + channels == plan_.channels;
        LaneProduct<T> product{
            .a = weight + begin * plan_.weight_row + channel * plan_.weight_channel,
            .a_row = plan_.weight_row,
            .a_step = listed_ * plan_.weight_channel,
            .b = frame + channel * strip.frame_size() * lanes_,
            .b_step = listed_ * strip.frame_size() * lanes_,
            .taps = nullptr,
            .num_taps = 0,
            .steps = channels / listed_,
            .places = nullptr,
            .num_places = 0,
            .c = sums + begin * row,
            .c_row = row,
            .m = filters * (tile + 1) / tiles - begin,
            .bias = is_last && bias != nullptr ? bias + begin : nullptr,
            .accumulate = channel > 0};
        for (const PlaceClass& same : strip.classes) {
          product.taps = same.taps.data();
          product.num_taps = static_cast<int64_t>(same.taps.size());
          product.places = same.places.data();
          product.num_places = static_cast<int64_t>(same.places.size());
          kernels_.product(product);
        }
      }
    }
  }

  LanePlan plan_;
  const LaneKernels<T>& kernels_ = lane_kernels<T>();
  int64_t lanes_ = kernels_.lanes;
  int64_t image_groups_ = 1;
  int64_t strip_rows_ = 1;
  int64_t block_ = 1;   ///< channels that are summed at a time
  int64_t listed_ = 1;  ///< channels of a list of taps
  int64_t part_filters_ = 1;
  int64_t filter_parts_ = 1;
  std::vector<Strip> strips_;
  int num_slots_ = 1;
  size_t frame_bytes_ = 0;
  size_t result_bytes_ = 0;
  double task_ns_ = 0;
};

std::unique_ptr<Convolution> make(const ConvolutionSpec& spec, LanePlan plan) {
  if (spec.dtype == DType::kFloat64) {
    return std::make_unique<LaneConvolution<double>>(std::move(plan));
  }
  return std::make_unique<LaneConvolution<float>>(std::move(plan));
}

}  // namespace

std::unique_ptr<Convolution> make_lane_convolution(const ConvolutionSpec& spec) {
  return make(spec, forward_plan(spec));
}

std::unique_ptr<Convolution> make_lane_input_grad(const ConvolutionSpec& spec) {
  return make(spec, input_grad_plan(spec));
}

}  // namespace lucid::cpu

#include "backends/cpu/engine/window_convolution.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "backends/cpu/engine/padded_layout.h"
#include "backends/cpu/engine/sizes.h"
#include "backends/cpu/engine/slots.h"
#include "backends/cpu/engine/speed.h"
#include "backends/cpu/engine/window_product.h"

namespace lucid::cpu {
namespace {

constexpr int64_t kFrameBytes = 256 * 1024;  // padded images of one task: part of a cache
constexpr int64_t kGoodColumns = 128;        // outputs of a task, so that weights are used again
constexpr int64_t kManyColumns = 1024;       // where the weights themselves fill a cache
constexpr int64_t kLargeWeightBytes = 512 * 1024;
constexpr int64_t kTasksPerThread = 4;
constexpr int64_t kFilterUnit = 12;
constexpr int64_t kGatherFilters = 6;  // gathering a register costs what six filters do

/// A convolution in terms of the window that slides over its source.
struct WindowPlan {
  int64_t batch = 0;
  int64_t groups = 1;
  int64_t channels = 1;  ///< of a group of the source
  int64_t filters = 1;   ///< of a group of the result
  PaddedLayout layout;
  std::array<int64_t, 3> output{1, 1, 1};
  std::array<int64_t, 3> kernel{1, 1, 1};
  std::array<int64_t, 3> step{1, 1, 1};
  std::array<int64_t, 3> dilation{1, 1, 1};
  /// The weight's taps in the order of the window's, for a weight stored with its channels and
  /// filters exchanged; empty for a weight that is used as it stands.
  std::vector<int64_t> taps = {};
  int64_t stored_taps = 1;

  int64_t output_size() const { return output[0] * output[1] * output[2]; }
  int64_t depth() const { return channels * kernel[0] * kernel[1] * kernel[2]; }
  /// Rows of the frame that `count` rows of output read.
  int64_t frame_rows(int64_t count) const {
    return (count - 1) * step[1] + (kernel[1] - 1) * dilation[1] + 1;
  }
};

WindowPlan forward_plan(const ConvolutionSpec& spec) {
  const auto& axes = spec.axes;
  WindowPlan plan;
  plan.batch = spec.batch;
  plan.groups = spec.groups;
  plan.channels = spec.group_channels();
  plan.filters = spec.group_filters();
  plan.layout = PaddedLayout({window_axis(axes[0]), window_axis(axes[1]), window_axis(axes[2])},
                             window_step(axes[2]));
  for (size_t i = 0; i < 3; ++i) {
    plan.output[i] = axes[i].output;
    plan.kernel[i] = axes[i].kernel;
    plan.step[i] = window_step(axes[i]);
    plan.dilation[i] = axes[i].dilation;
  }
  return plan;
}

/// The elements origin, origin + stride, ... of one axis of the input gradient. They are a
/// convolution of step 1 of the output's gradient with every `tap_step`-th tap, last one first:
/// dx[origin + stride j] = sum over taps k = first_tap + tap_step m of
/// dy[j + shift - dilation m] w[k] (Dumoulin and Visin 2016, arXiv:1603.07285, section 4).
struct AxisPhase {
  int64_t count = 0;     ///< elements
  int64_t num_taps = 0;  ///< 0: the elements are zero
  int64_t first_tap = 0;
  int64_t tap_step = 1;
  int64_t dilation = 1;
  int64_t shift = 0;

  AxisPhase(const ConvolutionAxis& axis, int64_t origin) {
    count = (axis.input - origin + axis.stride - 1) / axis.stride;
    const int64_t common = std::gcd(axis.stride, axis.dilation);
    tap_step = axis.stride / common;
    dilation = axis.dilation / common;
    const int64_t at = origin + axis.padding;
    while (first_tap < axis.kernel && (at - first_tap * axis.dilation) % axis.stride != 0) {
      ++first_tap;
    }
    if (first_tap == axis.kernel) return;
    num_taps = (axis.kernel - 1 - first_tap) / tap_step + 1;
    shift = (at - first_tap * axis.dilation) / axis.stride;
  }
};

/// Plan of the elements of the input gradient that three phases meet in.
WindowPlan input_grad_plan(const ConvolutionSpec& spec, const std::array<AxisPhase, 3>& phases) {
  WindowPlan plan;
  plan.batch = spec.batch;
  plan.groups = spec.groups;
  plan.channels = spec.group_filters();
  plan.filters = spec.group_channels();
  std::array<PaddedAxis, 3> axes;
  for (size_t i = 0; i < 3; ++i) {
    const AxisPhase& phase = phases[i];
    const int64_t reach = (phase.num_taps - 1) * phase.dilation;
    axes[i] = {
        .source = spec.axes[i].output, .length = phase.count + reach, .lead = reach - phase.shift};
    plan.output[i] = phase.count;
    plan.kernel[i] = phase.num_taps;
    plan.dilation[i] = phase.dilation;
  }
  plan.layout = PaddedLayout(axes, 1);
  plan.stored_taps = spec.kernel_size();
  const auto tap = [&](size_t axis, int64_t m) {
    return phases[axis].first_tap + (phases[axis].num_taps - 1 - m) * phases[axis].tap_step;
  };
  for (int64_t d = 0; d < plan.kernel[0]; ++d) {
    for (int64_t h = 0; h < plan.kernel[1]; ++h) {
      for (int64_t w = 0; w < plan.kernel[2]; ++w) {
        plan.taps.push_back((tap(0, d) * spec.axes[1].kernel + tap(1, h)) * spec.axes[2].kernel +
                            tap(2, w));
      }
    }
  }
  return plan;
}

/// A task makes some rows of output, of some images, of some filters of a group.
struct Split {
  int64_t rows;     ///< of output along the height
  int64_t images;   ///< more than one only where rows are all
  int64_t filters;  ///< of a group
};

template <class T>
Split choose_split(const WindowPlan& plan) {
  constexpr int64_t kSize = sizeof(T);
  const int64_t row_bytes = plan.channels * plan.layout.channel_size(1) * kSize;
  const int64_t reach = plan.frame_rows(1);
  int64_t rows = plan.output[1];
  if (plan.output[0] == 1 && plan.layout.rows() * row_bytes > kFrameBytes) {
    const int64_t fitting = (kFrameBytes / row_bytes - reach) / plan.step[1] + 1;
    rows = std::clamp<int64_t>(fitting, std::min<int64_t>(4, rows), rows);
  }
  int64_t images = 1;
  if (rows == plan.output[1]) {
    const bool large = plan.filters * plan.depth() * kSize > kLargeWeightBytes;
    const int64_t wanted =
        divide_up(large ? kManyColumns : kGoodColumns, std::max<int64_t>(plan.output_size(), 1));
    images = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(plan.batch, 1));
  }
  const int64_t tasks =
      divide_up(plan.batch, images) * divide_up(plan.output[1], rows) * plan.groups;
  const int64_t filters = std::max<int64_t>(plan.filters, 1);
  int64_t parts = 1;
  if (num_threads() > 1 && tasks < num_threads() * kTasksPerThread) {
    parts = std::clamp<int64_t>(num_threads() * kTasksPerThread / std::max<int64_t>(tasks, 1), 1,
                                divide_up(filters, kFilterUnit));
  }
  return {rows, images, divide_up(filters, parts)};
}

template <class T>
class WindowConvolution final : public Convolution {
 public:
  explicit WindowConvolution(WindowPlan plan)
      : plan_(std::move(plan)), split_(choose_split<T>(plan_)) {
    strips_ = divide_up(plan_.output[1], split_.rows);
    image_groups_ = divide_up(plan_.batch, split_.images);
    filter_parts_ = divide_up(plan_.filters, split_.filters);
    frame_rows_ = strips_ == 1 ? plan_.layout.rows() : plan_.frame_rows(split_.rows);
    frame_size_ = plan_.channels * plan_.layout.channel_size(frame_rows_);
    make_offsets();
    make_spans();
    const int64_t tasks = num_tasks();
    num_slots_ = static_cast<int>(std::clamp<int64_t>(tasks, 1, num_threads()));
    slot_bytes_ = aligned(static_cast<size_t>(split_.images * frame_size_) * sizeof(T));
    if (!plan_.taps.empty())
      weight_bytes_ = aligned(static_cast<size_t>(weight_size()) * sizeof(T));
    const double flops = 2.0 * static_cast<double>(plan_.batch * plan_.output_size()) *
                         static_cast<double>(weight_size());
    if (tasks > 0) {
      task_ns_ = flops * sizeof(T) / kConvolutionBytesPerNs / static_cast<double>(tasks);
    }
  }

  size_t scratch_bytes() const override {
    return weight_bytes_ + slot_bytes_ * static_cast<size_t>(num_slots_);
  }

  void run(const void* first, const void* second, const void* third, void* result,
           void* scratch) const override {
    if (num_tasks() == 0 || plan_.output_size() == 0) return;
    const T* weight = static_cast<const T*>(second);
    if (!plan_.taps.empty()) {
      turn_weight(weight, static_cast<T*>(scratch));
      weight = static_cast<const T*>(scratch);
    }
    char* const slots = static_cast<char*>(scratch) + weight_bytes_;
    for_each_in_slots(num_tasks(), num_slots_, task_ns_, [&](int64_t slot, int64_t task) {
      T* const frame = reinterpret_cast<T*>(slots + static_cast<size_t>(slot) * slot_bytes_);
      run_task(static_cast<const T*>(first), weight, static_cast<const T*>(third),
               static_cast<T*>(result), frame, task);
    });
  }

 private:
  int64_t num_tasks() const { return image_groups_ * strips_ * plan_.groups * filter_parts_; }
  int64_t weight_size() const { return plan_.groups * plan_.filters * plan_.depth(); }

  void make_offsets() {
    for (int64_t channel = 0; channel < plan_.channels; ++channel) {
      const int64_t start = channel * plan_.layout.channel_size(frame_rows_);
      for (int64_t d = 0; d < plan_.kernel[0]; ++d) {
        for (int64_t h = 0; h < plan_.kernel[1]; ++h) {
          for (int64_t w = 0; w < plan_.kernel[2]; ++w) {
            offsets_.push_back(start + plan_.layout.offset(d * plan_.dilation[0],
                                                           h * plan_.dilation[1],
                                                           w * plan_.dilation[2], frame_rows_));
          }
        }
      }
    }
  }

  /// Spans of the largest task; a task of fewer images or rows uses the first of them. Where rows
  /// fill registers badly, and filters enough use what is gathered, a span runs on into the next
  /// row: the outputs of rows are neighbours.
  void make_spans() {
    const int64_t widest = window_product_kernels<T>().span_columns;
    const int64_t width = plan_.output[2];
    const int64_t rows = split_.rows * (strips_ == 1 ? plan_.output[0] : 1);
    const int64_t by_rows = rows * divide_up(width, widest) * plan_.filters;
    const int64_t gathered = divide_up(rows * width, widest) * (plan_.filters + kGatherFilters);
    gather_ = width % widest != 0 && gathered < by_rows;
    for (int64_t image = 0; image < split_.images; ++image) add_spans_of_image(image);
  }

  void add_spans_of_image(int64_t image) {
    const int64_t widest = window_product_kernels<T>().span_columns;
    const int64_t image_size = plan_.groups * plan_.filters * plan_.output_size();
    for (int64_t d = 0; d < plan_.output[0]; ++d) {
      for (int64_t h = 0; h < split_.rows; ++h) {
        const int64_t b = image * frame_size_ +
                          plan_.layout.offset(d * plan_.step[0], h * plan_.step[1], 0, frame_rows_);
        const int64_t c = image * image_size + (d * plan_.output[1] + h) * plan_.output[2];
        const bool fresh = !gather_ || (d == 0 && h == 0);
        add_row(b, c, widest, fresh);
      }
    }
  }

  /// Adds a row of outputs in pieces; a fresh row starts a span.
  void add_row(int64_t b, int64_t c, int64_t widest, bool fresh) {
    for (int64_t w = 0; w < plan_.output[2];) {
      if (fresh || spans_.back().columns == widest) {
        spans_.push_back({c + w, 0, static_cast<int64_t>(pieces_.size()), 0});
      }
      fresh = false;
      Span& span = spans_.back();
      const int64_t columns = std::min(widest - span.columns, plan_.output[2] - w);
      pieces_.push_back({b + w, span.columns, columns});
      span.columns += columns;
      ++span.num_pieces;
      w += columns;
    }
  }

  /// Spans of a task that holds whole ones only.
  int64_t num_spans(int64_t images, int64_t rows) const {
    const int64_t widest = window_product_kernels<T>().span_columns;
    const int64_t all_rows = rows * plan_.output[0];
    if (!gather_) return images * all_rows * divide_up(plan_.output[2], widest);
    if (rows < split_.rows) return all_rows * plan_.output[2] / widest;
    return images * divide_up(all_rows * plan_.output[2], widest);
  }

  /// The last span of a lower strip, cut where the strip ends; without columns if none is cut.
  Span cut_span(int64_t rows) const {
    if (!gather_ || rows == split_.rows) return {};
    const int64_t widest = window_product_kernels<T>().span_columns;
    const int64_t outputs = rows * plan_.output[0] * plan_.output[2];
    if (outputs % widest == 0) return {};
    Span span = spans_[static_cast<size_t>(outputs / widest)];
    span.columns = outputs % widest;
    const auto is_outside = [&](int64_t piece) {
      return pieces_[static_cast<size_t>(piece)].lane >= span.columns;
    };
    while (is_outside(span.first_piece + span.num_pieces - 1)) --span.num_pieces;
    return span;
  }

  /// (channels, filters, taps) of a group becomes (filters, channels, taps in the window's order).
  void turn_weight(const T* from, T* to) const {
    const int64_t rows = plan_.groups * plan_.filters;
    const double row_ns = static_cast<double>(plan_.depth());
    parallel_for(rows, 8, row_ns, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t group = row / plan_.filters;
        const int64_t filter = row % plan_.filters;
        T* target = to + row * plan_.depth();
        for (int64_t channel = 0; channel < plan_.channels; ++channel) {
          const T* const source =
              from +
              ((group * plan_.channels + channel) * plan_.filters + filter) * plan_.stored_taps;
          for (const int64_t tap : plan_.taps) *target++ = source[tap];
        }
      }
    });
  }

  void run_task(const T* source, const T* weight, const T* bias, T* result, T* frame,
                int64_t task) const {
    const int64_t part = task % filter_parts_;
    task /= filter_parts_;
    const int64_t group = task % plan_.groups;
    task /= plan_.groups;
    const int64_t row = task % strips_ * split_.rows;
    const int64_t image = task / strips_ * split_.images;
    const int64_t images = std::min(split_.images, plan_.batch - image);
    const int64_t rows = std::min(split_.rows, plan_.output[1] - row);
    fill_frame(source, frame, group, image, images, row);
    const int64_t filter = group * plan_.filters + part * split_.filters;
    const int64_t output_size = plan_.output_size();
    SpanProduct<T> product{.a = weight + filter * plan_.depth(),
                           .a_row = plan_.depth(),
                           .b = frame,
                           .b_offsets = offsets_.data(),
                           .spans = spans_.data(),
                           .num_spans = num_spans(images, rows),
                           .pieces = pieces_.data(),
                           .gather = gather_,
                           .c = result +
                                (image * plan_.groups * plan_.filters + filter) * output_size +
                                row * plan_.output[2],
                           .c_row = output_size,
                           .m = std::min(split_.filters, plan_.filters - part * split_.filters),
                           .k = plan_.depth(),
                           .bias = bias == nullptr ? nullptr : bias + filter};
    window_product_kernels<T>().spans(product);
    const Span last = cut_span(rows);
    if (last.columns == 0) return;
    product.spans = &last;
    product.num_spans = 1;
    window_product_kernels<T>().spans(product);
  }

  void fill_frame(const T* source, T* frame, int64_t group, int64_t image, int64_t images,
                  int64_t row) const {
    const int64_t channel_size = plan_.layout.source_size();
    for (int64_t i = 0; i < images; ++i) {
      const int64_t channel = ((image + i) * plan_.groups + group) * plan_.channels;
      plan_.layout.fill(source + channel * channel_size, plan_.channels, row * plan_.step[1],
                        frame_rows_, frame + i * frame_size_);
    }
  }

  WindowPlan plan_;
  Split split_;
  int64_t strips_ = 1;
  int64_t image_groups_ = 1;
  int64_t filter_parts_ = 1;
  int64_t frame_rows_ = 1;
  int64_t frame_size_ = 1;
  std::vector<int64_t> offsets_;
  std::vector<Span> spans_;
  std::vector<Piece> pieces_;
  bool gather_ = false;
  int num_slots_ = 1;
  size_t slot_bytes_ = 0;
  size_t weight_bytes_ = 0;
  double task_ns_ = 0;
};

template <class T>
class WindowInputGrad final : public Convolution {
 public:
  explicit WindowInputGrad(const ConvolutionSpec& spec) : spec_(spec) {
    const auto& axes = spec.axes;
    for (int64_t d = 0; d < std::min(axes[0].stride, axes[0].input); ++d) {
      for (int64_t h = 0; h < std::min(axes[1].stride, axes[1].input); ++h) {
        for (int64_t w = 0; w < std::min(axes[2].stride, axes[2].input); ++w) add_part({d, h, w});
      }
    }
    if (parts_.size() > 1) result_bytes_ = aligned(static_cast<size_t>(size_) * sizeof(T));
  }

  size_t scratch_bytes() const override { return result_bytes_ + part_bytes_; }

  void run(const void* first, const void* second, const void*, void* result,
           void* scratch) const override {
    if (size_ == 0) return;
    T* const parts = static_cast<T*>(parts_.size() > 1 ? scratch : result);
    for (const Part& part : parts_) {
      if (part.convolution == nullptr) continue;
      part.convolution->run(first, second, nullptr, parts + part.start,
                            static_cast<char*>(scratch) + result_bytes_);
    }
    if (parts_.size() > 1) interleave(parts, static_cast<T*>(result));
  }

 private:
  /// Elements of the gradient at a distance of the strides.
  struct Part {
    std::array<int64_t, 3> origin;
    std::array<int64_t, 3> count;
    int64_t start;                             ///< in the scratch, as (batch, channels, *count)
    std::unique_ptr<Convolution> convolution;  ///< null: zeros
  };

  void add_part(const std::array<int64_t, 3>& origin) {
    const std::array<AxisPhase, 3> phases = {AxisPhase(spec_.axes[0], origin[0]),
                                             AxisPhase(spec_.axes[1], origin[1]),
                                             AxisPhase(spec_.axes[2], origin[2])};
    Part part{origin, {phases[0].count, phases[1].count, phases[2].count}, size_, nullptr};
    if (phases[0].num_taps > 0 && phases[1].num_taps > 0 && phases[2].num_taps > 0) {
      part.convolution = std::make_unique<WindowConvolution<T>>(input_grad_plan(spec_, phases));
      part_bytes_ = std::max(part_bytes_, part.convolution->scratch_bytes());
    }
    size_ += spec_.batch * spec_.channels * part.count[0] * part.count[1] * part.count[2];
    parts_.push_back(std::move(part));
  }

  void interleave(const T* parts, T* result) const {
    const double plane_ns = static_cast<double>(spec_.input_size());
    const bool in_pairs = spec_.axes[2].stride == 2 && spec_.axes[2].input > 1;
    parallel_for(spec_.batch * spec_.channels, 1, plane_ns, [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        T* const to = result + plane * spec_.input_size();
        for (size_t i = 0; i < parts_.size(); ++i) {
          if (in_pairs) {
            weave(parts_[i], parts_[i + 1], parts, plane, to);
            ++i;
          } else {
            place(parts_[i], plane_of(parts_[i], parts, plane), to);
          }
        }
      }
    });
  }

  /// A part of one plane; null: zeros.
  static const T* plane_of(const Part& part, const T* parts, int64_t plane) {
    if (part.convolution == nullptr) return nullptr;
    return parts + part.start + plane * part.count[0] * part.count[1] * part.count[2];
  }

  /// The first element that a part has in rows (d, h) of a plane.
  int64_t first_of_rows(const Part& part, int64_t d, int64_t h) const {
    const auto& axes = spec_.axes;
    const int64_t depth = part.origin[0] + d * axes[0].stride;
    const int64_t row = part.origin[1] + h * axes[1].stride;
    return (depth * axes[1].input + row) * axes[2].input + part.origin[2];
  }

  /// Writes a part of one plane; zeros if `from` is null.
  void place(const Part& part, const T* from, T* plane) const {
    for (int64_t d = 0; d < part.count[0]; ++d) {
      for (int64_t h = 0; h < part.count[1]; ++h) {
        T* const to = plane + first_of_rows(part, d, h);
        for (int64_t w = 0; w < part.count[2]; ++w) {
          to[w * spec_.axes[2].stride] = from == nullptr ? T{0} : *from++;
        }
      }
    }
  }

  /// Writes two parts of one plane that have the even and the odd elements of the same rows.
  void weave(const Part& even, const Part& odd, const T* parts, int64_t plane, T* to) const {
    const T* const from_even = plane_of(even, parts, plane);
    const T* const from_odd = plane_of(odd, parts, plane);
    const auto rows = [&](const T* from, const Part& part, int64_t d) {
      return from == nullptr ? nullptr : from + d * part.count[1] * part.count[2];
    };
    for (int64_t d = 0; d < even.count[0]; ++d) {
      window_product_kernels<T>().weave({.even = rows(from_even, even, d),
                                         .odd = rows(from_odd, odd, d),
                                         .even_row = even.count[2],
                                         .odd_row = odd.count[2],
                                         .rows = even.count[1],
                                         .columns = spec_.axes[2].input},
                                        to + first_of_rows(even, d, 0),
                                        spec_.axes[1].stride * spec_.axes[2].input);
    }
  }

  ConvolutionSpec spec_;
  std::vector<Part> parts_;
  int64_t size_ = 0;
  size_t result_bytes_ = 0;
  size_t part_bytes_ = 0;
};

}  // namespace

ConvolutionSpec flatten_pointwise(ConvolutionSpec spec) {
  for (const ConvolutionAxis& axis : spec.axes) {
    if (axis.kernel != 1 || axis.stride != 1 || axis.padding != 0 || axis.input != axis.output) {
      return spec;
    }
  }
  const int64_t size = spec.input_size();
  spec.axes = {};
  spec.axes[2].input = size;
  spec.axes[2].output = size;
  return spec;
}

std::unique_ptr<Convolution> make_window_convolution(const ConvolutionSpec& spec) {
  const WindowPlan plan = forward_plan(flatten_pointwise(spec));
  if (spec.dtype == DType::kFloat64) return std::make_unique<WindowConvolution<double>>(plan);
  return std::make_unique<WindowConvolution<float>>(plan);
}

std::unique_ptr<Convolution> make_window_input_grad(const ConvolutionSpec& spec) {
  const ConvolutionSpec flat = flatten_pointwise(spec);
  if (spec.dtype == DType::kFloat64) return std::make_unique<WindowInputGrad<double>>(flat);
  return std::make_unique<WindowInputGrad<float>>(flat);
}

}  // namespace lucid::cpu

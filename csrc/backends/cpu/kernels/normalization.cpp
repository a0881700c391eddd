// Kernels of softmax, log_softmax, layer_norm, batch_norm and their gradients.
#include <algorithm>
#include <span>

#include "backends/cpu/kernels/axis_split.h"
#include "backends/cpu/kernels/families.h"
#include "backends/cpu/kernels/half_operands.h"
#include "backends/cpu/kernels/normalization_loops.h"
#include "backends/cpu/threads/team.h"

namespace lucid::cpu {
namespace {

constexpr double kNsPerByte = 0.15;
/// Elements of a task's rows, about.
constexpr int64_t kTask = 8192;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class T>
constexpr DType kDType = sizeof(T) == sizeof(double) ? DType::kFloat64 : DType::kFloat32;

template <class T>
NormalizationLoops<T> find_loops() {
  NormalizationLoops<T> loops;
  LUCID_ISA_CALL(active_isa(), get_loops(loops));
  return loops;
}

template <class T>
MathTiles math_tiles() {
  return {find_tile("exp", kDType<T>), find_tile("log", kDType<T>)};
}

template <class T>
double cost_ns(int64_t elements) {
  return static_cast<double>(elements) * sizeof(T) * kNsPerByte;
}

int64_t row_grain(int64_t length) {
  return std::max<int64_t>(1, kTask / std::max<int64_t>(length, 1));
}

/// Calls rows(first, count) on row ranges, or columns(offset, width) on blocks of columns.
template <class Rows, class Columns>
void for_each_line(const AxisSplit& split, double element_ns, Rows rows, Columns columns) {
  const auto [outer, length, inner] = split;
  if (outer * length * inner == 0) return;
  if (inner == 1) {
    parallel_for(outer, row_grain(length), element_ns * static_cast<double>(length),
                 [&](int64_t begin, int64_t end) { rows(begin, end - begin); });
    return;
  }
  const int64_t blocks = ceil_div(inner, kSoftmaxWidth);
  const double task_ns = element_ns * static_cast<double>(length * std::min(inner, kSoftmaxWidth));
  parallel_for(outer * blocks, 1, task_ns, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t j = task % blocks * kSoftmaxWidth;
      columns(task / blocks * length * inner + j, std::min(kSoftmaxWidth, inner - j));
    }
  });
}

template <class T, bool kLog>
class SoftmaxKernel final : public Kernel {
 public:
  explicit SoftmaxKernel(const NodeView& view)
      : split_(view.input(0).shape, view.node.integer("dim")) {}

  void run(const RunContext& context) const override {
    const T* x = context.in<T>(0);
    T* y = context.out<T>(0);
    for_each_line(
        split_, 2 * cost_ns<T>(1),
        [&](int64_t first, int64_t count) {
          const int64_t start = first * split_.length;
          loops_.softmax_rows(x + start, y + start, count, split_.length, kLog, tiles_);
        },
        [&](int64_t offset, int64_t width) {
          loops_.softmax_columns(x + offset, y + offset, split_.length, split_.inner, width, kLog,
                                 tiles_);
        });
  }

 private:
  AxisSplit split_;
  NormalizationLoops<T> loops_ = find_loops<T>();
  MathTiles tiles_ = math_tiles<T>();
};

template <class T, bool kLog>
class SoftmaxGradKernel final : public Kernel {
 public:
  explicit SoftmaxGradKernel(const NodeView& view)
      : split_(view.input(0).shape, view.node.integer("dim")) {}

  void run(const RunContext& context) const override {
    const T* grad = context.in<T>(0);
    const T* y = context.in<T>(1);
    T* dx = context.out<T>(0);
    for_each_line(
        split_, 2 * cost_ns<T>(1),
        [&](int64_t first, int64_t count) {
          const int64_t start = first * split_.length;
          loops_.softmax_grad_rows(grad + start, y + start, dx + start, count, split_.length, kLog,
                                   tiles_);
        },
        [&](int64_t offset, int64_t width) {
          loops_.softmax_grad_columns(grad + offset, y + offset, dx + offset, split_.length,
                                      split_.inner, width, kLog, tiles_);
        });
  }

 private:
  AxisSplit split_;
  NormalizationLoops<T> loops_ = find_loops<T>();
  MathTiles tiles_ = math_tiles<T>();
};

template <class T>
using Softmax = SoftmaxKernel<T, false>;
template <class T>
using LogSoftmax = SoftmaxKernel<T, true>;
template <class T>
using SoftmaxGrad = SoftmaxGradKernel<T, false>;
template <class T>
using LogSoftmaxGrad = SoftmaxGradKernel<T, true>;

/// Elements of the trailing axes that a layer norm covers.
int64_t trailing_elements(const NodeView& view, const Shape& shape) {
  return product(shape.sizes().last(static_cast<size_t>(view.node.integer("axes"))));
}

template <class T>
class LayerNorm final : public Kernel {
 public:
  explicit LayerNorm(const NodeView& view)
      : length_(trailing_elements(view, view.input(0).shape)),
        rows_(view.output(1).num_elements()),
        eps_(static_cast<T>(view.node.real("eps"))),
        has_weight_(view.has(1)),
        has_bias_(view.has(2)) {}

  void run(const RunContext& context) const override {
    const T* weight = input_if<T>(context, has_weight_, 1);
    const T* bias = input_if<T>(context, has_bias_, 2);
    parallel_for(rows_, row_grain(length_), cost_ns<T>(length_), [&](int64_t begin, int64_t end) {
      const int64_t start = begin * length_;
      loops_.layer_norm(context.in<T>(0) + start, weight, bias, eps_, end - begin, length_,
                        context.out<T>(0) + start, context.out<T>(1) + begin,
                        context.out<T>(2) + begin);
    });
  }

 private:
  int64_t length_;
  int64_t rows_;
  T eps_;
  bool has_weight_;
  bool has_bias_;
  NormalizationLoops<T> loops_ = find_loops<T>();
};

/// Rows are cut into chunks by their number alone; each chunk gives partial parameter gradients,
/// which are added in order.
template <class T>
class LayerNormGrad final : public Kernel {
 public:
  explicit LayerNormGrad(const NodeView& view)
      : length_(trailing_elements(view, view.input(0).shape)),
        rows_(view.input(2).num_elements()),
        chunk_(std::max<int64_t>(kMinChunk, ceil_div(rows_, kMaxChunks))),
        chunks_(ceil_div(rows_, chunk_)),
        has_weight_(view.has(4)) {}

  size_t scratch_bytes() const override {
    return static_cast<size_t>(2 * chunks_ * length_) * sizeof(T);
  }

  void run(const RunContext& context) const override {
    T* dweights = static_cast<T*>(context.scratch);
    T* dbiases = dweights + chunks_ * length_;
    const T* weight = input_if<T>(context, has_weight_, 4);
    parallel_for(chunks_, 1, 2 * cost_ns<T>(chunk_ * length_), [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        const int64_t row = chunk * chunk_;
        const int64_t start = row * length_;
        loops_.layer_norm_grad(context.in<T>(0) + start, context.in<T>(1) + start,
                               context.in<T>(2) + row, context.in<T>(3) + row, weight,
                               std::min(chunk_, rows_ - row), length_, context.out<T>(0) + start,
                               dweights + chunk * length_, dbiases + chunk * length_);
      }
    });
    add_chunks(dweights, context.out<T>(1));
    add_chunks(dbiases, context.out<T>(2));
  }

 private:
  static constexpr int64_t kMinChunk = 16;
  static constexpr int64_t kMaxChunks = 32;

  void add_chunks(const T* partial, T* total) const {
    std::fill_n(total, length_, T{0});
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
      const T* row = partial + chunk * length_;
      for (int64_t i = 0; i < length_; ++i) total[i] += row[i];
    }
  }

  int64_t length_;
  int64_t rows_;
  int64_t chunk_;
  int64_t chunks_;
  bool has_weight_;
  NormalizationLoops<T> loops_ = find_loops<T>();
};

ChannelView channel_view(const Shape& shape) {
  return {shape[0], shape[1], product(shape.sizes().subspan(2))};
}

/// Calls body(c, width) on single channels, or on blocks of them where each is one column.
template <class T, class Body>
void for_each_channel(const ChannelView& view, Body body) {
  const int64_t width = view.spatial == 1 ? kChannelBlock : 1;
  const double task_ns = 3 * cost_ns<T>(view.per_channel() * width);
  parallel_for(ceil_div(view.channels, width), 1, task_ns, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      body(block * width, std::min(width, view.channels - block * width));
    }
  });
}

template <class T>
class BatchNorm final : public Kernel {
 public:
  explicit BatchNorm(const NodeView& view)
      : view_(channel_view(view.input(0).shape)),
        eps_(static_cast<T>(view.node.real("eps"))),
        has_weight_(view.has(1)),
        has_bias_(view.has(2)) {}

  void run(const RunContext& context) const override {
    const T* weight = input_if<T>(context, has_weight_, 1);
    const T* bias = input_if<T>(context, has_bias_, 2);
    for_each_channel<T>(view_, [&](int64_t c, int64_t width) {
      loops_.batch_norm(view_, c, width, context.in<T>(0), weight, bias, eps_, context.out<T>(0),
                        context.out<T>(1), context.out<T>(2), context.out<T>(3));
    });
  }

 private:
  ChannelView view_;
  T eps_;
  bool has_weight_;
  bool has_bias_;
  NormalizationLoops<T> loops_ = find_loops<T>();
};

template <class T>
class BatchNormGrad final : public Kernel {
 public:
  explicit BatchNormGrad(const NodeView& view)
      : view_(channel_view(view.input(0).shape)), has_weight_(view.has(4)) {}

  void run(const RunContext& context) const override {
    const T* weight = input_if<T>(context, has_weight_, 4);
    for_each_channel<T>(view_, [&](int64_t c, int64_t width) {
      loops_.batch_norm_grad(view_, c, width, context.in<T>(0), context.in<T>(1), context.in<T>(2),
                             context.in<T>(3), weight, context.out<T>(0), context.out<T>(1),
                             context.out<T>(2));
    });
  }

 private:
  ChannelView view_;
  bool has_weight_;
  NormalizationLoops<T> loops_ = find_loops<T>();
};

constexpr KernelRow kRows[] = {
    {"softmax", make_floating<Softmax>},
    {"log_softmax", make_floating<LogSoftmax>},
    {"softmax_grad", make_floating<SoftmaxGrad>},
    {"log_softmax_grad", make_floating<LogSoftmaxGrad>},
    {"layer_norm", make_floating<LayerNorm>},
    {"layer_norm_grad", make_floating<LayerNormGrad>},
    {"batch_norm", make_floating<BatchNorm>},
    {"batch_norm_grad", make_floating<BatchNormGrad>},
};

}  // namespace

std::span<const KernelRow> normalization_kernels() { return kRows; }

}  // namespace lucid::cpu

// Kernels of maximum and average pooling and their gradients, in parallel over planes.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "backends/cpu/kernels/families.h"
#include "backends/cpu/kernels/half_operands.h"
#include "backends/cpu/kernels/pooling_loops.h"
#include "backends/cpu/threads/team.h"

namespace lucid::cpu {
namespace {

constexpr double kNsPerTap = 0.3;
constexpr int64_t kVectorRow = 8;  // outputs of a row that pay for vectors

template <class T>
PoolingLoops<T> find_loops() {
  PoolingLoops<T> loops;
  LUCID_ISA_CALL(active_isa(), get_loops(loops));
  return loops;
}

/// Puts the values of the spatial axes at the back of three.
void set_axes(PoolShape::Axes& axes, std::span<const int64_t> values) {
  std::ranges::copy(values, axes.end() - static_cast<int64_t>(values.size()));
}

PoolShape pool_shape(const NodeView& view, const Shape& input, const Shape& output) {
  PoolShape shape;
  set_axes(shape.size, input.sizes().subspan(2));
  set_axes(shape.out, output.sizes().subspan(2));
  set_axes(shape.kernel, view.node.ints("kernel"));
  set_axes(shape.stride, view.node.ints("stride"));
  set_axes(shape.padding, view.node.ints("padding"));
  return shape;
}

int64_t num_planes(const Shape& shape) { return shape[0] * shape[1]; }

double plane_ns(const PoolShape& shape) {
  return kNsPerTap * static_cast<double>(shape.out_plane() * product(shape.kernel)) +
         static_cast<double>(shape.out[0] * shape.out[1]) * 5;
}

/// Planes that make a task of some microseconds.
int64_t plane_grain(double cost_ns) {
  return std::max<int64_t>(1, static_cast<int64_t>(5000 / (cost_ns + 1)));
}

/// Calls body(plane) for every plane, on the team.
template <class Body>
void for_planes(int64_t planes, double cost_ns, Body body) {
  parallel_for(planes, plane_grain(cost_ns), cost_ns, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) body(plane);
  });
}

template <class T>
class MaxPool final : public Kernel {
 public:
  explicit MaxPool(const NodeView& view)
      : shape_(pool_shape(view, view.input(0).shape, view.output(0).shape)),
        planes_(num_planes(view.input(0).shape)) {
    set_axes(shape_.dilation, view.node.ints("dilation"));
  }

  void run(const RunContext& context) const override {
    for_planes(planes_, plane_ns(shape_), [&](int64_t plane) {
      const int64_t out = plane * shape_.out_plane();
      loops_.maximum(shape_, context.in<T>(0) + plane * shape_.plane(), context.out<T>(0) + out,
                     context.out<int32_t>(1) + out);
    });
  }

 private:
  PoolShape shape_;
  int64_t planes_;
  PoolingLoops<T> loops_ = find_loops<T>();
};

template <class T>
class MaxPoolGrad final : public Kernel {
 public:
  explicit MaxPoolGrad(const NodeView& view) : planes_(num_planes(view.output(0).shape)) {
    set_axes(shape_.size, view.output(0).shape.sizes().subspan(2));
    set_axes(shape_.out, view.input(0).shape.sizes().subspan(2));
    plane_ = shape_.plane();
    out_plane_ = shape_.out_plane();
    const auto is_half = [&](size_t axis) { return shape_.size[axis] / 2 == shape_.out[axis]; };
    may_be_pairs_ = shape_.out[2] >= kVectorRow && shape_.size[0] == 1 && shape_.out[0] == 1 &&
                    is_half(1) && is_half(2);
  }

  void run(const RunContext& context) const override {
    const double cost_ns = static_cast<double>(plane_) * 0.1 +
                           static_cast<double>(out_plane_) * (may_be_pairs_ ? 0.5 : 1.0);
    for_planes(planes_, cost_ns, [&](int64_t plane) {
      const T* const grad = context.in<T>(0) + plane * out_plane_;
      const int32_t* const indices = context.in<int32_t>(1) + plane * out_plane_;
      T* const dx = context.out<T>(0) + plane * plane_;
      if (may_be_pairs_ && loops_.maximum_grad_of_pairs(shape_, grad, indices, dx)) return;
      scatter(grad, indices, dx);
    });
  }

 private:
  void scatter(const T* grad, const int32_t* indices, T* dx) const {
    std::fill_n(dx, plane_, T{0});
    for (int64_t i = 0; i < out_plane_; ++i) {
      const int64_t place = indices[i];
      if (place < 0 || place >= plane_) {
        throw Error(ErrorKind::kIndex,
                    "max_pool_grad: index out of range: " + std::to_string(place) + " for size " +
                        std::to_string(plane_));
      }
      dx[place] += grad[i];
    }
  }

  PoolShape shape_;
  int64_t planes_;
  int64_t plane_ = 0;
  int64_t out_plane_ = 0;
  bool may_be_pairs_ = false;  ///< of windows of 2 x 2, as far as the sizes tell
  PoolingLoops<T> loops_ = find_loops<T>();
};

/// Divisors of averaging along each axis, found once.
template <class T>
class Divisors {
 public:
  Divisors(const PoolShape& shape, bool count_include_pad, int64_t divisor) {
    for (size_t axis = 0; axis < 3; ++axis) {
      std::vector<T>& values = by_axis_[axis];
      for (int64_t o = 0; o < shape.out[axis]; ++o) {
        const int64_t start = o * shape.stride[axis] - shape.padding[axis];
        const int64_t padded_end = shape.size[axis] + shape.padding[axis];
        const int64_t end = std::min(start + shape.kernel[axis], padded_end);
        const int64_t inside = std::min(end, shape.size[axis]) - std::max<int64_t>(start, 0);
        values.push_back(static_cast<T>(count_include_pad ? end - start : inside));
      }
      if (divisor == 0) continue;
      std::ranges::fill(values, axis == 0 ? static_cast<T>(divisor) : T{1});
    }
  }

  PoolDivisors<T> view() const {
    return {by_axis_[0].data(), by_axis_[1].data(), by_axis_[2].data()};
  }

 private:
  std::array<std::vector<T>, 3> by_axis_;
};

template <class T>
Divisors<T> divisors_of(const NodeView& view, const PoolShape& shape) {
  return Divisors<T>(shape, view.node.flag("count_include_pad"), view.node.integer("divisor"));
}

template <class T>
class AvgPool final : public Kernel {
 public:
  explicit AvgPool(const NodeView& view)
      : shape_(pool_shape(view, view.input(0).shape, view.output(0).shape)),
        planes_(num_planes(view.input(0).shape)),
        divisors_(divisors_of<T>(view, shape_)) {}

  void run(const RunContext& context) const override {
    for_planes(planes_, plane_ns(shape_), [&](int64_t plane) {
      loops_.average(shape_, divisors_.view(), context.in<T>(0) + plane * shape_.plane(),
                     context.out<T>(0) + plane * shape_.out_plane());
    });
  }

 private:
  PoolShape shape_;
  int64_t planes_;
  Divisors<T> divisors_;
  PoolingLoops<T> loops_ = find_loops<T>();
};

template <class T>
class AvgPoolGrad final : public Kernel {
 public:
  explicit AvgPoolGrad(const NodeView& view)
      : shape_(pool_shape(view, view.output(0).shape, view.input(0).shape)),
        planes_(num_planes(view.output(0).shape)),
        divisors_(divisors_of<T>(view, shape_)) {}

  void run(const RunContext& context) const override {
    for_planes(planes_, 2 * plane_ns(shape_), [&](int64_t plane) {
      loops_.average_grad(shape_, divisors_.view(), context.in<T>(0) + plane * shape_.out_plane(),
                          context.out<T>(0) + plane * shape_.plane());
    });
  }

 private:
  PoolShape shape_;
  int64_t planes_;
  Divisors<T> divisors_;
  PoolingLoops<T> loops_ = find_loops<T>();
};

constexpr KernelRow kRows[] = {
    {"max_pool", make_floating<MaxPool>},
    {"max_pool_grad", make_floating<MaxPoolGrad>},
    {"avg_pool", make_floating<AvgPool>},
    {"avg_pool_grad", make_floating<AvgPoolGrad>},
};

}  // namespace

std::span<const KernelRow> pooling_kernels() { return kRows; }

}  // namespace lucid::cpu

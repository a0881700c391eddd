// Kernels of attention and its gradient. Scores exist for one block of queries and keys at a time;
// the forward runs in parallel over stretches of queries of all heads, the backward over heads. The
// heads of one projection lie side by side in its rows, so a thread takes neighbours.
#include <algorithm>

#include "backends/cpu/engine/slots.h"
#include "backends/cpu/kernels/attention_loops.h"
#include "backends/cpu/kernels/families.h"
#include "backends/cpu/kernels/half_operands.h"
#include "backends/cpu/kernels/strided_copy.h"
#include "backends/cpu/threads/team.h"

namespace lucid::cpu {
namespace {

constexpr double kNsPerProduct = 0.02;
// Queries of a task of the forward: more would share one transposition of keys, fewer share out
// better among threads. No number depends on it.
constexpr int64_t kTaskQueries = 16 * kQueryGroup;

/// Places of q, k, v and mask among the inputs.
struct Places {
  size_t q, k, v, mask;
};

/// Rows of the heads of one operand.
class Heads {
 public:
  Heads(const Shape& shape, const StridedView& view)
      : leading_(shape.sizes().first(static_cast<size_t>(shape.rank() - 2))),
        view_(view),
        step_(view.strides[static_cast<size_t>(shape.rank() - 2)]) {}

  template <class T>
  HeadRows<T> rows(T* data, int64_t head) const {
    int64_t offset = view_.offset;
    for (int axis = leading_.rank() - 1; axis >= 0; --axis) {
      offset += head % leading_[axis] * view_.strides[static_cast<size_t>(axis)];
      head /= leading_[axis];
    }
    return {data + offset, step_};
  }

 private:
  Shape leading_;
  StridedView view_;
  int64_t step_;
};

Heads input_heads(const NodeView& view, size_t input) {
  return {view.input(input).shape, view.input_view(input)};
}

Heads output_heads(const NodeView& view, size_t output) {
  return {view.output(output).shape, view.output_view(output)};
}

bool gathers(const NodeView& view, int64_t queries, int64_t keys) {
  const bool has_views = !view.input_views.empty() || !view.output_views.empty();
  return has_views && std::max(queries, keys) > kScatteredRows;
}

/// What forward and backward share: shapes, the mask's strides, and scratch memory in slots.
template <class T>
class AttentionBase : public Kernel {
 public:
  AttentionBase(const NodeView& view, const Places& places)
      : places_(places),
        has_mask_(view.has(places.mask)),
        q_(input_heads(view, places.q)),
        k_(input_heads(view, places.k)),
        v_(input_heads(view, places.v)) {
    const Shape& q = view.input(places.q).shape;
    const Shape& k = view.input(places.k).shape;
    const Shape& v = view.input(places.v).shape;
    const int rank = q.rank();
    shape_ = {q[rank - 2],
              k[rank - 2],
              q[rank - 1],
              v[rank - 1],
              view.node.flag("causal"),
              view.node.real("scale"),
              gathers(view, q[rank - 2], k[rank - 2])};
    leading_ = Shape(q.sizes().first(static_cast<size_t>(rank - 2)));
    if (has_mask_) set_mask(view.input(places.mask), rank);
    LUCID_ISA_CALL(active_isa(), get_loops(loops_));
  }

 protected:
  AttentionHead<T> head(const RunContext& context, int64_t index) const {
    return {q_.rows(context.in<T>(places_.q), index), k_.rows(context.in<T>(places_.k), index),
            v_.rows(context.in<T>(places_.v), index), mask_of(context, index)};
  }

  int64_t num_heads() const { return leading_.num_elements(); }

  /// Work of one query row against all keys, times `products`.
  double row_ns(int products) const {
    return kNsPerProduct * products * static_cast<double>(shape_.keys) *
           static_cast<double>(shape_.depth + shape_.value_depth);
  }

  /// One slot of scratch for each thread that may take part.
  static int slots_for(int64_t tasks) {
    return static_cast<int>(std::clamp<int64_t>(tasks, 1, num_threads()));
  }

  Places places_;
  bool has_mask_;
  AttentionShape shape_;
  Shape leading_;
  AttentionLoops<T> loops_;

 private:
  void set_mask(const ir::ValueType& type, int rank) {
    const AxisArray strides = type.shape.strides();
    AxisArray padded{};
    for (int axis = 0; axis < type.shape.rank(); ++axis) {
      if (type.shape[axis] == 1) continue;
      padded[static_cast<size_t>(rank - type.shape.rank() + axis)] =
          strides[static_cast<size_t>(axis)];
    }
    std::copy_n(padded.begin(), rank - 2, mask_strides_.begin());
    mask_.is_bool = type.dtype == DType::kBool;
    mask_.query_stride = padded[static_cast<size_t>(rank - 2)];
    mask_.key_stride = padded[static_cast<size_t>(rank - 1)];
  }

  AttentionMask mask_of(const RunContext& context, int64_t index) const {
    if (!has_mask_) return {};
    int64_t offset = 0;
    for (int axis = leading_.rank() - 1; axis >= 0; --axis) {
      offset += index % leading_[axis] * mask_strides_[static_cast<size_t>(axis)];
      index /= leading_[axis];
    }
    AttentionMask mask = mask_;
    const int64_t element_bytes = mask.is_bool ? 1 : static_cast<int64_t>(sizeof(T));
    mask.data = context.in<char>(places_.mask) + offset * element_bytes;
    return mask;
  }

  Heads q_;
  Heads k_;
  Heads v_;
  AttentionMask mask_;
  AxisArray mask_strides_{};
};

template <class T>
class Attention final : public AttentionBase<T> {
  using Base = AttentionBase<T>;
  using Base::shape_;

 public:
  explicit Attention(const NodeView& view)
      : Base(view, {0, 1, 2, 3}),
        out_(output_heads(view, 0)),
        tasks_per_head_((shape_.queries + kTaskQueries - 1) / kTaskQueries),
        slot_size_(forward_scratch(shape_, std::min(shape_.queries, kTaskQueries))),
        num_slots_(Base::slots_for(Base::num_heads() * tasks_per_head_)) {}

  size_t scratch_bytes() const override {
    return static_cast<size_t>(num_slots_ * slot_size_) * sizeof(T);
  }

  void run(const RunContext& context) const override {
    const double task_ns =
        Base::row_ns(1) * static_cast<double>(std::min(shape_.queries, kTaskQueries));
    for_each_run_in_slots(Base::num_heads() * tasks_per_head_, num_slots_, task_ns,
                          [&](int64_t slot, int64_t task) {
                            run_task(context, task / tasks_per_head_, task % tasks_per_head_,
                                     static_cast<T*>(context.scratch) + slot * slot_size_);
                          });
  }

 private:
  void run_task(const RunContext& context, int64_t head, int64_t task, T* scratch) const {
    const int64_t first = task * kTaskQueries;
    Base::loops_.forward(
        shape_, Base::head(context, head), first, std::min(kTaskQueries, shape_.queries - first),
        out_.rows(context.out<T>(0), head), context.out<T>(1) + head * shape_.queries, scratch);
  }

  Heads out_;
  int64_t tasks_per_head_;
  int64_t slot_size_;
  int num_slots_;
};

template <class T>
class AttentionGrad final : public AttentionBase<T> {
  using Base = AttentionBase<T>;
  using Base::shape_;

 public:
  explicit AttentionGrad(const NodeView& view)
      : Base(view, {1, 2, 3, 6}),
        grad_(input_heads(view, 0)),
        out_(input_heads(view, 4)),
        dq_(output_heads(view, 0)),
        dk_(output_heads(view, 1)),
        dv_(output_heads(view, 2)),
        num_slots_(Base::slots_for(Base::num_heads())) {}

  size_t scratch_bytes() const override {
    return static_cast<size_t>(num_slots_ * backward_scratch(shape_)) * sizeof(T);
  }

  void run(const RunContext& context) const override {
    const double task_ns = Base::row_ns(3) * static_cast<double>(shape_.queries);
    for_each_run_in_slots(Base::num_heads(), num_slots_, task_ns, [&](int64_t slot, int64_t head) {
      Base::loops_.backward(shape_, Base::head(context, head), grads(context, head),
                            static_cast<T*>(context.scratch) + slot * backward_scratch(shape_));
    });
  }

 private:
  AttentionGradHead<T> grads(const RunContext& context, int64_t head) const {
    return {grad_.rows(context.in<T>(0), head),       out_.rows(context.in<T>(4), head),
            context.in<T>(5) + head * shape_.queries, dq_.rows(context.out<T>(0), head),
            dk_.rows(context.out<T>(1), head),        dv_.rows(context.out<T>(2), head)};
  }

  Heads grad_;
  Heads out_;
  Heads dq_;
  Heads dk_;
  Heads dv_;
  int num_slots_;
};

/// Heads may lie anywhere, but the elements of a row side by side.
bool has_rows(const ir::ValueType& type, const StridedView& place) {
  if (type.dtype != DType::kFloat32 && type.dtype != DType::kFloat64) return false;
  const int last = type.shape.rank() - 1;
  return type.shape[last] == 1 || place.strides[static_cast<size_t>(last)] == 1;
}

bool attention_reads(const NodeView& view, size_t input, const StridedView& place) {
  return input < 3 && has_rows(view.input(input), place);
}
bool attention_writes(const NodeView& view, size_t output, const StridedView& place) {
  return output == 0 && has_rows(view.output(0), place);
}
bool attention_grad_reads(const NodeView& view, size_t input, const StridedView& place) {
  return input < 5 && has_rows(view.input(input), place);
}
bool attention_grad_writes(const NodeView& view, size_t output, const StridedView& place) {
  return has_rows(view.output(output), place);
}

constexpr KernelRow kRows[] = {
    {"attention", make_floating<Attention>, nullptr, attention_reads, attention_writes},
    {"attention_grad", make_floating<AttentionGrad>, nullptr, attention_grad_reads,
     attention_grad_writes},
};

}  // namespace

std::span<const KernelRow> attention_kernels() { return kRows; }

}  // namespace lucid::cpu

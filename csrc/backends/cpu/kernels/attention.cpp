// Kernels of attention and its gradient. Scores exist for one tile of query rows at a time; the
// forward runs in parallel over tiles of all heads, the backward over heads.
#include <algorithm>

#include "backends/cpu/engine/slots.h"
#include "backends/cpu/kernels/attention_loops.h"
#include "backends/cpu/kernels/families.h"
#include "backends/cpu/kernels/half_operands.h"
#include "backends/cpu/kernels/strided_copy.h"
#include "backends/cpu/threads/team.h"

namespace lucid::cpu {
namespace {

constexpr double kNsPerProduct = 0.03;

template <class T>
constexpr DType kDType = sizeof(T) == sizeof(double) ? DType::kFloat64 : DType::kFloat32;

/// Places of q, k, v and mask among the inputs.
struct Places {
  size_t q, k, v, mask;
};

/// What forward and backward share: shapes, the mask's strides, and scratch memory in slots.
template <class T>
class AttentionBase : public Kernel {
 public:
  AttentionBase(const NodeView& view, const Places& places)
      : places_(places), has_mask_(view.has(places.mask)) {
    const Shape& q = view.input(places.q).shape;
    const Shape& k = view.input(places.k).shape;
    const Shape& v = view.input(places.v).shape;
    const int rank = q.rank();
    shape_ = {q[rank - 2],
              k[rank - 2],
              q[rank - 1],
              v[rank - 1],
              view.node.flag("causal"),
              view.node.real("scale")};
    leading_ = Shape(q.sizes().first(static_cast<size_t>(rank - 2)));
    if (has_mask_) set_mask(view.input(places.mask), rank);
    LUCID_ISA_CALL(active_isa(), get_loops(loops_));
  }

 protected:
  AttentionHead<T> head(const RunContext& context, int64_t index) const {
    return {context.in<T>(places_.q) + index * shape_.queries * shape_.depth,
            context.in<T>(places_.k) + index * shape_.keys * shape_.depth,
            context.in<T>(places_.v) + index * shape_.keys * shape_.value_depth,
            mask_of(context, index)};
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
  MathTiles tiles_ = {find_tile("exp", kDType<T>), find_tile("log", kDType<T>)};

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
        tiles_per_head_((shape_.queries + kQueryTile - 1) / kQueryTile),
        num_slots_(Base::slots_for(Base::num_heads() * tiles_per_head_)) {}

  size_t scratch_bytes() const override {
    return static_cast<size_t>(num_slots_ * forward_scratch(shape_)) * sizeof(T);
  }

  void run(const RunContext& context) const override {
    const double task_ns = Base::row_ns(1) * kQueryTile;
    for_each_in_slots(
        Base::num_heads() * tiles_per_head_, num_slots_, task_ns, [&](int64_t slot, int64_t task) {
          const int64_t head = task / tiles_per_head_;
          const int64_t first = task % tiles_per_head_ * kQueryTile;
          Base::loops_.forward(shape_, Base::head(context, head), first,
                               std::min(kQueryTile, shape_.queries - first), Base::tiles_,
                               context.out<T>(0) + head * shape_.queries * shape_.value_depth,
                               context.out<T>(1) + head * shape_.queries,
                               static_cast<T*>(context.scratch) + slot * forward_scratch(shape_));
        });
  }

 private:
  int64_t tiles_per_head_;
  int num_slots_;
};

template <class T>
class AttentionGrad final : public AttentionBase<T> {
  using Base = AttentionBase<T>;
  using Base::shape_;

 public:
  explicit AttentionGrad(const NodeView& view)
      : Base(view, {1, 2, 3, 6}), num_slots_(Base::slots_for(Base::num_heads())) {}

  size_t scratch_bytes() const override {
    return static_cast<size_t>(num_slots_ * backward_scratch(shape_)) * sizeof(T);
  }

  void run(const RunContext& context) const override {
    const int64_t q_size = shape_.queries * shape_.depth;
    const int64_t k_size = shape_.keys * shape_.depth;
    const int64_t v_size = shape_.keys * shape_.value_depth;
    const int64_t out_size = shape_.queries * shape_.value_depth;
    const double task_ns = Base::row_ns(3) * static_cast<double>(shape_.queries);
    for_each_in_slots(Base::num_heads(), num_slots_, task_ns, [&](int64_t slot, int64_t head) {
      Base::loops_.backward(shape_, Base::head(context, head), context.in<T>(0) + head * out_size,
                            context.in<T>(4) + head * out_size,
                            context.in<T>(5) + head * shape_.queries, Base::tiles_,
                            context.out<T>(0) + head * q_size, context.out<T>(1) + head * k_size,
                            context.out<T>(2) + head * v_size,
                            static_cast<T*>(context.scratch) + slot * backward_scratch(shape_));
    });
  }

 private:
  int num_slots_;
};

constexpr KernelRow kRows[] = {
    {"attention", make_floating<Attention>},
    {"attention_grad", make_floating<AttentionGrad>},
};

}  // namespace

std::span<const KernelRow> attention_kernels() { return kRows; }

}  // namespace lucid::cpu

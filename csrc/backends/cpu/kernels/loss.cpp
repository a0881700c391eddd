// Kernels of cross_entropy and its gradient: one pass over each row of logits.
//
// With w the class weights, t the target, e the label smoothing and C classes, the loss of a row is
//     (1 - e) w[t] (lse - x[t]) + e / C sum_c w[c] (lse - x[c]),  lse = log sum_c exp(x[c]);
// the mean divides the sum by the sum of w[t]. Ignored rows count in neither.
// Source: PyTorch 2.13, torch.nn.CrossEntropyLoss.
#include <algorithm>
#include <string>

#include "backends/cpu/kernels/families.h"
#include "backends/cpu/kernels/half_operands.h"
#include "backends/cpu/kernels/indices.h"
#include "backends/cpu/kernels/loss_loops.h"
#include "backends/cpu/kernels/reduction_loops.h"
#include "backends/cpu/threads/team.h"

namespace lucid::cpu {
namespace {

constexpr double kNsPerElement = 1.0;
constexpr int64_t kTask = 4096;

template <class T>
constexpr DType kDType = sizeof(T) == sizeof(double) ? DType::kFloat64 : DType::kFloat32;

enum class Averaging : uint8_t { kNone, kMean, kSum };

Averaging averaging(const std::string& reduction) {
  if (reduction == "none") return Averaging::kNone;
  return reduction == "mean" ? Averaging::kMean : Averaging::kSum;
}

/// What forward and backward share: sizes, attributes and the weighting of rows.
template <class T>
class CrossEntropyBase : public Kernel {
 public:
  CrossEntropyBase(const NodeView& view, size_t logits, size_t target, size_t weight)
      : op_(view.node.op->name),
        rows_(view.input(logits).shape[0]),
        classes_(view.input(logits).shape[1]),
        target_dtype_(view.input(target).dtype),
        has_weight_(view.has(weight)),
        ignore_index_(view.node.integer("ignore_index")),
        smoothing_(view.node.real("label_smoothing")),
        averaging_(averaging(view.node.string("reduction"))) {
    LUCID_ISA_CALL(active_isa(), get_loops(loops_));
  }

 protected:
  void check_targets(IndexReader targets) const {
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t target = targets[r];
      if (target == ignore_index_ || (target >= 0 && target < classes_)) continue;
      throw Error(ErrorKind::kIndex, std::string(op_) +
                                         ": target out of range: " + std::to_string(target) +
                                         " for " + std::to_string(classes_) + " classes");
    }
  }

  /// Sum of the target weights of the rows that count, in row order.
  T total_weight(IndexReader targets, const T* weight) const {
    double total = 0;
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t target = targets[r];
      if (target == ignore_index_) continue;
      total += weight == nullptr ? 1.0 : static_cast<double>(weight[target]);
    }
    return static_cast<T>(total);
  }

  /// Share of a row's smoothing term that each class has.
  double class_share() const { return smoothing_ / static_cast<double>(classes_); }

  /// Calls body(first, end) on ranges of rows.
  template <class Body>
  void for_rows(Body body) const {
    const int64_t grain = std::max<int64_t>(1, kTask / std::max<int64_t>(classes_, 1));
    parallel_for(rows_, grain, kNsPerElement * static_cast<double>(classes_) + 5, body);
  }

  std::string_view op_;
  int64_t rows_;
  int64_t classes_;
  DType target_dtype_;
  bool has_weight_;
  int64_t ignore_index_;
  double smoothing_;
  Averaging averaging_;
  LossLoops<T> loops_;
  MathTiles tiles_ = {find_tile("exp", kDType<T>), find_tile("log", kDType<T>)};
};

template <class T>
class CrossEntropy final : public CrossEntropyBase<T> {
  using Base = CrossEntropyBase<T>;
  using Base::averaging_;
  using Base::classes_;
  using Base::ignore_index_;
  using Base::loops_;
  using Base::rows_;
  using Base::tiles_;

 public:
  explicit CrossEntropy(const NodeView& view) : Base(view, 0, 1, 2) {}

  size_t scratch_bytes() const override {
    return averaging_ == Averaging::kNone ? 0 : static_cast<size_t>(rows_) * sizeof(T);
  }

  void run(const RunContext& context) const override {
    const T* logits = context.in<T>(0);
    const IndexReader targets(context.inputs[1], Base::target_dtype_);
    const T* weight = input_if<T>(context, Base::has_weight_, 2);
    T* log_sum_exp = context.out<T>(1);
    Base::check_targets(targets);
    const bool is_reduced = averaging_ != Averaging::kNone;
    T* losses = is_reduced ? static_cast<T*>(context.scratch) : context.out<T>(0);
    Base::for_rows([&](int64_t begin, int64_t end) {
      loops_.log_sum_exp(logits + begin * classes_, end - begin, classes_, tiles_,
                         log_sum_exp + begin);
      for (int64_t r = begin; r < end; ++r) {
        losses[r] = row_loss(logits + r * classes_, targets[r], weight, log_sum_exp[r]);
      }
    });
    if (!is_reduced) return;
    T* loss = context.out<T>(0);
    fold_loops(FoldKind::kSum, kDType<T>).rows(losses, 1, rows_, loss);
    if (averaging_ == Averaging::kMean) *loss /= Base::total_weight(targets, weight);
  }

 private:
  T row_loss(const T* x, int64_t target, const T* weight, T log_sum_exp) const {
    if (target == ignore_index_) return 0;
    const T target_weight = weight == nullptr ? T{1} : weight[target];
    const T likelihood = target_weight * (log_sum_exp - x[target]);
    if (Base::smoothing_ == 0) return likelihood;
    const T smooth = loops_.smoothed(x, weight, log_sum_exp, classes_);
    return static_cast<T>(1 - Base::smoothing_) * likelihood +
           static_cast<T>(Base::class_share()) * smooth;
  }
};

template <class T>
class CrossEntropyGrad final : public CrossEntropyBase<T> {
  using Base = CrossEntropyBase<T>;
  using Base::averaging_;
  using Base::classes_;
  using Base::ignore_index_;
  using Base::loops_;
  using Base::rows_;
  using Base::tiles_;

 public:
  explicit CrossEntropyGrad(const NodeView& view) : Base(view, 1, 2, 4) {}

  // d x[c] = g (((1 - e) w[t] + e / C sum w) p[c] - (1 - e) w[t] [c = t] - e / C w[c]), where g is
  // the gradient of the row's loss and p = softmax(x).
  void run(const RunContext& context) const override {
    const T* logits = context.in<T>(1);
    const IndexReader targets(context.inputs[2], Base::target_dtype_);
    const T* log_sum_exp = context.in<T>(3);
    const T* weight = input_if<T>(context, Base::has_weight_, 4);
    T* dx = context.out<T>(0);
    Base::check_targets(targets);
    const Scales scales = find_scales(context, targets, weight);
    Base::for_rows([&](int64_t begin, int64_t end) {
      loops_.probabilities(logits + begin * classes_, log_sum_exp + begin, end - begin, classes_,
                           tiles_, dx + begin * classes_);
      for (int64_t r = begin; r < end; ++r) {
        const T grad = averaging_ == Averaging::kNone ? scales.grad[r] : scales.mean_grad;
        finish_row(dx + r * classes_, targets[r], weight, grad, scales);
      }
    });
  }

 private:
  struct Scales {
    const T* grad;   ///< per row, for no reduction
    T mean_grad;     ///< gradient of each row's loss otherwise
    T kept;          ///< 1 - label smoothing
    T share;         ///< label smoothing per class
    T smooth_total;  ///< share times the sum of the class weights
  };

  Scales find_scales(const RunContext& context, IndexReader targets, const T* weight) const {
    Scales scales{.grad = context.in<T>(0),
                  .mean_grad = 0,
                  .kept = static_cast<T>(1 - Base::smoothing_),
                  .share = static_cast<T>(Base::class_share()),
                  .smooth_total = static_cast<T>(Base::smoothing_)};
    if (averaging_ != Averaging::kNone) scales.mean_grad = scales.grad[0];
    if (averaging_ == Averaging::kMean) scales.mean_grad /= Base::total_weight(targets, weight);
    if (weight != nullptr && Base::smoothing_ != 0) {
      fold_loops(FoldKind::kSum, kDType<T>).rows(weight, 1, classes_, &scales.smooth_total);
      scales.smooth_total *= scales.share;
    }
    return scales;
  }

  void finish_row(T* row, int64_t target, const T* weight, T grad, const Scales& scales) const {
    if (target == ignore_index_) {
      std::fill_n(row, classes_, T{0});
      return;
    }
    const T target_weight = scales.kept * (weight == nullptr ? T{1} : weight[target]);
    loops_.scale(row, weight, grad * (target_weight + scales.smooth_total), grad * scales.share,
                 classes_);
    row[target] -= grad * target_weight;
  }
};

constexpr KernelRow kRows[] = {
    {"cross_entropy", [](const NodeView& view) { return make_floating<CrossEntropy>(view); }},
    {"cross_entropy_grad",
     [](const NodeView& view) { return make_floating<CrossEntropyGrad>(view); }},
};

}  // namespace

std::span<const KernelRow> loss_kernels() { return kRows; }

}  // namespace lucid::cpu

// Tensor: a cell that holds a value. Values never change; in-place operations put a new value
// into the cell.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ir/graph.h"
#include "runtime/tensor/variable.h"

namespace lucid::runtime {

class Tensor;
using TensorRef = std::shared_ptr<Tensor>;

/// Called with a gradient; returns its replacement, or null to keep it. Implemented by bindings.
using GradHook = std::function<TensorRef(const TensorRef& grad)>;

/// How a view is taken from its base, and by that how it is written back.
struct View {
  TensorRef base;
  int depth = 1;               ///< views between this and the tensor that is no view
  const ir::Op* op = nullptr;  ///< reshape, permute or slice
  ir::Attrs attrs;
  uint64_t taken_version = 0;  ///< version of the base's cell when the view was last taken
};

/// The slot that tensor objects share: a tensor, its detach() and its data have one cell. While a
/// trace records, its thread sees the trace's stand-ins instead of the cells it has changed.
struct Cell {
  Variable variable;
  uint64_t version = 0;  ///< counts the values put in
  std::unique_ptr<View> view;
};

/// What only some tensors have: gradient state of leaves, hooks.
struct GradState {
  Variable grad;  ///< accumulated gradient; valid if has_grad
  bool has_grad = false;
  TensorRef grad_tensor;  ///< the object that Python sees as .grad, made when first asked for
  std::shared_ptr<GradNode> accumulator;
  std::vector<std::pair<uint64_t, GradHook>> hooks;
  bool retains_grad = false;
};

class Tensor : public std::enable_shared_from_this<Tensor> {
 public:
  explicit Tensor(Variable variable);
  /// A tensor that shares the cell; detached, it has no history.
  Tensor(std::shared_ptr<Cell> cell, bool is_detached);

  /// The current value with history; a stale view is taken again first.
  const Variable& variable() const;
  const Value& value() const { return variable().value; }
  /// The value as an operand: with the edge that gradients take from here.
  Variable operand() const;

  /// The edge of operand(), without a copy of the value.
  Edge edge() const;

  /// Types never change after construction, so these never take a view again.
  const ir::ValueType& type() const { return cell_->variable.value.type; }
  Device device() const { return cell_->variable.value.device; }
  bool is_symbolic() const { return value().is_symbolic(); }
  bool requires_grad() const;
  bool is_leaf() const;
  /// True for a tensor that reads its cell without the cell's history.
  bool is_detached() const { return is_detached_; }

  /// Throws AutogradError for a non-leaf set to false, DtypeError for a dtype without gradients.
  void set_requires_grad(bool requires_grad);
  TensorRef detach() const;

  /// Puts a new value of the same type into the cell: every in-place operation. Checks the rules
  /// for leaves, writes through views, and is noted while a trace records.
  void assign(Variable variable);
  /// Ties the tensor, which has no history yet, to the tape node that made it.
  void set_history(Edge edge) { cell_->variable.edge = std::move(edge); }
  /// Puts a value of any type into the cell, history dropped: `p.data = value`.
  void set_data(const Value& value);

  /// The gradient as the object that Python sees; null if there is none.
  TensorRef grad();
  void set_grad(TensorRef grad);
  /// Adds a finished gradient of one backward.
  void accumulate(Variable grad);
  bool has_grad() const { return state_ != nullptr && (state_->has_grad || state_->grad_tensor); }

  uint64_t add_hook(GradHook hook);
  void remove_hook(uint64_t id);
  void retain_grad();

  const std::shared_ptr<Cell>& cell() const { return cell_; }
  /// Counts the values that this thread has seen in the cell.
  uint64_t version() const { return seen().version; }
  GradState& state();
  const GradState* state_if_any() const { return state_.get(); }
  /// The tape node that adds to this leaf's gradient.
  Edge accumulator_edge() const;

 private:
  Cell& seen() const;
  void refresh() const;
  void check_writable() const;

  std::shared_ptr<Cell> cell_;
  bool is_detached_ = false;
  bool requires_grad_ = false;  ///< of a leaf
  Edge own_edge_;               ///< history that in-place operations gave a detached tensor
  std::unique_ptr<GradState> state_;
};

TensorRef make_tensor(Variable variable);
TensorRef make_tensor(Value value);

}  // namespace lucid::runtime

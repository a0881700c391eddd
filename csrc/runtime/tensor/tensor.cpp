#include "runtime/tensor/tensor.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "ops/registry.h"
#include "runtime/autograd/checkpoint.h"
#include "runtime/autograd/node.h"
#include "runtime/dispatch/dispatch.h"
#include "runtime/process.h"
#include "runtime/trace/recorder.h"
#include "support/errors.h"

namespace lucid::runtime {
namespace {

std::atomic<uint64_t> next_hook_id{1};

// The base's new value after its view was given `written`.
Variable written_back(const View& view, const Variable& written) {
  const std::string_view name = view.op->name;
  const auto sizes = view.base->type().shape.sizes();
  if (name == "reshape") {
    return dispatch_one(*view.op, {written}, {ir::Ints(sizes.begin(), sizes.end())});
  }
  if (name == "permute") {
    const auto& dims = std::get<ir::Ints>(view.attrs[0]);
    ir::Ints inverse(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) {
      inverse[static_cast<size_t>(dims[i])] = static_cast<int64_t>(i);
    }
    return dispatch_one(*view.op, {written}, {inverse});
  }
  static const ir::Op& slice_update = ops::get("slice_update");
  const std::vector<Operand> operands = {view.base, written};
  return dispatch(slice_update, operands, {view.attrs[0], view.attrs[2]}).front();
}

}  // namespace

TensorRef make_tensor(Variable variable) { return std::make_shared<Tensor>(std::move(variable)); }

TensorRef make_tensor(Value value) {
  return std::make_shared<Tensor>(Variable{.value = std::move(value)});
}

Tensor::Tensor(Variable variable) : cell_(std::make_shared<Cell>()) {
  cell_->variable = std::move(variable);
}

Tensor::Tensor(std::shared_ptr<Cell> cell, bool is_detached)
    : cell_(std::move(cell)), is_detached_(is_detached) {}

// The cell as this thread sees it.
Cell& Tensor::seen() const {
  if (!Recorder::is_any_on()) return *cell_;
  Recorder* recorder = thread_state().recorder;
  return recorder == nullptr ? *cell_ : recorder->seen(*cell_);
}

const Variable& Tensor::variable() const {
  while (true) {
    if (cell_->view != nullptr) refresh();
    const Variable& found = seen().variable;
    if (found.value.buffer == nullptr || !found.value.buffer->is_changing()) return found;
    // A run that overwrites a cell's buffer needs no lock of ours to end. Others may put another
    // value into the cell meanwhile.
    const backends::BufferRef buffer = found.value.buffer;
    const HostPause pause(true);
    buffer->wait_for_change();
  }
}

void Tensor::refresh() const {
  const View& view = *cell_->view;
  view.base->variable();
  const uint64_t version = view.base->version();
  if (seen().view->taken_version == version) return;
  const HostHold hold;
  const GradMode grad_mode(true);
  const std::vector<Operand> operands = {view.base};
  Variable taken = dispatch(*view.op, operands, view.attrs).front();
  Recorder* recorder = thread_state().recorder;
  Cell& cell = recorder == nullptr ? *cell_ : recorder->refreshed(cell_);
  cell.variable = std::move(taken);
  cell.view->taken_version = version;
  ++cell.version;
}

Variable Tensor::operand() const {
  Variable result = variable();
  if (is_detached_) {
    result.edge = own_edge_;
    result.tracks = false;
  }
  if (requires_grad_ && !result.edge) result.edge = accumulator_edge();
  return result;
}

Edge Tensor::edge() const {
  const Edge& history = is_detached_ ? own_edge_ : variable().edge;
  return requires_grad_ && !history ? accumulator_edge() : history;
}

bool Tensor::requires_grad() const {
  if (is_detached_) return requires_grad_ || static_cast<bool>(own_edge_);
  return requires_grad_ || variable().requires_grad();
}

bool Tensor::is_leaf() const { return is_detached_ ? !own_edge_ : !variable().requires_grad(); }

void Tensor::set_requires_grad(bool requires_grad) {
  if (requires_grad == this->requires_grad()) return;
  if (!is_leaf()) {
    throw Error(ErrorKind::kAutograd,
                "requires_grad_: only a leaf can stop requiring a gradient; use detach() to get a "
                "tensor without history");
  }
  if (requires_grad && !is_floating(type().dtype)) {
    throw Error(ErrorKind::kDType, "requires_grad_: only floating dtypes have gradients: got " +
                                       std::string(name(type().dtype)));
  }
  requires_grad_ = requires_grad;
  if (requires_grad) accumulator_edge();  // now, so that threads that read it later change nothing
}

TensorRef Tensor::detach() const { return std::make_shared<Tensor>(cell_, true); }

void Tensor::check_writable() const {
  if (!thread_state().grad_enabled || !requires_grad_ || !is_leaf()) return;
  throw Error(ErrorKind::kAutograd,
              "in-place change: the tensor is a leaf that requires a gradient; wrap it in "
              "lucid.no_grad() or change a clone");
}

void Tensor::assign(Variable variable) {
  const ir::ValueType& wanted = type();
  if (variable.value.type != wanted) {
    throw Error(ErrorKind::kShape, "in-place change: the tensor is " + ir::to_string(wanted) +
                                       ", the new value " + ir::to_string(variable.value.type));
  }
  if (variable.value.device != device()) {
    throw Error(ErrorKind::kDevice, "in-place change: the tensor is on " +
                                        std::string(name(device())) + ", the new value on " +
                                        std::string(name(variable.value.device)));
  }
  check_writable();
  Recorder* recorder = thread_state().recorder;
  if (recorder == nullptr && variable.value.is_symbolic()) {
    throw Error(ErrorKind::kTrace, "in-place change: the new value belongs to a trace");
  }
  const bool keeps_history = thread_state().grad_enabled;
  if (is_detached_ && keeps_history && variable.tracks) {
    throw Error(ErrorKind::kTrace,
                "in-place change: a detached tensor was given a value that needs a gradient, "
                "which cannot be compiled; change a clone instead");
  }
  const HostHold hold;
  const View* view = cell_->view.get();
  if (view != nullptr) view->base->assign(written_back(*view, variable));
  Checkpoint* checkpoint = thread_state().checkpoint;
  if (checkpoint != nullptr && recorder == nullptr) checkpoint->note_write(cell_);
  Cell& cell = recorder == nullptr ? *cell_ : recorder->written(shared_from_this());
  if (keeps_history && !is_detached_) {
    cell.variable = std::move(variable);
  } else {
    cell.variable.value = std::move(variable.value);
    if (keeps_history) own_edge_ = std::move(variable.edge);
  }
  ++cell.version;
  if (view != nullptr) cell.view->taken_version = view->base->version();
}

void Tensor::set_data(const Value& value) {
  if (thread_state().recorder != nullptr) {
    throw Error(ErrorKind::kTrace,
                "data: assigned inside a compiled step; use copy_ under no_grad");
  }
  if (value.is_symbolic()) {
    throw Error(ErrorKind::kTrace, "data: the new value belongs to a trace");
  }
  cell_->variable = Variable{.value = value};
  cell_->view.reset();
  ++cell_->version;
  process_state().module_version.fetch_add(1, std::memory_order_relaxed);
}

GradState& Tensor::state() {
  if (state_ == nullptr) state_ = std::make_unique<GradState>();
  return *state_;
}

TensorRef Tensor::grad() {
  if (state_ == nullptr) return nullptr;
  if (state_->has_grad) {
    state_->grad_tensor = make_tensor(std::move(state_->grad));
    state_->grad = {};
    state_->has_grad = false;
  }
  return state_->grad_tensor;
}

void Tensor::set_grad(TensorRef grad) {
  if (grad == nullptr && state_ == nullptr) return;
  if (grad != nullptr && grad->type() != type()) {
    throw Error(ErrorKind::kShape, "grad: the tensor is " + ir::to_string(type()) +
                                       ", the assigned gradient " + ir::to_string(grad->type()));
  }
  state().has_grad = false;
  state().grad = {};
  state().grad_tensor = std::move(grad);
}

void Tensor::accumulate(Variable grad) {
  if (grad.value.type != type()) {
    throw Error(ErrorKind::kAutograd, "backward: the gradient of a leaf is " +
                                          ir::to_string(grad.value.type) + ", the leaf is now " +
                                          ir::to_string(type()) +
                                          "; it was replaced after the forward");
  }
  static const ir::Op& add = ops::get("add");
  const HostHold hold;
  GradState& own = state();
  if (own.grad_tensor != nullptr) {
    Variable sum = dispatch_one(add, {own.grad_tensor->operand(), std::move(grad)});
    own.grad_tensor->assign(std::move(sum));
    return;
  }
  own.grad = own.has_grad ? dispatch_one(add, {own.grad, std::move(grad)}) : std::move(grad);
  own.has_grad = true;
}

Edge Tensor::accumulator_edge() const {
  auto* self = const_cast<Tensor*>(this);  // the accumulator is made on first use
  GradState& own = self->state();
  if (own.accumulator == nullptr) {
    own.accumulator = std::make_shared<Accumulator>(self->weak_from_this());
  }
  return {own.accumulator, 0};
}

uint64_t Tensor::add_hook(GradHook hook) {
  if (!requires_grad()) {
    throw Error(ErrorKind::kAutograd, "register_hook: the tensor does not require a gradient");
  }
  const Variable own = operand();
  if (own.value.is_symbolic()) {
    refuse(
        "register_hook: a hook on an intermediate tensor cannot be compiled; put the "
        "change into the model as an operation");
    return 0;  // the id of no hook
  }
  const uint64_t id = next_hook_id.fetch_add(1);
  if (is_leaf()) {
    state().hooks.emplace_back(id, std::move(hook));
  } else {
    own.edge.node->hooks.push_back({own.edge.index, id, std::move(hook)});
  }
  return id;
}

void Tensor::remove_hook(uint64_t id) {
  if (state_ != nullptr) std::erase_if(state_->hooks, [&](auto& hook) { return hook.first == id; });
  const Edge& edge = is_detached_ ? own_edge_ : cell_->variable.edge;
  if (edge) std::erase_if(edge.node->hooks, [&](auto& hook) { return hook.id == id; });
}

void Tensor::retain_grad() {
  if (!requires_grad()) {
    throw Error(ErrorKind::kAutograd, "retain_grad: the tensor does not require a gradient");
  }
  const Variable own = operand();
  if (own.value.is_symbolic()) {
    refuse(
        "retain_grad: an intermediate tensor of a compiled step has no "
        "gradient of its own; return it as a result instead");
    return;
  }
  if (is_leaf() || state().retains_grad) return;
  state().retains_grad = true;
  own.edge.node->retainers.emplace_back(own.edge.index, weak_from_this());
}

}  // namespace lucid::runtime

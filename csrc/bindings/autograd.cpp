// autograd.grad, and Python functions with a gradient rule of their own: on the tape and in a
// trace.
#include <optional>
#include <string>

#include "bindings/convert.h"
#include "runtime/autograd/checkpoint.h"
#include "runtime/autograd/engine.h"
#include "runtime/process.h"
#include "runtime/trace/recorder.h"
#include "support/errors.h"

namespace lucid::bindings {
namespace {

using runtime::Edge;
using runtime::Gradients;

using InputTypes = std::vector<std::optional<ir::ValueType>>;

// Calls `run(grads, create_graph, tie_result) -> grads`: one for each argument of the forward.
std::vector<TensorRef> run_rule(const std::string& name, const py::object& run,
                                const InputTypes& input_types, const std::vector<TensorRef>& grads,
                                bool create_graph, const runtime::TieResult& tie_result) {
  py::tuple arguments(grads.size());
  for (size_t i = 0; i < grads.size(); ++i) {
    arguments[i] = grads[i] != nullptr ? py::cast(grads[i]) : py::object(py::none());
  }
  const py::object tie =
      create_graph ? py::object(py::cpp_function(tie_result)) : py::object(py::none());
  const py::tuple found = run(arguments, create_graph, tie);
  size_t count = found.size();  // as in PyTorch, further ones may follow if they are None
  while (count > input_types.size() && py::object(found[count - 1]).is_none()) --count;
  if (count != input_types.size()) {
    throw Error(ErrorKind::kUser, name + ".backward: returned " + std::to_string(found.size()) +
                                      " gradients for " + std::to_string(input_types.size()) +
                                      " inputs of forward");
  }
  std::vector<TensorRef> result(count);
  for (size_t i = 0; i < count; ++i) {
    if (py::object(found[i]).is_none()) continue;
    result[i] = require_tensor(found[i], "backward: each gradient");
    if (!input_types[i] || result[i]->type() == *input_types[i]) continue;
    throw Error(ErrorKind::kShape, name + ".backward: gradient " + std::to_string(i) + " is " +
                                       ir::to_string(result[i]->type()) + " for an input " +
                                       ir::to_string(*input_types[i]));
  }
  return result;
}

/// A Python function with its own backward.
class FunctionNode final : public runtime::GradNode {
 public:
  FunctionNode(std::string name, std::vector<Edge> next, InputTypes input_types, size_t num_outputs,
               std::shared_ptr<py::object> run)
      : GradNode(std::move(next)),
        name_(std::move(name)),
        input_types_(std::move(input_types)),
        num_outputs_(num_outputs),
        run_(std::move(run)) {}

  std::string name() const override { return name_ + "Backward"; }
  size_t num_outputs() const override { return num_outputs_; }

  Gradients apply(const Gradients& grads, const runtime::BackwardMode& mode) override {
    const std::shared_ptr<py::object> run = run_;  // another thread may release it meanwhile
    if (run == nullptr) runtime::fail_released();
    const py::gil_scoped_acquire gil;
    std::vector<TensorRef> given;
    for (const auto& grad : grads) given.push_back(grad ? runtime::make_tensor(*grad) : nullptr);
    const auto tie_result = [self = shared_from_this()](size_t i, const TensorRef& tensor) {
      return runtime::make_tensor(
          {.value = tensor->value(), .edge = {self, static_cast<uint32_t>(i)}});
    };
    const std::vector<TensorRef> found =
        run_rule(name_, *run, input_types_, given, mode.create_graph, tie_result);
    Gradients result(found.size());
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i] != nullptr) result[i] = found[i]->operand();
    }
    return result;
  }

  void release() override { run_ = nullptr; }

 private:
  std::string name_;
  InputTypes input_types_;
  size_t num_outputs_;
  std::shared_ptr<py::object> run_;
};

std::vector<runtime::Variable> tie_in_trace(runtime::Recorder& recorder, const std::string& name,
                                            const std::vector<TensorRef>& inputs,
                                            const std::vector<TensorRef>& outputs,
                                            const InputTypes& types,
                                            const std::shared_ptr<py::object>& run) {
  return recorder.tie(inputs, outputs,
                      [name, types, run](const std::vector<TensorRef>& grads, bool create_graph,
                                         const runtime::TieResult& tie_result) {
                        return run_rule(name, *run, types, grads, create_graph, tie_result);
                      });
}

// Fresh tensors with the values of `outputs` and the function as their history.
py::tuple tie(const std::string& name, const py::tuple& inputs, const py::tuple& outputs,
              const py::object& run) {
  std::vector<TensorRef> arguments;
  std::vector<Edge> next;
  InputTypes types;
  for (const py::handle input : inputs) {
    const TensorRef* tensor = as_tensor(input.ptr());
    arguments.push_back(tensor != nullptr ? *tensor : nullptr);
    types.push_back(tensor != nullptr ? std::optional((*tensor)->type()) : std::nullopt);
  }
  std::vector<TensorRef> results;
  for (const py::handle output : outputs) {
    results.push_back(require_tensor(output, "autograd.Function: each result"));
  }
  std::vector<runtime::Variable> tied;
  if (runtime::Recorder* recorder = runtime::thread_state().recorder) {
    tied = tie_in_trace(*recorder, name, arguments, results, types, guarded(run));
  } else {
    for (const TensorRef& tensor : arguments) {
      next.push_back(tensor != nullptr ? tensor->edge() : Edge{});
    }
    const auto node = std::make_shared<FunctionNode>(name, std::move(next), std::move(types),
                                                     outputs.size(), guarded(run));
    for (size_t i = 0; i < results.size(); ++i) {
      runtime::Variable variable{.value = results[i]->value()};
      if (is_floating(variable.value.type.dtype)) {
        variable.edge = {node, static_cast<uint32_t>(i)};
      }
      tied.push_back(std::move(variable));
    }
  }
  py::tuple result(tied.size());
  for (size_t i = 0; i < tied.size(); ++i) {
    result[i] = py::cast(runtime::make_tensor(std::move(tied[i])));
  }
  return result;
}

std::vector<TensorRef> tensor_list(const py::sequence& items, const char* what, bool may_be_none) {
  std::vector<TensorRef> result;
  for (const py::handle item : items) {
    const bool absent = may_be_none && item.is_none();
    result.push_back(absent ? nullptr : require_tensor(item, what));
  }
  return result;
}

py::tuple grad(const py::sequence& outputs, const py::sequence& inputs,
               const py::sequence& grad_outputs, bool retain_graph, bool create_graph,
               bool allow_unused) {
  const std::vector<TensorRef> roots = tensor_list(outputs, "grad: each output", false);
  const std::vector<TensorRef> seeds = tensor_list(grad_outputs, "grad: each grad_output", true);
  const std::vector<TensorRef> targets = tensor_list(inputs, "grad: each input", false);
  runtime::BackwardMode mode;
  mode.create_graph = create_graph;
  mode.retain_graph = retain_graph;
  const std::vector<TensorRef> found = runtime::grad(roots, seeds, targets, mode, allow_unused);
  py::tuple result(found.size());
  for (size_t i = 0; i < found.size(); ++i) {
    result[i] = found[i] != nullptr ? py::cast(found[i]) : py::object(py::none());
  }
  return result;
}

void backward(const py::sequence& tensors, const py::sequence& gradients, bool retain_graph,
              bool create_graph, const py::sequence& inputs) {
  const std::vector<TensorRef> roots = tensor_list(tensors, "backward: each tensor", false);
  const std::vector<TensorRef> seeds = tensor_list(gradients, "backward: each gradient", true);
  const std::vector<TensorRef> only = tensor_list(inputs, "backward: each input", false);
  runtime::BackwardMode mode;
  mode.create_graph = create_graph;
  mode.retain_graph = retain_graph;
  runtime::backward(roots, seeds, mode, only);
}

// Runs `function()` with its operations noted, then drops what they saved: `again()` is to run the
// same once more.
py::object run_checkpointed(const py::function& function, const py::object& again) {
  const auto checkpoint = std::make_shared<runtime::Checkpoint>(runtime::thread_state().checkpoint);
  py::object result;
  {
    const runtime::CheckpointScope scope(*checkpoint);
    result = function();
  }
  checkpoint->forget([again = guarded(again)] {
    const py::gil_scoped_acquire gil;
    (*again)();
  });
  return result;
}

}  // namespace

void bind_autograd(py::module_& m) {
  m.def("_checkpointed", &run_checkpointed, py::arg("function"), py::arg("again"));
  // The value and history that a tensor has now, whatever is put into it later.
  m.def("_snapshot", [](const TensorRef& x) { return runtime::make_tensor(x->operand()); });
  m.def("_tie_function", &tie, py::arg("name"), py::arg("inputs"), py::arg("outputs"),
        py::arg("run"));
  m.def("_grad", &grad);
  m.def("_set_anomaly_mode", [](bool is_on, bool checks_nan) {
    runtime::process_state().notes_lines = is_on;
    runtime::process_state().refuses_nan = is_on && checks_nan;
  });
  m.def("_backward", &backward);
}

}  // namespace lucid::bindings

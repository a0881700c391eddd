// autograd.grad and the tape node of Python functions.
#include <optional>
#include <string>

#include "bindings/convert.h"
#include "runtime/autograd/engine.h"
#include "runtime/process.h"
#include "support/errors.h"

namespace lucid::bindings {
namespace {

using runtime::Edge;
using runtime::Gradients;

/// A Python function with its own backward: calls `run(grads, create_graph) -> grads`.
class FunctionNode final : public runtime::GradNode {
 public:
  FunctionNode(std::string name, std::vector<Edge> next,
               std::vector<std::optional<ir::ValueType>> input_types, size_t num_outputs,
               py::object run)
      : GradNode(std::move(next)),
        name_(std::move(name)),
        input_types_(std::move(input_types)),
        num_outputs_(num_outputs),
        run_(guarded(std::move(run))) {}

  std::string name() const override { return name_ + "Backward"; }
  size_t num_outputs() const override { return num_outputs_; }

  Gradients apply(const Gradients& grads, const runtime::BackwardMode& mode) override {
    const std::shared_ptr<py::object> run = run_;  // another thread may release it meanwhile
    if (run == nullptr) runtime::fail_released();
    const py::gil_scoped_acquire gil;
    py::tuple arguments(grads.size());
    for (size_t i = 0; i < grads.size(); ++i) {
      arguments[i] = grads[i] ? py::cast(runtime::make_tensor(*grads[i])) : py::object(py::none());
    }
    const py::tuple found = (*run)(arguments, mode.create_graph);
    if (found.size() != next_.size()) {
      throw Error(ErrorKind::kUser, name_ + ".backward: returned " + std::to_string(found.size()) +
                                        " gradients for " + std::to_string(next_.size()) +
                                        " inputs of forward");
    }
    Gradients result(next_.size());
    for (size_t i = 0; i < next_.size(); ++i) {
      if (py::object(found[i]).is_none()) continue;
      result[i] = require_tensor(found[i], "backward: each gradient")->operand();
      if (!input_types_[i] || result[i]->value.type == *input_types_[i]) continue;
      throw Error(ErrorKind::kShape, name_ + ".backward: gradient " + std::to_string(i) + " is " +
                                         ir::to_string(result[i]->value.type) + " for an input " +
                                         ir::to_string(*input_types_[i]));
    }
    return result;
  }

  void release() override { run_ = nullptr; }

 private:
  std::string name_;
  std::vector<std::optional<ir::ValueType>> input_types_;
  size_t num_outputs_;
  std::shared_ptr<py::object> run_;
};

// Fresh tensors with the values of `outputs` and the function as their history.
py::tuple tie(const std::string& name, const py::tuple& inputs, const py::tuple& outputs,
              const py::object& run) {
  std::vector<Edge> next;
  std::vector<std::optional<ir::ValueType>> types;
  for (const py::handle input : inputs) {
    const TensorRef* tensor = as_tensor(input.ptr());
    next.push_back(tensor != nullptr ? (*tensor)->edge() : Edge{});
    types.push_back(tensor != nullptr ? std::optional((*tensor)->type()) : std::nullopt);
  }
  const auto node =
      std::make_shared<FunctionNode>(name, std::move(next), std::move(types), outputs.size(), run);
  py::tuple result(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    runtime::Variable variable{
        .value = require_tensor(outputs[i], "autograd.Function: each result")->value()};
    if (is_floating(variable.value.type.dtype)) {
      variable.edge = {node, static_cast<uint32_t>(i)};
    }
    result[i] = py::cast(runtime::make_tensor(std::move(variable)));
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

}  // namespace

void bind_autograd(py::module_& m) {
  m.def("_tie_function", &tie, py::arg("name"), py::arg("inputs"), py::arg("outputs"),
        py::arg("run"));
  m.def("_grad", &grad);
  m.def("_backward", &backward);
}

}  // namespace lucid::bindings

// The Tensor class as Python sees it; the functions layer adds the methods that are operations.
#include "bindings/convert.h"
#include "runtime/autograd/engine.h"
#include "runtime/autograd/node.h"
#include "runtime/process.h"
#include "runtime/trace/recorder.h"
#include "support/errors.h"

namespace lucid::bindings {
namespace {

using runtime::Tensor;

// A gradient hook that is a Python function.
struct PythonHook {
  std::shared_ptr<py::object> function;

  TensorRef operator()(const TensorRef& grad) const {
    const py::gil_scoped_acquire gil;
    const py::object result = (*function)(grad);
    if (result.is_none()) return nullptr;
    return require_tensor(result, "gradient hook: the result");
  }
};

// The tensor of a Python object if the object is its only owner: then what the tensor refers to
// belongs to the object, as the cycle collector counts.
Tensor* solely_owned(PyObject* self) {
  const TensorRef* tensor = as_tensor(self);
  return tensor != nullptr && tensor->use_count() == 1 ? tensor->get() : nullptr;
}

// A tensor and its hook may refer to each other: the collector follows hooks.
int traverse(PyObject* self, visitproc visit, void* arg) {
  const int done = py::detail::pybind11_traverse(self, visit, arg);
  if (done != 0) return done;
  const Tensor* tensor = solely_owned(self);
  if (tensor == nullptr || tensor->state_if_any() == nullptr) return 0;
  for (const auto& [id, hook] : tensor->state_if_any()->hooks) {
    const auto* python_hook = hook.target<PythonHook>();
    if (python_hook != nullptr) Py_VISIT(python_hook->function->ptr());
  }
  return 0;
}

int clear(PyObject* self) {
  Tensor* tensor = solely_owned(self);
  if (tensor != nullptr && tensor->state_if_any() != nullptr) tensor->state().hooks.clear();
  return py::detail::pybind11_clear(self);
}

void follow_hooks(PyHeapTypeObject* type) {
  type->ht_type.tp_traverse = traverse;
  type->ht_type.tp_clear = clear;
}

// What this thread's sizes look like while a trace is made at a size that stands for all sizes.
struct MarkedSizes {
  PyObject* type = nullptr;  // a class of int, borrowed; null where sizes are plain
  int64_t smallest = 0;
};
thread_local MarkedSizes marked_sizes;

// A size; one that may follow from the marked size, as an object of the marking class.
py::object size_object(int64_t size) {
  py::int_ plain(size);
  if (marked_sizes.type == nullptr || size < marked_sizes.smallest) return plain;
  return py::handle(marked_sizes.type)(plain);
}

py::tuple shape_of(const Tensor& tensor) {
  py::tuple result = shape_tuple(tensor.type().shape);
  if (marked_sizes.type == nullptr) return result;
  for (int axis = 0; axis < tensor.type().shape.rank(); ++axis) {
    result[static_cast<size_t>(axis)] = size_object(tensor.type().shape[axis]);
  }
  return result;
}

std::vector<TensorRef> tensors_of(const py::object& object, const char* what) {
  std::vector<TensorRef> result;
  if (object.is_none()) return result;
  if (as_tensor(object.ptr()) != nullptr) return {require_tensor(object, what)};
  for (const py::handle item : object) result.push_back(require_tensor(item, what));
  return result;
}

void backward(const TensorRef& self, const py::object& gradient, const py::object& retain_graph,
              bool create_graph, const py::object& inputs) {
  runtime::BackwardMode mode;
  mode.create_graph = create_graph;
  mode.retain_graph = retain_graph.is_none() ? create_graph : retain_graph.cast<bool>();
  const TensorRef seed =
      gradient.is_none() ? nullptr : require_tensor(gradient, "backward: gradient");
  const std::vector<TensorRef> only = tensors_of(inputs, "backward: each input");
  runtime::backward({{self}}, {{seed}}, mode, only);
}

// What stands in `grad` may be another tensor, or none, when a compiled step runs again.
TensorRef grad_of(Tensor& tensor) {
  if (runtime::thread_state().recorder != nullptr && !tensor.is_symbolic()) {
    runtime::refuse(
        "grad: the gradient of a tensor was asked for inside a compiled step, which would not "
        "look at it again; pass it as an argument");
  }
  return tensor.grad();
}

void set_grad(Tensor& tensor, const py::object& grad) {
  if (runtime::thread_state().recorder != nullptr && !tensor.is_symbolic()) {
    runtime::refuse(
        "grad: the gradient of a tensor was set inside a compiled step, which would not set it "
        "again; set it, or call zero_grad, outside of the step");
  }
  tensor.set_grad(grad.is_none() ? nullptr : require_tensor(grad, "grad"));
}

void bind_properties(py::class_<Tensor, TensorRef>& cls) {
  cls.def_property_readonly("shape", &shape_of)
      .def_property_readonly("dtype", [](const Tensor& t) { return dtype_object(t.type().dtype); })
      .def_property_readonly("device", [](const Tensor& t) { return device_object(t.device()); })
      .def_property_readonly("ndim", [](const Tensor& t) { return t.type().shape.rank(); })
      .def_property_readonly("nbytes", [](const Tensor& t) { return t.type().size_bytes(); })
      .def_property_readonly("is_leaf", &Tensor::is_leaf)
      .def_property_readonly("is_symbolic", &Tensor::is_symbolic)
      .def_property_readonly(
          "_cell_id", [](const Tensor& t) { return reinterpret_cast<uintptr_t>(t.cell().get()); })
      .def_property_readonly("_version", &Tensor::version)
      .def_property_readonly("_num_hooks",
                             [](const Tensor& t) -> size_t {
                               return t.state_if_any() ? t.state_if_any()->hooks.size() : 0;
                             })
      .def_property_readonly("_is_view", [](const Tensor& t) { return t.cell()->view != nullptr; })
      .def_property("requires_grad", &Tensor::requires_grad,
                    [](Tensor& t, bool on) {
                      t.set_requires_grad(on);
                      runtime::process_state().module_version.fetch_add(1);
                    })
      .def_property("grad", &grad_of, &set_grad)
      .def_property_readonly("grad_fn",
                             [](const Tensor& t) -> std::shared_ptr<runtime::GradNode> {
                               return t.is_leaf() ? nullptr : t.operand().edge.node;
                             })
      .def_property("data", &Tensor::detach, [](Tensor& t, const py::object& data) {
        t.set_data(require_tensor(data, "data")->value());
      });
}

// A compiled update does not call the hooks of a leaf: it must be asked again whether it fits.
void note_hooks(const Tensor& tensor) {
  if (tensor.is_leaf()) runtime::process_state().module_version.fetch_add(1);
}

void bind_methods(py::class_<Tensor, TensorRef>& cls) {
  cls.def("numel", [](const Tensor& t) { return size_object(t.type().num_elements()); })
      .def("detach", &Tensor::detach)
      // A tensor of its own that holds the same value, which is not copied.
      .def("_holding", [](const Tensor& t) { return runtime::make_tensor(t.value()); })
      .def(
          "requires_grad_",
          [](TensorRef self, bool on) {
            if (self->requires_grad() != on) runtime::process_state().module_version.fetch_add(1);
            self->set_requires_grad(on);
            return self;
          },
          py::arg("requires_grad") = true)
      .def("retain_grad", &Tensor::retain_grad)
      .def("_register_hook",
           [](Tensor& t, const py::object& hook) {
             note_hooks(t);
             return t.add_hook(PythonHook{guarded(hook)});
           })
      .def("_remove_hook",
           [](Tensor& t, uint64_t id) {
             note_hooks(t);
             t.remove_hook(id);
           })
      .def("assign_",
           [](TensorRef self, const py::object& value) {
             const TensorRef source = require_tensor(value, "assign_: the value");
             runtime::Variable variable = source->operand();
             runtime::Recorder* recorder = runtime::thread_state().recorder;
             if (recorder != nullptr) {
               variable.value.id = recorder->value_of(source);
               variable.value.trace = recorder->id();
               variable.value.buffer = nullptr;
               variable.tracks = source->requires_grad();
               variable.edge = {};
             }
             self->assign(std::move(variable));
             return self;
           })
      .def("backward", &backward, py::arg("gradient") = py::none(),
           py::arg("retain_graph") = py::none(), py::arg("create_graph") = false,
           py::arg("inputs") = py::none());
}

}  // namespace

void bind_tensor(py::module_& m) {
  py::class_<runtime::GradNode, std::shared_ptr<runtime::GradNode>>(m, "GradNode",
                                                                    "A node of the gradient tape.")
      .def("name", &runtime::GradNode::name)
      .def("__repr__", [](const runtime::GradNode& node) { return "<" + node.name() + ">"; })
      .def_property_readonly("next_functions", [](const runtime::GradNode& node) {
        py::tuple result(node.next().size());
        for (size_t i = 0; i < node.next().size(); ++i) {
          result[i] = py::make_tuple(node.next()[i].node, node.next()[i].index);
        }
        return result;
      });
  py::class_<Tensor, TensorRef> cls(m, "Tensor", py::dynamic_attr(),
                                    py::custom_type_setup(follow_hooks),
                                    "A dense array of one element type on one device.");
  cls.def(py::init([](const py::object& data, bool requires_grad) {
            TensorRef made = require_tensor(data, "Tensor: data")->detach();
            made->set_requires_grad(requires_grad);
            return made;
          }),
          py::arg("data"), py::arg("requires_grad") = false,
          "A leaf that shares the cell of ``data``.");
  bind_properties(cls);
  bind_methods(cls);
  m.def(
      "mark_sizes",
      [](const py::object& type, int64_t smallest) {
        marked_sizes = {type.is_none() ? nullptr : type.ptr(), smallest};
      },
      py::arg("type"), py::arg("smallest") = 0,
      "Give this thread's sizes from ``smallest`` on as objects of ``type``, which must stay "
      "alive; None ends it.");
}

}  // namespace lucid::bindings

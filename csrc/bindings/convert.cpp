#include "bindings/convert.h"

#include <string>

#include "support/errors.h"

namespace lucid::bindings {
namespace {

using runtime::Number;
using runtime::Operand;

std::string type_name(PyObject* object) { return Py_TYPE(object)->tp_name; }

[[noreturn]] void refuse(std::string_view op, const std::string& what, PyObject* object) {
  throw Error(ErrorKind::kType, std::string(op) + ": " + what + ": got " + type_name(object));
}

double as_real(PyObject* object, std::string_view op, std::string_view what) {
  const double value = PyFloat_AsDouble(object);
  if (value == -1.0 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    refuse(op, std::string(what) + " must be a number", object);
  }
  return value;
}

ir::Ints as_ints(PyObject* object, std::string_view op, std::string_view what) {
  if (PyTuple_CheckExact(object)) {
    ir::Ints values(static_cast<size_t>(PyTuple_GET_SIZE(object)));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = as_integer(PyTuple_GET_ITEM(object, static_cast<Py_ssize_t>(i)), op, what);
    }
    return values;
  }
  const py::object items = py::reinterpret_steal<py::object>(PySequence_Tuple(object));
  if (!items) {
    PyErr_Clear();
    refuse(op, std::string(what) + " must be a sequence of integers", object);
  }
  return as_ints(items.ptr(), op, what);
}

std::string as_text(PyObject* object, std::string_view op, std::string_view what) {
  if (PyBytes_Check(object)) {
    return {PyBytes_AS_STRING(object), static_cast<size_t>(PyBytes_GET_SIZE(object))};
  }
  if (!PyUnicode_Check(object)) refuse(op, std::string(what) + " must be a string", object);
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object, &size);
  if (text == nullptr) throw py::error_already_set();
  return {text, static_cast<size_t>(size)};
}

}  // namespace

int64_t as_integer(PyObject* object, std::string_view op, std::string_view what) {
  const py::object index = py::reinterpret_steal<py::object>(PyNumber_Index(object));
  if (!index) {
    PyErr_Clear();
    refuse(op, std::string(what) + " must be an integer", object);
  }
  const int64_t value = PyLong_AsLongLong(index.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw Error(ErrorKind::kUser,
                std::string(op) + ": " + std::string(what) + " does not fit into 64 bits");
  }
  return value;
}

ir::AttrValue as_attribute(PyObject* object, const ir::AttrSpec& spec, std::string_view op) {
  switch (spec.type) {
    case ir::AttrType::kBool:
      if (!PyBool_Check(object)) refuse(op, std::string(spec.name) + " must be a bool", object);
      return object == Py_True;
    case ir::AttrType::kInt:
      return as_integer(object, op, spec.name);
    case ir::AttrType::kFloat:
      return as_real(object, op, spec.name);
    case ir::AttrType::kNumber:
      if (PyFloat_Check(object)) return PyFloat_AS_DOUBLE(object);
      if (PyLong_Check(object)) return as_integer(object, op, spec.name);
      return as_real(object, op, spec.name);
    case ir::AttrType::kDType: {
      const std::optional<DType> dtype = as_dtype(object);
      if (!dtype) refuse(op, std::string(spec.name) + " must be a dtype", object);
      return *dtype;
    }
    case ir::AttrType::kString:
      return as_text(object, op, spec.name);
    case ir::AttrType::kInts:
      return as_ints(object, op, spec.name);
  }
  throw Error(ErrorKind::kInternal, "unknown attribute type");
}

const TensorRef* as_tensor(PyObject* object) {
  if (!py::isinstance<runtime::Tensor>(object)) return nullptr;
  auto* instance = reinterpret_cast<py::detail::instance*>(object);
  auto holder = instance->get_value_and_holder();
  if (!holder.holder_constructed()) return nullptr;
  return &holder.holder<TensorRef>();
}

TensorRef require_tensor(py::handle object, const char* what) {
  const TensorRef* tensor = as_tensor(object.ptr());
  if (tensor != nullptr) return *tensor;
  throw Error(ErrorKind::kType, std::string(what) + " must be a Tensor: got " +
                                    type_name(object.ptr()) +
                                    "; convert it with lucid.tensor or lucid.from_numpy");
}

Operand as_operand(PyObject* object, std::string_view op) {
  if (const TensorRef* tensor = as_tensor(object)) return *tensor;
  if (object == Py_None) return std::monostate{};
  if (PyBool_Check(object)) return Number{object == Py_True};
  if (PyFloat_Check(object)) return Number{PyFloat_AS_DOUBLE(object)};
  if (PyLong_Check(object)) return Number{as_integer(object, op, "number")};
  if (py::isinstance<runtime::Generator>(object)) {
    return py::reinterpret_borrow<py::object>(object).cast<runtime::GeneratorRef>();
  }
  // NumPy scalars are numbers, NumPy arrays are not.
  if (PyIndex_Check(object)) return Number{as_integer(object, op, "number")};
  const bool is_scalar = !PySequence_Check(object) && PyNumber_Check(object) != 0;
  if (is_scalar) return Number{as_real(object, op, "number")};
  throw Error(ErrorKind::kType, std::string(op) + ": operands must be tensors or numbers: got " +
                                    type_name(object) +
                                    "; convert it with lucid.tensor or lucid.from_numpy");
}

py::tuple shape_tuple(const Shape& shape) {
  py::tuple result(shape.rank());
  for (int axis = 0; axis < shape.rank(); ++axis) {
    PyTuple_SET_ITEM(result.ptr(), axis, PyLong_FromLongLong(shape[axis]));
  }
  return result;
}

std::shared_ptr<py::object> guarded(py::object object) {
  return {new py::object(std::move(object)), [](py::object* held) {
            if (Py_IsInitialized() == 0)
              return;  // the interpreter has gone, and the object with it
            const py::gil_scoped_acquire gil;
            delete held;
          }};
}

}  // namespace lucid::bindings

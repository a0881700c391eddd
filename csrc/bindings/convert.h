// Conversions between Python objects and the core's types, shared by the binding files.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <vector>

#include "ir/attribute.h"
#include "runtime/dispatch/dispatch.h"
#include "runtime/generator.h"
#include "runtime/tensor/tensor.h"

namespace lucid::bindings {

namespace py = pybind11;
using runtime::TensorRef;

void bind_errors(py::module_& m);
void bind_types(py::module_& m);
void bind_tensor(py::module_& m);
void bind_numpy(py::module_& m);
void bind_emit(py::module_& m);
void bind_autograd(py::module_& m);
void bind_compile(py::module_& m);
void bind_custom(py::module_& m);
void bind_watch(py::module_& m);
void bind_devices(py::module_& m);

/// Sets the Python exception that stands for the exception being handled. Call in a catch block.
void set_python_error();

/// The object of a dtype: one per dtype, alive for ever.
py::object dtype_object(DType dtype);
/// The object of a device: one per device, alive for ever.
py::object device_object(Device device);
/// The dtype of an object, or nothing.
std::optional<DType> as_dtype(py::handle object);

/// The tensor in an object, or null if it is none.
const TensorRef* as_tensor(PyObject* object);
/// The tensor in an object. Throws ArgumentTypeError that names `what`.
TensorRef require_tensor(py::handle object, const char* what);
/// A whole number. Throws ArgumentTypeError that names op and argument.
int64_t as_integer(PyObject* object, std::string_view op, std::string_view what);
/// A call operand: None, tensor, number or generator. Throws ArgumentTypeError.
runtime::Operand as_operand(PyObject* object, std::string_view op);
/// Converts an attribute of that type. Throws ArgumentTypeError that names op and attribute.
ir::AttrValue as_attribute(PyObject* object, const ir::AttrSpec& spec, std::string_view op);

py::tuple shape_tuple(const Shape& shape);

/// Python object that C++ may drop from any thread, with or without the interpreter's lock.
std::shared_ptr<py::object> guarded(py::object object);

}  // namespace lucid::bindings

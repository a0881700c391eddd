// The exception tree of the package, and the translation of core errors into it.
#include <array>
#include <string>

#include "bindings/convert.h"
#include "compile/memory_limit.h"
#include "support/errors.h"

namespace lucid::bindings {
namespace {

constexpr size_t kNumKinds = static_cast<size_t>(ErrorKind::kInternal) + 1;

std::array<PyObject*, kNumKinds>& classes() {
  static std::array<PyObject*, kNumKinds> instance{};
  return instance;
}

py::object make_class(py::module_& m, const char* name, const py::tuple& bases, const char* doc) {
  const std::string full = std::string("lucid.") + name;
  py::object made = py::reinterpret_steal<py::object>(
      PyErr_NewExceptionWithDoc(full.c_str(), doc, bases.ptr(), nullptr));
  if (!made) throw py::error_already_set();
  m.attr(name) = made;
  return made;
}

}  // namespace

void bind_errors(py::module_& m) {
  const auto builtin = [](PyObject* object) { return py::reinterpret_borrow<py::object>(object); };
  const auto define = [&](ErrorKind kind, const char* name, const py::tuple& bases,
                          const char* doc) {
    py::object made = make_class(m, name, bases, doc);
    classes()[static_cast<size_t>(kind)] = made.inc_ref().ptr();
    return made;
  };
  const py::object error =
      make_class(m, "Error", py::make_tuple(builtin(PyExc_Exception)), "Root of lucid's errors.");
  const py::object value_error = builtin(PyExc_ValueError);
  const py::object type_error = builtin(PyExc_TypeError);
  const py::object runtime_error = builtin(PyExc_RuntimeError);
  const py::object user = define(ErrorKind::kUser, "UserError", py::make_tuple(error, value_error),
                                 "The call cannot be right: a value, shape, dtype or state.");
  define(ErrorKind::kShape, "ShapeError", py::make_tuple(user), "Shapes do not fit.");
  define(ErrorKind::kDType, "DtypeError", py::make_tuple(user, type_error), "Dtypes do not fit.");
  define(ErrorKind::kType, "ArgumentTypeError", py::make_tuple(user, type_error),
         "An argument has the wrong Python type.");
  define(ErrorKind::kIndex, "OutOfRangeError", py::make_tuple(user, builtin(PyExc_IndexError)),
         "An index is out of range.");
  define(ErrorKind::kDevice, "DeviceError", py::make_tuple(user, runtime_error),
         "Tensors on two devices.");
  define(ErrorKind::kAutograd, "AutogradError", py::make_tuple(user, runtime_error),
         "A gradient that cannot be had.");
  define(ErrorKind::kDeviceUnavailable, "DeviceUnavailableError",
         py::make_tuple(error, runtime_error), "The device does not exist here.");
  define(ErrorKind::kTrace, "TraceError", py::make_tuple(error, runtime_error),
         "Something that a trace cannot carry.");
  define(ErrorKind::kUnsupported, "UnsupportedError",
         py::make_tuple(error, builtin(PyExc_NotImplementedError)),
         "A limit of this version or backend.");
  define(ErrorKind::kOutOfMemory, "OutOfMemoryError",
         py::make_tuple(error, builtin(PyExc_MemoryError)), "No memory left.");
  define(ErrorKind::kInternal, "InternalError", py::make_tuple(error, runtime_error),
         "A fault of lucid itself; please report it with the text.");
  py::register_exception_translator([](std::exception_ptr pointer) {
    if (!pointer) return;
    try {
      std::rethrow_exception(pointer);
    } catch (const compile::LimitError& caught) {
      const py::handle kind = classes()[static_cast<size_t>(caught.kind())];
      const py::object made = kind(caught.what());
      made.attr("smallest_peak") = caught.smallest();
      PyErr_SetObject(kind.ptr(), made.ptr());
    } catch (const Error& caught) {
      PyErr_SetString(classes()[static_cast<size_t>(caught.kind())], caught.what());
    }
  });
}

void set_python_error() {
  try {
    throw;
  } catch (const Error& caught) {
    PyErr_SetString(classes()[static_cast<size_t>(caught.kind())], caught.what());
  } catch (py::error_already_set& caught) {
    caught.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& caught) {
    PyErr_SetString(classes()[static_cast<size_t>(ErrorKind::kInternal)], caught.what());
  }
}

}  // namespace lucid::bindings

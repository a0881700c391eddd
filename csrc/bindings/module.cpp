// The extension module lucid._C.
#include <string>

#include "bindings/convert.h"
#include "runtime/process.h"

namespace lucid::bindings {
namespace {

// Finds the user's line: the innermost frame outside the package.
class PythonHost final : public runtime::Host {
 public:
  void set_package_folder(std::string folder) { folder_ = std::move(folder); }

  ir::LocationRef caller() const override {
    const py::gil_scoped_acquire gil;
    py::object frame =
        py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
    while (frame) {
      auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
      const py::object code =
          py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
      const std::string file = py::str(code.attr("co_filename"));
      if (folder_.empty() || file.compare(0, folder_.size(), folder_) != 0) {
        return std::make_shared<ir::Location>(ir::Location{file, PyFrame_GetLineNumber(raw)});
      }
      frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
    }
    return nullptr;
  }

  void* pause() const override { return PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr; }
  void resume(void* paused) const override {
    PyEval_RestoreThread(static_cast<PyThreadState*>(paused));
  }

 private:
  std::string folder_;
};

PythonHost& host() {
  static PythonHost instance;
  return instance;
}

}  // namespace
}  // namespace lucid::bindings

PYBIND11_MODULE(_C, m) {
  namespace bindings = lucid::bindings;
  m.doc() = "The native core of lucid.";
  lucid::runtime::process_state().host = &bindings::host();
  m.def("_set_package_folder",
        [](std::string folder) { bindings::host().set_package_folder(std::move(folder)); });
  bindings::bind_errors(m);
  bindings::bind_types(m);
  bindings::bind_tensor(m);
  bindings::bind_numpy(m);
  bindings::bind_emit(m);
  bindings::bind_autograd(m);
  bindings::bind_compile(m);
  bindings::bind_custom(m);
  bindings::bind_watch(m);
  bindings::bind_devices(m);
}

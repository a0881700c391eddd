// Custom operations: calls the Python functions that HostFunctions stands for, on the core's own
// memory.
#include <pybind11/numpy.h>

#include <cstring>
#include <string>
#include <vector>

#include "bindings/convert.h"
#include "ops/host_functions.h"
#include "support/errors.h"

namespace lucid::bindings {
namespace {

// What a lent array keeps alive: nothing, until its borrower outlives the call.
struct Loan {
  std::shared_ptr<void> memory;
};

// Arrays over the core's memory that cannot be written, lent to a Python function. The memory is
// used again after the call, so an array that somebody still holds then takes the memory over.
class LentArrays {
 public:
  explicit LentArrays(std::span<const ops::HostArray> arrays) {
    for (const ops::HostArray& array : arrays) lend(array);
  }

  py::tuple tuple() const {
    py::tuple result(arrays_.size());
    for (size_t i = 0; i < arrays_.size(); ++i) result[i] = arrays_[i];
    return result;
  }

  // The place of an array that somebody holds beside us, also through a view of it, or -1.
  int held() const {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (Py_REFCNT(arrays_[i].ptr()) > 1) return static_cast<int>(i);
    }
    return -1;
  }

  void hand_over(const std::shared_ptr<void>& memory) const {
    for (Loan* loan : loans_) loan->memory = memory;
  }

 private:
  void lend(const ops::HostArray& array) {
    auto loan = std::make_unique<Loan>();
    Loan* const lent = loan.get();
    const py::capsule owner(lent, [](void* p) { delete static_cast<Loan*>(p); });
    loan.release();
    // An arena without a byte has no address, and an array without one would not keep its owner.
    static const char kNothing = 0;
    const void* const data = array.data != nullptr ? array.data : &kNothing;
    const auto sizes = array.type.shape.sizes();
    py::array made(py::dtype(std::string(name(array.type.dtype))),
                   std::vector<py::ssize_t>(sizes.begin(), sizes.end()), data, owner);
    py::detail::array_proxy(made.ptr())->flags &= ~py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
    arrays_.push_back(std::move(made));
    loans_.push_back(lent);
  }

  std::vector<py::array> arrays_;
  std::vector<Loan*> loans_;  // owned by the arrays
};

py::tuple to_tuple(const ir::Ints& values) {
  py::tuple result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i] = values[i];
  return result;
}

class PythonFunctions final : public ops::HostFunctions {
 public:
  // Kept for ever: kernels may run until the process ends.
  void set_runner(const py::object& runner) { runner_ = runner.inc_ref().ptr(); }

  void call(const ops::HostCall& call) const override {
    const py::gil_scoped_acquire gil;
    const LentArrays lent(call.inputs);
    try {
      run(call, lent);
    } catch (...) {
      // The frames of a Python error hold the arrays.
      if (lent.held() >= 0) lent.hand_over(call.share_memory());
      throw;
    }
    if (lent.held() < 0) return;
    py::module_::import("gc").attr("collect")();  // a cycle may hold it
    const int held = lent.held();
    if (held < 0) return;
    lent.hand_over(call.share_memory());
    throw Error(ErrorKind::kUser, std::string(call.function) + ": array " + std::to_string(held) +
                                      " is still referenced after the call, whose memory is used "
                                      "again; keep a copy: numpy.array(x)");
  }

 private:
  void run(const ops::HostCall& call, const LentArrays& lent) const {
    py::tuple specs(call.results.size());
    for (size_t i = 0; i < call.results.size(); ++i) {
      const ir::ValueType& type = call.results[i].type;
      specs[i] = py::make_tuple(shape_tuple(type.shape), std::string(name(type.dtype)));
    }
    py::object gradient = py::none();
    if (call.gradient != nullptr) {
      gradient = py::make_tuple(call.gradient->num_inputs, to_tuple(call.gradient->given),
                                to_tuple(call.gradient->wanted));
    }
    const std::string place = call.location == nullptr
                                  ? ""
                                  : call.location->file + ":" + std::to_string(call.location->line);
    const py::tuple found = py::reinterpret_borrow<py::object>(runner_)(
        std::string(call.function), std::string(call.arguments), place, lent.tuple(), specs,
        gradient);
    for (size_t i = 0; i < call.results.size(); ++i) copy(found[i], call.results[i]);
  }

  // The runner has checked it: dense, of the result's type.
  static void copy(const py::handle& source, const ops::HostArray& result) {
    const auto array = py::reinterpret_borrow<py::array>(source);
    const int64_t size = result.type.size_bytes();
    if (array.nbytes() != size || (array.flags() & py::array::c_style) == 0) {
      throw Error(ErrorKind::kInternal, "custom: a result was not checked");
    }
    if (size > 0) std::memcpy(result.data, array.data(), static_cast<size_t>(size));
  }

  PyObject* runner_ = nullptr;
};

PythonFunctions& functions() {
  static PythonFunctions instance;
  return instance;
}

}  // namespace

void bind_custom(py::module_& m) {
  m.def("_set_custom_runner", [](const py::object& runner) {
    functions().set_runner(runner);
    ops::set_host_functions(&functions());
  });
}

}  // namespace lucid::bindings

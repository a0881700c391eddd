// Tensors from and to NumPy arrays: shared memory where possible.
#include <pybind11/numpy.h>

#include <cstring>
#include <string>

#include "backends/cpu/memory_pool.h"
#include "bindings/convert.h"
#include "ops/registry.h"
#include "runtime/dispatch/dispatch.h"
#include "runtime/process.h"
#include "support/errors.h"

namespace lucid::bindings {
namespace {

std::optional<DType> dtype_of(const py::dtype& dtype) {
  const char kind = dtype.kind();
  const auto size = dtype.itemsize();
  if (kind == 'b') return DType::kBool;
  if (kind == 'f' && size == 2) return DType::kFloat16;
  if (kind == 'f' && size == 4) return DType::kFloat32;
  if (kind == 'f' && size == 8) return DType::kFloat64;
  if (kind == 'u' && size == 1) return DType::kUInt8;
  if (kind == 'i' && size == 1) return DType::kInt8;
  if (kind == 'i' && size == 2) return DType::kInt16;
  if (kind == 'i' && size == 4) return DType::kInt32;
  if (kind == 'i' && size == 8) return DType::kInt64;
  return std::nullopt;
}

py::dtype numpy_dtype(DType dtype) { return py::dtype(std::string(name(dtype))); }

TensorRef from_numpy(const py::object& object, bool copy) {
  if (!py::isinstance<py::array>(object)) {
    throw Error(ErrorKind::kType, std::string("from_numpy: takes a NumPy array: got ") +
                                      Py_TYPE(object.ptr())->tp_name);
  }
  if (runtime::thread_state().recorder != nullptr) {
    throw Error(ErrorKind::kTrace,
                "from_numpy: a NumPy array inside a compiled step would be frozen into it; pass "
                "it as an input of the step");
  }
  py::array array = py::reinterpret_borrow<py::array>(object);
  const std::optional<DType> dtype = dtype_of(array.dtype());
  const char order = array.dtype().byteorder();
  if (!dtype || order == '>') {
    throw Error(ErrorKind::kDType, "from_numpy: no dtype for " +
                                       py::str(array.dtype()).cast<std::string>() +
                                       "; convert it with array.astype");
  }
  const std::vector<int64_t> sizes(array.shape(), array.shape() + array.ndim());
  runtime::Value value{.type = {*dtype, Shape(sizes)}};
  const int64_t size = value.type.size_bytes();
  const bool is_dense = (array.flags() & py::array::c_style) != 0;
  const auto address = reinterpret_cast<uintptr_t>(array.data());
  const bool is_aligned = address % static_cast<uintptr_t>(size_bytes(*dtype)) == 0;
  if (!copy && is_dense && is_aligned) {
    value.buffer = cpu::borrow(const_cast<void*>(array.data()), size, guarded(array));
    return runtime::make_tensor(std::move(value));
  }
  if (!is_dense) array = py::module_::import("numpy").attr("ascontiguousarray")(array);
  value.buffer = cpu::allocate(size);
  if (size > 0) std::memcpy(value.buffer->data(), array.data(), static_cast<size_t>(size));
  return runtime::make_tensor(std::move(value));
}

/// The value as an array that shares its memory and cannot be written.
py::array to_numpy(const runtime::Tensor& tensor, const char* asked) {
  runtime::Value value = tensor.value();
  if (value.is_symbolic() || runtime::thread_state().recorder != nullptr) {
    const runtime::Host* host = runtime::process_state().host;
    const ir::LocationRef caller = host == nullptr ? nullptr : host->caller();
    throw Error(
        ErrorKind::kTrace,
        std::string(asked) +
            ": the value of a tensor was asked for inside a compiled step, where only "
            "shapes are known; keep the computation in tensors (for a choice, lucid.where)" +
            (caller == nullptr ? ""
                               : "\n  at " + caller->file + ":" + std::to_string(caller->line)));
  }
  if (value.type.dtype == DType::kBFloat16) {
    const runtime::GradMode no_grad(false);
    value = runtime::dispatch_one(ops::get("cast"), {runtime::Variable{.value = value}},
                                  {DType::kFloat32})
                .value;
  }
  const auto sizes = value.type.shape.sizes();
  const std::vector<py::ssize_t> shape(sizes.begin(), sizes.end());
  void* data = nullptr;
  {
    const runtime::HostPause pause(value.device != Device::kCpu);  // it waits for the device
    data = value.buffer->data();
  }
  auto held = std::make_unique<backends::BufferRef>(value.buffer);
  const py::capsule owner(held.release(), [](void* p) {
    const std::unique_ptr<backends::BufferRef> dropped(static_cast<backends::BufferRef*>(p));
  });
  py::array array(numpy_dtype(value.type.dtype), shape, data, owner);
  array.attr("setflags")(py::arg("write") = false);
  return array;
}

py::array numpy(const runtime::Tensor& tensor) {
  if (tensor.requires_grad()) {
    throw Error(ErrorKind::kAutograd,
                "numpy: the tensor requires a gradient; call detach().numpy() instead");
  }
  return to_numpy(tensor, "numpy");
}

py::object item(const runtime::Tensor& tensor) {
  if (tensor.type().num_elements() != 1) {
    throw Error(ErrorKind::kShape, "item: takes a tensor of one element: got shape " +
                                       to_string(tensor.type().shape) +
                                       "; reduce it first or use tolist()");
  }
  return to_numpy(tensor, "item").attr("item")();
}

}  // namespace

void bind_numpy(py::module_& m) {
  m.def("from_numpy", &from_numpy, py::arg("array"), py::arg("copy") = false);
  const py::object cls = m.attr("Tensor");
  const auto method = [&](const char* name, auto function) {
    cls.attr(name) = py::cpp_function(function, py::name(name), py::is_method(cls));
  };
  method("numpy", &numpy);
  method("item", &item);
  method("tolist", [](const runtime::Tensor& t) { return to_numpy(t, "tolist").attr("tolist")(); });
  m.def("_to_numpy", &to_numpy, py::arg("tensor"), py::arg("asked") = "value",
        "The value as an array, whether or not the tensor requires a gradient.");
}

}  // namespace lucid::bindings

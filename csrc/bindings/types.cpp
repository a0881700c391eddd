// dtype, device, Generator, and the defaults of the process.
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "backends/backend.h"
#include "backends/cpu/threads/team.h"
#include "bindings/convert.h"
#include "runtime/process.h"
#include "support/errors.h"

namespace lucid::bindings {
namespace {

struct DTypeObject {
  DType value;
};

struct DeviceObject {
  Device value;
};

std::array<PyObject*, kNumDTypes>& dtype_objects() {
  static std::array<PyObject*, kNumDTypes> instance{};
  return instance;
}

std::array<PyObject*, 2>& device_objects() {
  static std::array<PyObject*, 2> instance{};
  return instance;
}

Device device_from_text(const std::string& text) {
  const std::string type = text.substr(0, text.find(':'));
  const std::string place = text.size() > type.size() ? text.substr(type.size() + 1) : "0";
  if (place == "0" && type == "cpu") return Device::kCpu;
  if (place == "0" && (type == "metal" || type == "mps" || type == "gpu")) return Device::kMetal;
  throw Error(ErrorKind::kUser, "device: unknown device '" + text + "'; use 'cpu' or 'metal'");
}

void bind_dtype(py::module_& m) {
  py::class_<DTypeObject>(m, "dtype", "Element type of a tensor.")
      .def_property_readonly("name",
                             [](const DTypeObject& d) { return std::string(name(d.value)); })
      .def_property_readonly("itemsize", [](const DTypeObject& d) { return size_bytes(d.value); })
      .def_property_readonly("is_floating_point",
                             [](const DTypeObject& d) { return is_floating(d.value); })
      .def("__repr__", [](const DTypeObject& d) { return "lucid." + std::string(name(d.value)); })
      .def("__hash__", [](const DTypeObject& d) { return static_cast<int>(d.value) + 7919; })
      .def("__eq__",
           [](const DTypeObject& d, const py::object& other) {
             const auto value = as_dtype(other);
             return value && *value == d.value;
           })
      .def("__reduce__", [m](const DTypeObject& d) {
        return py::make_tuple(m.attr("dtype_from_name"),
                              py::make_tuple(std::string(name(d.value))));
      });
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    py::object made = py::cast(DTypeObject{dtype});
    dtype_objects()[static_cast<size_t>(i)] = made.inc_ref().ptr();
    m.attr(dtype == DType::kBool ? "bool_" : std::string(name(dtype)).c_str()) = made;
  }
  m.def("dtype_from_name", [](const std::string& text) {
    const auto dtype = dtype_from_name(text);
    if (!dtype) throw Error(ErrorKind::kUser, "dtype: unknown name '" + text + "'");
    return dtype_object(*dtype);
  });
  m.def("promote_types", [](const py::object& lhs, const py::object& rhs) {
    const auto a = as_dtype(lhs);
    const auto b = as_dtype(rhs);
    if (!a || !b) throw Error(ErrorKind::kType, "promote_types: takes two dtypes");
    return dtype_object(promote(*a, *b));
  });
}

void bind_device(py::module_& m) {
  py::class_<DeviceObject>(m, "device", "Where a tensor lives: device('cpu') or device('metal').")
      .def(py::init([](const std::string& text, int place) {
             if (place != 0) {
               throw Error(ErrorKind::kUser, "device: there is one device of a type: got index " +
                                                 std::to_string(place));
             }
             return DeviceObject{device_from_text(text)};
           }),
           py::arg("type"), py::arg("index") = 0)
      .def(py::init([](const DeviceObject& other) { return other; }))
      .def_property_readonly("type",
                             [](const DeviceObject& d) { return std::string(name(d.value)); })
      .def_property_readonly("index", [](const DeviceObject&) { return 0; })
      .def(
          "__repr__",
          [](const DeviceObject& d) { return "device(type='" + std::string(name(d.value)) + "')"; })
      .def("__str__", [](const DeviceObject& d) { return std::string(name(d.value)); })
      .def("__hash__", [](const DeviceObject& d) { return static_cast<int>(d.value) + 104729; })
      .def("__eq__",
           [](const DeviceObject& d, const py::object& other) {
             if (py::isinstance<DeviceObject>(other)) {
               return other.cast<DeviceObject>().value == d.value;
             }
             return py::isinstance<py::str>(other) &&
                    device_from_text(other.cast<std::string>()) == d.value;
           })
      .def("__reduce__", [m](const DeviceObject& d) {
        return py::make_tuple(m.attr("device"), py::make_tuple(std::string(name(d.value))));
      });
  for (const Device device : {Device::kCpu, Device::kMetal}) {
    device_objects()[static_cast<size_t>(device)] = py::cast(DeviceObject{device}).inc_ref().ptr();
  }
}

// A generator that starts anew inside a trace would go on instead at each run.
void refuse_in_trace(const char* what) {
  if (runtime::thread_state().recorder == nullptr) return;
  throw Error(ErrorKind::kTrace,
              std::string(what) +
                  ": a generator was started inside a compiled step, where every "
                  "run would go on from the last; start it outside");
}

void bind_generator(py::module_& m) {
  using runtime::Generator;
  py::class_<Generator, runtime::GeneratorRef>(m, "Generator",
                                               "Seed and offset of the Philox counters.")
      .def(py::init([](int64_t seed) {
             refuse_in_trace("Generator");
             return std::make_shared<Generator>(seed);
           }),
           py::arg("seed") = 0)
      .def("manual_seed",
           [](runtime::GeneratorRef self, int64_t seed) {
             refuse_in_trace("manual_seed");
             self->set_state({seed, 0});
             return self;
           })
      .def("initial_seed", [](const Generator& self) { return self.state().seed; })
      .def("get_state",
           [](const Generator& self) {
             return py::make_tuple(self.state().seed, self.state().offset);
           })
      .def("set_state",
           [](Generator& self, const std::pair<int64_t, int64_t>& state) {
             refuse_in_trace("set_state");
             self.set_state({state.first, state.second});
           })
      .def("__reduce__", [m](const Generator& self) {
        return py::make_tuple(m.attr("_generator_of"),
                              py::make_tuple(self.state().seed, self.state().offset));
      });
  m.def("_generator_of", [](int64_t seed, int64_t offset) {
    auto made = std::make_shared<Generator>(seed);
    made->set_state({seed, offset});
    return made;
  });
  m.attr("default_generator") = py::cast(runtime::default_generator());
}

runtime::AutocastMode& mode_of(const DeviceObject& device) {
  return runtime::thread_state().autocast[static_cast<size_t>(device.value)];
}

PyObject* is_autocast_on(PyObject*, PyObject*) {
  const runtime::AutocastModes& modes = runtime::thread_state().autocast;
  return PyBool_FromLong(modes[0].enabled || modes[1].enabled);
}

// Asked at each call of a marked function, so without pybind11's checks of arguments.
PyMethodDef autocast_methods[] = {
    {"is_autocast_on", is_autocast_on, METH_NOARGS,
     "is_autocast_on(): True if this thread's mixed precision is on for some device."},
    {nullptr, nullptr, 0, nullptr},
};

// Mixed precision of this thread. Python holds a suspended state as the bits of `enabled`.
void bind_autocast(py::module_& m) {
  m.def("autocast_mode", [](const DeviceObject& device) {
    const runtime::AutocastMode mode = mode_of(device);
    return py::make_tuple(mode.enabled, dtype_object(mode.dtype));
  });
  m.def("set_autocast_mode", [](const DeviceObject& device, bool enabled, const py::object& low) {
    const auto dtype = as_dtype(low);
    if (!dtype || (*dtype != DType::kBFloat16 && *dtype != DType::kFloat16)) {
      throw Error(ErrorKind::kDType, "autocast: the low dtype must be bfloat16 or float16: got " +
                                         std::string(py::repr(low)));
    }
    mode_of(device) = {enabled, *dtype};
  });
  if (PyModule_AddFunctions(m.ptr(), autocast_methods) != 0) throw py::error_already_set();
  m.def("suspend_autocast", [] {
    runtime::AutocastModes& modes = runtime::thread_state().autocast;
    return py::make_tuple(std::exchange(modes[0].enabled, false),
                          std::exchange(modes[1].enabled, false));
  });
  m.def("resume_autocast", [](const std::pair<bool, bool>& enabled) {
    runtime::AutocastModes& modes = runtime::thread_state().autocast;
    modes[0].enabled = enabled.first;
    modes[1].enabled = enabled.second;
  });
}

void bind_process(py::module_& m) {
  m.def("get_default_device",
        [] { return device_object(runtime::process_state().default_device); });
  m.def("set_default_device", [](const DeviceObject& device) {
    backends::backend_for(device.value);  // throws where there is none
    runtime::process_state().default_device = device.value;
  });
  m.def("get_default_dtype", [] { return dtype_object(runtime::process_state().default_dtype); });
  m.def("set_default_dtype", [](const py::object& object) {
    const auto dtype = as_dtype(object);
    if (!dtype || !is_floating(*dtype)) {
      throw Error(ErrorKind::kType, "set_default_dtype: takes a floating dtype");
    }
    runtime::process_state().default_dtype = *dtype;
  });
  m.def("get_num_threads", &cpu::num_threads);
  m.def("set_num_threads", [](const py::object& count) {
    const int64_t asked = as_integer(count.ptr(), "set_num_threads", "count");
    const py::gil_scoped_release released;
    cpu::set_num_threads(asked);
  });
  m.def("bump_state", [] { runtime::process_state().module_version.fetch_add(1); });
  m.def("is_grad_enabled", [] { return runtime::thread_state().grad_enabled; });
  m.def("set_grad_enabled", [](bool on) { runtime::thread_state().grad_enabled = on; });
  m.def("is_tracing", [] { return runtime::thread_state().recorder != nullptr; });
  m.def(
      "require_device", [](const DeviceObject& device) { backends::backend_for(device.value); },
      "Throws DeviceUnavailableError where the device does not exist.");
  m.def("memory_allocated", &backends::allocated_bytes);
  m.def("max_memory_allocated", &backends::peak_allocated_bytes);
  m.def("max_memory_leased", &backends::peak_leased_bytes);
  m.def("max_memory_in_use", &backends::peak_bytes_in_use);
  m.def("reset_peak_memory", &backends::reset_peaks);
}

}  // namespace

py::object dtype_object(DType dtype) {
  return py::reinterpret_borrow<py::object>(dtype_objects()[static_cast<size_t>(dtype)]);
}

py::object device_object(Device device) {
  return py::reinterpret_borrow<py::object>(device_objects()[static_cast<size_t>(device)]);
}

std::optional<DType> as_dtype(py::handle object) {
  for (size_t i = 0; i < kNumDTypes; ++i) {
    if (dtype_objects()[i] == object.ptr()) return static_cast<DType>(i);
  }
  if (py::isinstance<DTypeObject>(object)) return object.cast<DTypeObject>().value;
  return std::nullopt;
}

void bind_types(py::module_& m) {
  bind_dtype(m);
  bind_device(m);
  bind_generator(m);
  bind_autocast(m);
  bind_process(m);
}

}  // namespace lucid::bindings

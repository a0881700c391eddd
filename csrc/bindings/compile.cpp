// The recorder, compiled steps, counters and caches.
#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "backends/backend.h"
#include "backends/disk_cache.h"
#include "backends/notices.h"
#include "bindings/convert.h"
#include "bindings/diagnosis.h"
#include "compile/entry.h"
#include "compile/function.h"
#include "compile/pipeline.h"
#include "compile/saved.h"
#include "compile/sized.h"
#include "compile/step.h"
#include "ops/registry.h"
#include "passes/passes.h"
#include "runtime/dispatch/eager_cache.h"
#include "runtime/process.h"
#include "runtime/trace/recorder.h"
#include "support/errors.h"

namespace lucid::bindings {
namespace {

using compile::StepEntry;

/// A recorder that Python holds, until it is finished or cancelled.
class PyRecorder {
 public:
  /// With `keeps` it notes what the code can go on after, and what it recorded can be had from
  /// kept() however it ended.
  PyRecorder(std::string what, bool keeps)
      : recorder_(std::make_unique<runtime::Recorder>(std::move(what))), keeps_(keeps) {
    if (keeps) recorder_->note_refusals();
  }

  TensorRef argument(const TensorRef& source, std::optional<int64_t> size) {
    return live().argument(source, size);
  }
  TensorRef scalar(const TensorRef& like) {
    return live().scalar(like->type().dtype, like->device());
  }
  void limit_nodes(size_t most) { live().limit_nodes(most); }
  void mark() { live().mark(); }
  void differentiate(const std::vector<TensorRef>& results, bool ends_in_loss) {
    live().differentiate(results, ends_in_loss);
  }
  runtime::Trace finish(const std::vector<TensorRef>& results) {
    runtime::Trace trace = live().finish(results);
    recorder_.reset();
    if (keeps_) kept_ = trace;
    is_whole_ = true;
    return trace;
  }
  /// True once it was finished with results.
  bool is_whole() const { return is_whole_; }
  const runtime::Trace& kept() const { return kept_; }
  void pause() { live().pause(); }
  void resume() { live().resume(); }
  void cancel() {
    if (keeps_ && recorder_ != nullptr) kept_ = recorder_->abandon();
    recorder_.reset();
  }

 private:
  runtime::Recorder& live() {
    if (recorder_ != nullptr) return *recorder_;
    throw Error(ErrorKind::kInternal, "the recorder has ended");
  }
  std::unique_ptr<runtime::Recorder> recorder_;
  bool keeps_;
  bool is_whole_ = false;
  runtime::Trace kept_;
};

/// A finished trace, used up by compiling.
struct PyTrace {
  runtime::Trace trace;
  Device device;
};

// Where a trace runs: its results may be none, what it writes is not then.
Device device_of(const std::vector<TensorRef>& results, const runtime::Trace& trace) {
  if (!results.empty()) return results.front()->device();
  return trace.captures.empty() ? Device::kCpu : trace.captures.front().tensor->device();
}

std::vector<TensorRef> tensors(const py::sequence& items) {
  std::vector<TensorRef> result;
  result.reserve(items.size());
  for (const py::handle item : items) result.push_back(require_tensor(item, "step: each input"));
  return result;
}

// What the core noticed, as Python's warnings. The first that is made an error is raised if it may
// be; others are reported as errors that nobody can catch.
void warn_of_notices(bool may_raise) {
  std::optional<py::error_already_set> raised;
  for (const std::string& text : backends::take_notices()) {
    if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) == 0) continue;
    if (may_raise && !raised) {
      raised.emplace();
    } else {
      PyErr_WriteUnraisable(nullptr);
    }
  }
  if (raised) throw py::error_already_set(*raised);
}

// Compiles a trace by `make(trace)` and binds it to its captured tensors.
template <class Make>
std::unique_ptr<StepEntry> bound(PyTrace& traced, const py::sequence& arguments,
                                 const py::sequence& found, Make make) {
  const std::vector<TensorRef> sources = tensors(arguments);
  const std::vector<TensorRef> places = tensors(found);
  std::vector<TensorRef> captures;
  for (const runtime::Capture& capture : traced.trace.captures) captures.push_back(capture.tensor);
  std::shared_ptr<compile::Program> program;
  {
    const py::gil_scoped_release release;
    program = make(std::move(traced.trace));
  }
  warn_of_notices(true);
  return std::make_unique<StepEntry>(std::move(program), compile::describe(sources),
                                     std::move(captures), places);
}

compile::Options options_of(const std::optional<int64_t>& memory_limit) {
  compile::Options options;
  options.memory_limit = memory_limit;
  return options;
}

std::unique_ptr<StepEntry> compile_step(PyTrace& traced, const py::sequence& arguments,
                                        const py::sequence& found,
                                        std::optional<int64_t> memory_limit) {
  const bool with_gradients = runtime::thread_state().grad_enabled;
  return bound(traced, arguments, found, [&](runtime::Trace trace) {
    return compile::CompiledStep::make(std::move(trace), with_gradients, traced.device,
                                       options_of(memory_limit));
  });
}

std::unique_ptr<StepEntry> compile_function(PyTrace& traced, const py::sequence& arguments,
                                            const py::sequence& found, bool is_differentiable,
                                            std::optional<int64_t> memory_limit) {
  const bool with_gradients = is_differentiable && runtime::thread_state().grad_enabled;
  return bound(traced, arguments, found, [&](runtime::Trace trace) {
    return compile::CompiledFunction::make(std::move(trace), with_gradients, traced.device,
                                           options_of(memory_limit));
  });
}

std::vector<double> numbers_of(const py::tuple& scalars) {
  std::vector<double> numbers;
  numbers.reserve(scalars.size());
  for (const py::handle item : scalars) {
    const double number = PyFloat_AsDouble(item.ptr());
    if (number == -1.0 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      throw Error(ErrorKind::kType, std::string("optimizer: an option must be a number: got ") +
                                        Py_TYPE(item.ptr())->tp_name +
                                        "; set it in the optimizer's param_groups");
    }
    numbers.push_back(number);
  }
  return numbers;
}

// The results as a tuple, one result alone; None where the call does not fit the entry.
py::object run_entry(StepEntry& entry, std::span<const TensorRef> inputs,
                     const py::tuple& scalars) {
  const std::vector<double> numbers = numbers_of(scalars);
  warn_of_notices(true);  // a backward may have been compiled since
  std::optional<std::vector<TensorRef>> results = entry.try_run(inputs, numbers);
  warn_of_notices(false);  // what the run has written stands
  if (!results) return py::none();
  if (results->size() == 1) return py::cast(std::move(results->front()));
  py::tuple all(results->size());
  for (size_t i = 0; i < results->size(); ++i) all[i] = py::cast(std::move((*results)[i]));
  return all;
}

py::object try_run(StepEntry& entry, const py::tuple& arguments, const py::tuple& scalars) {
  std::vector<TensorRef> inputs;
  inputs.reserve(arguments.size());
  for (const py::handle item : arguments) {
    const TensorRef* tensor = as_tensor(item.ptr());
    if (tensor == nullptr) return py::none();
    inputs.push_back(*tensor);
  }
  return run_entry(entry, inputs, scalars);
}

// As try_run of the gradients of some tensors, without grad mode: None also if one of those has no
// gradient, or one of `others` has one.
py::object try_update(StepEntry& entry, const py::tuple& params, const py::tuple& others,
                      const py::tuple& scalars) {
  for (const py::handle item : others) {
    if (require_tensor(item, "optimizer: each parameter")->has_grad()) return py::none();
  }
  std::vector<TensorRef> gradients;
  gradients.reserve(params.size());
  for (const py::handle item : params) {
    TensorRef gradient = require_tensor(item, "optimizer: each parameter")->grad();
    if (gradient == nullptr) return py::none();
    gradients.push_back(std::move(gradient));
  }
  const runtime::GradMode no_grad(false);
  return run_entry(entry, gradients, scalars);
}

py::dict saved_dict(const PyTrace& self) {
  const compile::SavedTrace saved = compile::save(self.trace);
  py::dict result;
  result["graph"] = saved.graph;
  result["result_tracks"] = saved.result_tracks;
  result["num_arguments"] = saved.num_arguments;
  result["num_captures"] = saved.num_captures;
  result["writes"] = saved.writes;
  result["counters"] = saved.counters;
  result["targets"] = saved.targets;
  result["marks"] = saved.marks;
  result["device"] = std::string(name(self.device));
  return result;
}

PyTrace restored(const py::dict& fields, const std::vector<TensorRef>& captures,
                 const std::vector<std::optional<TensorRef>>& written) {
  compile::SavedTrace saved;
  saved.graph = fields["graph"].cast<std::string>();
  saved.result_tracks = fields["result_tracks"].cast<std::vector<bool>>();
  saved.num_arguments = fields["num_arguments"].cast<int64_t>();
  saved.num_captures = fields["num_captures"].cast<int64_t>();
  saved.writes = fields["writes"].cast<std::vector<int>>();
  saved.counters = fields["counters"].cast<std::vector<int64_t>>();
  saved.targets = fields["targets"].cast<std::vector<std::pair<int, int>>>();
  saved.marks = fields["marks"].cast<std::vector<int64_t>>();
  std::vector<TensorRef> tensors;
  for (const auto& tensor : written) tensors.push_back(tensor.value_or(nullptr));
  const bool is_metal = fields["device"].cast<std::string>() == name(Device::kMetal);
  return {compile::restore(saved, captures, tensors), is_metal ? Device::kMetal : Device::kCpu};
}

py::dict memory_dict(const StepEntry& entry) {
  const compile::ProgramMemory memory = entry.program()->memory();
  py::dict result;
  result["parameters"] = memory.parameters;
  result["inputs"] = memory.inputs;
  result["outputs"] = memory.outputs;
  result["arena_peak"] = memory.arena_peak;
  result["is_estimate"] = !backends::backend_for(entry.program()->device()).knows_memory();
  py::list segments;
  for (const compile::SegmentMemory& segment : memory.segments) {
    py::dict row;
    row["parameters"] = segment.parameters;
    row["inputs"] = segment.inputs;
    row["outputs"] = segment.outputs;
    row["arena_peak"] = segment.arena_peak;
    segments.append(row);
  }
  result["segments"] = segments;
  return result;
}

// None without a memory limit.
py::object recomputation_dict(const StepEntry& entry) {
  const std::optional<compile::Recomputation> done = entry.program()->recomputation();
  if (!done) return py::none();
  py::dict result;
  result["peak_before"] = done->peak_before;
  result["peak"] = done->peak;
  result["repeated_operations"] = done->num_repeated;
  result["repeated_flops"] = done->repeated.flops;
  result["flops"] = done->whole.flops;
  return result;
}

py::list profile_list(StepEntry& entry, const py::sequence& arguments,
                      const std::vector<double>& scalars) {
  const std::vector<TensorRef> inputs = tensors(arguments);
  std::vector<backends::KernelTime> times;
  {
    const py::gil_scoped_release release;
    times = entry.profile(inputs, scalars);
  }
  py::list rows;
  for (const backends::KernelTime& time : times) {
    py::dict row;
    row["label"] = time.label;
    row["types"] = time.types;
    row["at"] = time.location == nullptr
                    ? std::string()
                    : time.location->file + ":" + std::to_string(time.location->line);
    row["flops"] = time.cost.flops;
    row["bytes"] = time.cost.bytes;
    row["seconds"] = time.seconds;
    rows.append(row);
  }
  return rows;
}

py::dict timing_dict(const StepEntry& entry) {
  const compile::ProgramTiming timing = entry.program()->timing();
  py::dict result;
  result["compile_seconds"] = timing.compile_seconds;
  result["runs"] = timing.runs;
  result["run_seconds"] = timing.run_seconds;
  return result;
}

py::dict counters() {
  const runtime::ProcessState& state = runtime::process_state();
  py::dict result;
  result["compilations"] = state.compilations.load();
  result["executable_runs"] = state.executable_runs.load();
  result["eager_dispatches"] = state.eager_dispatches.load();
  result["buffer_allocations"] = backends::num_allocations();
  return result;
}

py::dict cache_dict() {
  const compile::CacheInfo info = compile::cache_info();
  py::dict result;
  result["entries"] = info.entries;
  result["hits"] = info.hits;
  result["misses"] = info.misses;
  result["max_entries"] = info.max_entries;
  const backends::DiskCounts disk = backends::disk_counts();
  result["disk_hits"] = disk.hits;
  result["disk_misses"] = disk.misses;
  result["disk_writes"] = disk.writes;
  result["eager_entries"] = runtime::eager_cache_size();
  return result;
}

void bind_trace(py::module_& m) {
  py::class_<PyTrace>(m, "Trace")
      .def_property_readonly("captures",
                             [](const PyTrace& self) {
                               py::list result;
                               for (const runtime::Capture& capture : self.trace.captures) {
                                 result.append(py::cast(capture.tensor));
                               }
                               return result;
                             })
      .def_property_readonly("num_targets",
                             [](const PyTrace& self) { return self.trace.targets.size(); })
      .def("graph_text", [](const PyTrace& self) { return ir::to_string(self.trace.graph); })
      .def_property_readonly("num_nodes",
                             [](const PyTrace& self) { return self.trace.graph.nodes().size(); })
      .def("copy", [](const PyTrace& self) { return self; })
      .def_property_readonly("written",
                             [](const PyTrace& self) {
                               py::list result;
                               for (const runtime::StateWrite& write : self.trace.writes) {
                                 result.append(write.tensor == nullptr ? py::object(py::none())
                                                                       : py::cast(write.tensor));
                               }
                               return result;
                             })
      .def("save", &saved_dict)
      .def_static("restore", &restored);
}

void bind_recorder(py::module_& m) {
  py::class_<PyRecorder>(m, "Recorder")
      .def(py::init<std::string, bool>(), py::arg("what") = "make_step", py::arg("keeps") = false)
      .def(
          "diagnose",
          [](const PyRecorder& self, bool is_step, const std::optional<std::string>& device) {
            return diagnosis_dict(self.kept(), self.is_whole(), is_step, device);
          },
          py::arg("is_step"), py::arg("device"))
      .def(
          "argument",
          [](PyRecorder& self, const TensorRef& source, std::optional<int64_t> size) {
            return self.argument(source, size);
          },
          py::arg("source"), py::arg("size") = py::none())
      .def("scalar", [](PyRecorder& self, const TensorRef& like) { return self.scalar(like); })
      .def("limit_nodes", &PyRecorder::limit_nodes)
      .def("mark", &PyRecorder::mark)
      .def("differentiate",
           [](PyRecorder& self, const py::sequence& results, bool ends_in_loss) {
             self.differentiate(tensors(results), ends_in_loss);
           })
      .def("finish",
           [](PyRecorder& self, const py::sequence& results) {
             const std::vector<TensorRef> found = tensors(results);
             runtime::Trace trace = self.finish(found);
             const Device device = device_of(found, trace);
             return PyTrace{std::move(trace), device};
           })
      .def("pause", &PyRecorder::pause)
      .def("resume", &PyRecorder::resume)
      .def("cancel", &PyRecorder::cancel);
}

void bind_sized_trace(py::module_& m) {
  py::class_<compile::SizedTrace>(m, "SizedTrace")
      .def(py::init([](const PyTrace& trace, int64_t size, const PyTrace& other, int64_t at) {
        return compile::SizedTrace(trace.trace, size, other.trace, at);
      }))
      .def("at",
           [](const compile::SizedTrace& self, int64_t size, const PyTrace& like) {
             return PyTrace{self.at(size), like.device};
           })
      .def("check", [](const compile::SizedTrace& self, const PyTrace& trace,
                       int64_t size) { self.check(trace.trace, size); })
      .def("save", &compile::SizedTrace::save)
      .def_static("restore",
                  [](const PyTrace& trace, int64_t size,
                     const std::vector<compile::SizedTrace::SavedPlace>& places,
                     std::vector<bool> sized_arguments) {
                    return compile::SizedTrace::restore(trace.trace, size, places,
                                                        std::move(sized_arguments));
                  })
      .def_property_readonly("sized_arguments", &compile::SizedTrace::sized_arguments)
      .def_property_readonly("is_certain", &compile::SizedTrace::is_certain);
}

void bind_entry(py::module_& m) {
  py::class_<StepEntry>(m, "StepEntry")
      .def("try_run", &try_run, py::arg("arguments"), py::arg("scalars") = py::tuple())
      .def("try_update", &try_update)
      .def("accepts",
           [](const StepEntry& self, const py::sequence& arguments) {
             return self.accepts(tensors(arguments));
           })
      .def("probe",
           [](StepEntry& self, const py::sequence& arguments) {
             const std::vector<TensorRef> inputs = tensors(arguments);
             const py::gil_scoped_release release;
             self.probe(inputs);
           })
      .def("rebind", [](StepEntry& self,
                        const py::sequence& captures) { return self.rebind(tensors(captures)); })
      .def("memory", &memory_dict)
      .def("timing", &timing_dict)
      .def("recomputation", &recomputation_dict)
      .def("profile", &profile_list, py::arg("arguments"),
           py::arg("scalars") = std::vector<double>())
      .def_property_readonly("has_effects",
                             [](const StepEntry& self) { return self.program()->has_effects(); })
      .def("graph_text", [](const StepEntry& self) { return self.program()->graph_text(); })
      .def_property_readonly("num_nodes",
                             [](const StepEntry& self) { return self.program()->num_nodes(); });
  m.def("compile_step", &compile_step, py::arg("trace"), py::arg("arguments"), py::arg("found"),
        py::arg("memory_limit") = py::none());
  m.def("compile_function", &compile_function, py::arg("trace"), py::arg("arguments"),
        py::arg("found"), py::arg("is_differentiable"), py::arg("memory_limit") = py::none());
}

}  // namespace

void bind_compile(py::module_& m) {
  bind_trace(m);
  bind_recorder(m);
  bind_sized_trace(m);
  bind_entry(m);
  m.def("counters", &counters);
  m.def("compile_cache_info", &cache_dict);
  m.def("clear_compile_cache", [] {
    compile::clear_cache();
    runtime::clear_eager_cache();
  });
  m.def("_notify", &backends::notify);
  m.def("clear_disk_cache", [] {
    const auto disk = backends::DiskCache::from_environment();
    return disk ? disk->clear() : 0;
  });
  m.def("module_version", [] { return runtime::process_state().module_version.load(); });
  m.def("parse_graph", [](const std::string& text) {
    return ir::to_string(ir::parse(text, [](std::string_view op) { return ops::find(op); }));
  });
  m.def("run_passes", [](const std::string& text) {
    ir::Graph graph = ir::parse(text, [](std::string_view op) { return ops::find(op); });
    return ir::to_string(passes::run_pipeline(std::move(graph)));
  });
}

}  // namespace lucid::bindings

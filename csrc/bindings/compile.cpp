// The recorder, compiled steps, counters and caches.
#include <optional>
#include <string>

#include "backends/backend.h"
#include "bindings/convert.h"
#include "compile/entry.h"
#include "compile/pipeline.h"
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
  PyRecorder() : recorder_(std::make_unique<runtime::Recorder>()) {}

  TensorRef argument(const TensorRef& source) { return live().argument(source); }
  void mark() { live().mark(); }
  void differentiate(const std::vector<TensorRef>& results) { live().differentiate(results); }
  runtime::Trace finish(const std::vector<TensorRef>& results) {
    runtime::Trace trace = live().finish(results);
    recorder_.reset();
    return trace;
  }
  void cancel() { recorder_.reset(); }

 private:
  runtime::Recorder& live() {
    if (recorder_ != nullptr) return *recorder_;
    throw Error(ErrorKind::kInternal, "the recorder has ended");
  }
  std::unique_ptr<runtime::Recorder> recorder_;
};

/// A finished trace, used up by compiling.
struct PyTrace {
  runtime::Trace trace;
  Device device;
};

std::vector<TensorRef> tensors(const py::sequence& items) {
  std::vector<TensorRef> result;
  result.reserve(items.size());
  for (const py::handle item : items) result.push_back(require_tensor(item, "step: each input"));
  return result;
}

std::unique_ptr<StepEntry> compile_step(PyTrace& traced, const py::sequence& arguments,
                                        const py::sequence& found) {
  const std::vector<TensorRef> sources = tensors(arguments);
  const std::vector<TensorRef> places = tensors(found);
  std::vector<TensorRef> captures;
  for (const runtime::Capture& capture : traced.trace.captures) captures.push_back(capture.tensor);
  const bool with_gradients = runtime::thread_state().grad_enabled;
  std::shared_ptr<compile::CompiledStep> step;
  {
    const py::gil_scoped_release release;
    step = compile::CompiledStep::make(std::move(traced.trace), with_gradients, traced.device);
  }
  return std::make_unique<StepEntry>(std::move(step), compile::describe(sources),
                                     std::move(captures), places);
}

// The loss, or a tuple that begins with it where there are more results; None where the call does
// not fit the entry.
py::object try_run(StepEntry& entry, const py::tuple& arguments) {
  std::vector<TensorRef> inputs;
  inputs.reserve(arguments.size());
  for (const py::handle item : arguments) {
    const TensorRef* tensor = as_tensor(item.ptr());
    if (tensor == nullptr) return py::none();
    inputs.push_back(*tensor);
  }
  std::vector<TensorRef> results = entry.try_run(inputs);
  if (results.empty()) return py::none();
  if (results.size() == 1) return py::cast(std::move(results.front()));
  py::tuple all(results.size());
  for (size_t i = 0; i < results.size(); ++i) all[i] = py::cast(std::move(results[i]));
  return all;
}

py::dict memory_dict(const StepEntry& entry) {
  const compile::StepMemory memory = entry.step()->memory();
  py::dict result;
  result["parameters"] = memory.parameters;
  result["inputs"] = memory.inputs;
  result["outputs"] = memory.outputs;
  result["arena_peak"] = memory.arena_peak;
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

py::dict timing_dict(const StepEntry& entry) {
  const compile::StepTiming timing = entry.step()->timing();
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
  result["eager_entries"] = runtime::eager_cache_size();
  return result;
}

}  // namespace

void bind_compile(py::module_& m) {
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
      .def("graph_text", [](const PyTrace& self) { return ir::to_string(self.trace.graph); });
  py::class_<PyRecorder>(m, "Recorder")
      .def(py::init<>())
      .def("argument",
           [](PyRecorder& self, const TensorRef& source) { return self.argument(source); })
      .def("mark", &PyRecorder::mark)
      .def("differentiate",
           [](PyRecorder& self, const py::sequence& results) {
             self.differentiate(tensors(results));
           })
      .def("finish",
           [](PyRecorder& self, const py::sequence& results) {
             const std::vector<TensorRef> found = tensors(results);
             return PyTrace{self.finish(found), found.front()->device()};
           })
      .def("cancel", &PyRecorder::cancel);
  py::class_<StepEntry>(m, "StepEntry")
      .def("try_run", &try_run)
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
      .def("graph_text", [](const StepEntry& self) { return self.step()->graph_text(); })
      .def_property_readonly("has_effects",
                             [](const StepEntry& self) { return self.step()->has_effects(); })
      .def_property_readonly("num_nodes",
                             [](const StepEntry& self) { return self.step()->num_nodes(); });
  m.def("compile_step", &compile_step);
  m.def("counters", &counters);
  m.def("compile_cache_info", &cache_dict);
  m.def("clear_compile_cache", [] {
    compile::clear_cache();
    runtime::clear_eager_cache();
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

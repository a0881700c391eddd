#include "compile/saved.h"

#include <algorithm>
#include <set>
#include <utility>

#include "ops/registry.h"
#include "support/errors.h"

namespace lucid::compile {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorKind::kUser, "load_compiled: the file holds no trace: " + what);
}

// The graph without the user's lines, which name files of the machine that saved it.
ir::Graph without_lines(const ir::Graph& graph) {
  ir::Graph result;
  for (size_t value = 0; value < graph.num_values();) {
    const ir::ValueId id{static_cast<uint32_t>(value)};
    const int producer = graph.producer(id);
    if (producer < 0) {
      const auto input = std::ranges::find(graph.inputs(), id, &ir::Input::value);
      result.add_input(input->role, graph.type(id));
      ++value;
      continue;
    }
    ir::Node node = graph.nodes()[static_cast<size_t>(producer)];
    node.location = nullptr;
    ir::ValueTypes types;
    for (const ir::ValueId output : node.outputs) types.push_back(graph.type(output));
    value += node.outputs.size();
    result.add_node(std::move(node), types);
  }
  result.set_outputs(graph.outputs());
  return result;
}

// Hands out the outputs of a graph in order.
class Outputs {
 public:
  explicit Outputs(const ir::Graph& graph) : graph_(graph) {}

  ir::ValueId next() {
    if (at_ == graph_.outputs().size()) fail("it names more values than its graph returns");
    return graph_.outputs()[at_++];
  }
  /// The next one, which must be an input that was not taken yet.
  ir::ValueId next_input() {
    const ir::ValueId value = next();
    if (graph_.producer(value) >= 0 || !inputs_.insert(value).second) {
      fail("value %" + std::to_string(index(value)) + " is no input of its own");
    }
    return value;
  }
  void finish() const {
    if (at_ != graph_.outputs().size()) fail("its graph returns more values than it names");
    if (inputs_.size() != graph_.inputs().size()) fail("an input of its graph has no source");
  }

 private:
  const ir::Graph& graph_;
  size_t at_ = 0;
  std::set<ir::ValueId> inputs_;
};

void check_place(int place, size_t count, const char* what) {
  if (place < -1 || place >= static_cast<int>(count)) {
    fail(std::string(what) + " " + std::to_string(place) + " of " + std::to_string(count));
  }
}

void check_type(const runtime::TensorRef& tensor, const ir::ValueType& type) {
  if (tensor != nullptr && tensor->type() == type) return;
  fail("a tensor is " + (tensor == nullptr ? "missing" : ir::to_string(tensor->type())) +
       " where it takes " + ir::to_string(type));
}

}  // namespace

SavedTrace save(const runtime::Trace& trace) {
  if (!trace.scalars.empty()) {
    throw Error(ErrorKind::kInternal, "save_compiled: a trace with numbers of a run");
  }
  if (!trace.backwards.empty()) {
    throw Error(ErrorKind::kUnsupported,
                "save_compiled: the step differentiates through an autograd.Function, whose Python "
                "backward a file cannot hold; use operations or custom_op");
  }
  SavedTrace saved;
  std::vector<ir::ValueId> outputs = trace.results;
  saved.result_tracks = trace.result_tracks;
  saved.num_arguments = static_cast<int64_t>(trace.arguments.size());
  saved.num_captures = static_cast<int64_t>(trace.captures.size());
  outputs.insert(outputs.end(), trace.arguments.begin(), trace.arguments.end());
  for (const runtime::Capture& capture : trace.captures) outputs.push_back(capture.value);
  for (const runtime::StateWrite& write : trace.writes) {
    outputs.push_back(write.value);
    saved.writes.push_back(write.argument);
  }
  for (const runtime::Draw& draw : trace.draws) {
    if (draw.generator != runtime::default_generator()) {
      throw Error(ErrorKind::kUnsupported,
                  "save_compiled: the step draws from a generator of its own, which a file cannot "
                  "name; draw from the default generator");
    }
    outputs.push_back(draw.value);
    saved.counters.push_back(draw.counters);
  }
  for (const runtime::GradTarget& target : trace.targets) {
    outputs.push_back(target.value);
    saved.targets.emplace_back(target.argument, target.capture);
  }
  for (const size_t mark : trace.marks) saved.marks.push_back(static_cast<int64_t>(mark));
  ir::Graph graph = trace.graph;
  graph.set_outputs(std::move(outputs));
  saved.graph = ir::to_string(without_lines(graph));
  return saved;
}

runtime::Trace restore(const SavedTrace& saved, std::span<const runtime::TensorRef> captures,
                       std::span<const runtime::TensorRef> written) {
  runtime::Trace trace;
  trace.graph = ir::parse(saved.graph, [](std::string_view name) { return ops::find(name); });
  if (captures.size() != static_cast<size_t>(saved.num_captures)) fail("captures are missing");
  if (written.size() != saved.writes.size()) fail("written tensors are missing");
  Outputs outputs(trace.graph);
  for (size_t i = 0; i < saved.result_tracks.size(); ++i) trace.results.push_back(outputs.next());
  trace.result_tracks = saved.result_tracks;
  for (int64_t i = 0; i < saved.num_arguments; ++i) {
    trace.arguments.push_back(outputs.next_input());
  }
  for (const runtime::TensorRef& tensor : captures) {
    trace.captures.push_back({tensor, outputs.next_input()});
    check_type(tensor, trace.graph.type(trace.captures.back().value));
  }
  for (size_t i = 0; i < saved.writes.size(); ++i) {
    const int argument = saved.writes[i];
    check_place(argument, trace.arguments.size(), "argument");
    trace.writes.push_back({argument, written[i], outputs.next()});
    const ir::ValueType& type = trace.graph.type(trace.writes.back().value);
    if (argument < 0) check_type(written[i], type);
    if (argument >= 0 && trace.graph.type(trace.arguments[static_cast<size_t>(argument)]) != type) {
      fail("an argument is written with another type");
    }
  }
  for (const int64_t counters : saved.counters) {
    trace.draws.push_back({runtime::default_generator(), outputs.next_input(), counters});
    const bool is_state =
        trace.graph.type(trace.draws.back().value) == ir::ValueType{DType::kInt64, Shape{2}};
    if (!is_state || counters < 0) fail("a draw is no generator's state");
  }
  for (const auto& [argument, capture] : saved.targets) {
    check_place(argument, trace.arguments.size(), "argument");
    check_place(capture, trace.captures.size(), "capture");
    if ((argument < 0) == (capture < 0)) fail("a gradient belongs to one tensor");
    trace.targets.push_back({argument, capture, outputs.next()});
    const auto place = static_cast<size_t>(argument < 0 ? capture : argument);
    const ir::ValueId source = argument < 0 ? trace.captures[place].value : trace.arguments[place];
    const ir::ValueType& type = trace.graph.type(trace.targets.back().value);
    if (type != trace.graph.type(source) || !is_floating(type.dtype)) {
      fail("a gradient has another type than its tensor");
    }
  }
  outputs.finish();
  for (const int64_t mark : saved.marks) {
    const auto last = trace.marks.empty() ? size_t{0} : trace.marks.back();
    const bool is_good = mark >= static_cast<int64_t>(last) &&
                         mark <= static_cast<int64_t>(trace.graph.nodes().size());
    if (!is_good) fail("segments out of order");
    trace.marks.push_back(static_cast<size_t>(mark));
  }
  trace.graph.set_outputs({});
  return trace;
}

}  // namespace lucid::compile

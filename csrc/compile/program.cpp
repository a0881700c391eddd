#include "compile/program.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <unordered_map>
#include <utility>

#include "runtime/dispatch/dispatch.h"
#include "support/errors.h"

namespace lucid::compile {

using backends::BufferRef;
using runtime::Edge;
using runtime::Value;

ProgramTiming Program::timing() const {
  const std::scoped_lock lock(mutex_);
  return timing_;
}

void Program::describe(runtime::Trace& trace) {
  for (const ir::ValueId result : trace.results) result_types_.push_back(trace.graph.type(result));
  describe_inputs(trace);
  describe_writes(trace);
  draws_ = std::move(trace.draws);
}

void Program::describe_inputs(const runtime::Trace& trace) {
  // By value id: where each input of the graph comes from.
  std::vector<InputSource> by_value(trace.graph.num_values(), InputSource{Source::kSeed, 0});
  const auto note = [&](ir::ValueId value, Source source, size_t place) {
    by_value[index(value)] = {source, static_cast<int>(place)};
  };
  for (size_t i = 0; i < trace.arguments.size(); ++i)
    note(trace.arguments[i], Source::kArgument, i);
  for (size_t i = 0; i < trace.captures.size(); ++i)
    note(trace.captures[i].value, Source::kCapture, i);
  for (size_t i = 0; i < trace.draws.size(); ++i) note(trace.draws[i].value, Source::kDraw, i);
  for (size_t i = 0; i < trace.scalars.size(); ++i) note(trace.scalars[i], Source::kScalar, i);
  numbers_.resize(trace.scalars.size());
  for (const ir::Input& input : trace.graph.inputs()) {
    sources_.push_back(by_value[index(input.value)]);
    input_types_.push_back(trace.graph.type(input.value));
    const int64_t size = input_types_.back().size_bytes();
    (input.role == ir::Role::kParameter ? memory_.parameters : memory_.inputs) += size;
  }
}

void Program::describe_writes(runtime::Trace& trace) {
  writes_ = std::move(trace.writes);
  std::unordered_map<const runtime::Cell*, int> capture_of;
  for (size_t i = 0; i < trace.captures.size(); ++i) {
    capture_of[trace.captures[i].tensor->cell().get()] = static_cast<int>(i);
  }
  for (const runtime::StateWrite& write : writes_) {
    write_types_.push_back(trace.graph.type(write.value));
    const auto found =
        write.tensor == nullptr ? capture_of.end() : capture_of.find(write.tensor->cell().get());
    write_captures_.push_back(found == capture_of.end() ? -1 : found->second);
  }
}

std::vector<int> Program::written_inputs() const {
  std::map<std::pair<Source, int>, int> input_of;
  for (size_t i = 0; i < sources_.size(); ++i) {
    input_of.emplace(std::pair(sources_[i].source, sources_[i].place), static_cast<int>(i));
  }
  std::vector<int> result;
  for (size_t i = 0; i < writes_.size(); ++i) {
    const bool is_argument = writes_[i].argument >= 0;
    const int place = is_argument ? writes_[i].argument : write_captures_[i];
    const auto found = input_of.find({is_argument ? Source::kArgument : Source::kCapture, place});
    result.push_back(found == input_of.end() ? -1 : found->second);
  }
  return result;
}

std::vector<ir::ValueId> Program::note_targets(const runtime::Trace& trace, const ir::Graph& graph,
                                               const ir::Grads& grads) {
  std::vector<ir::ValueId> found;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i]) continue;
    found.push_back(*grads[i]);
    targets_.push_back(trace.targets[i]);
    gradient_types_.push_back(graph.type(*grads[i]));
  }
  return found;
}

Program::Inputs Program::gather(const Call& call, Drawn& drawn) const {
  const CellLock lock(mutex_);
  Inputs inputs;
  inputs.reserve(sources_.size());
  drawn.reserve(draws_.size());
  for (size_t i = 0; i < sources_.size(); ++i) {
    const auto place = static_cast<size_t>(sources_[i].place);
    const TensorRef* tensor = nullptr;
    switch (sources_[i].source) {
      case Source::kArgument:
        tensor = &call.arguments[place];
        break;
      case Source::kCapture:
        tensor = &call.captures[place];
        break;
      case Source::kDraw:
        drawn.push_back(draws_[place].generator->draw(draws_[place].counters));
        inputs.push_back(runtime::to_value(drawn.back()).buffer);
        continue;
      case Source::kScalar:
        inputs.push_back(number_buffer(place, call.scalars[place], input_types_[i].dtype));
        continue;
      case Source::kSeed:
        inputs.emplace_back();
        continue;
    }
    const Value& value = (*tensor)->value();
    if (value.type != input_types_[i] || value.is_symbolic()) {
      throw Error(ErrorKind::kInternal, "step: an input is " + ir::to_string(value.type) +
                                            " where the executable takes " +
                                            ir::to_string(input_types_[i]));
    }
    inputs.push_back(value.buffer);
  }
  return inputs;
}

// Most numbers are those of the last run, and values never change.
BufferRef Program::number_buffer(size_t place, double number, DType dtype) const {
  LastNumber& last = numbers_[place];
  const auto bits = std::bit_cast<uint64_t>(number);
  if (last.buffer == nullptr || last.bits != bits) {
    last = {bits, runtime::number_value(number, dtype, device_).buffer};
  }
  return last.buffer;
}

void Program::take_back(const Drawn& drawn) const {
  for (size_t i = 0; i < drawn.size(); ++i) {
    draws_[i].generator->take_back(drawn[i], draws_[i].counters);
  }
}

std::vector<Edge> Program::target_edges(const Call& call) const {
  const CellLock lock(mutex_);
  std::vector<Edge> edges;
  edges.reserve(targets_.size());
  for (const runtime::GradTarget& target : targets_) {
    const TensorRef& tensor = target.argument >= 0
                                  ? call.arguments[static_cast<size_t>(target.argument)]
                                  : call.captures[static_cast<size_t>(target.capture)];
    edges.push_back(tensor->edge());
  }
  return edges;
}

void Program::write_state(const Call& call, std::vector<BufferRef> buffers) const {
  if (writes_.empty()) return;
  const CellLock lock(mutex_);
  const runtime::GradMode no_grad(false);
  for (size_t i = 0; i < writes_.size(); ++i) {
    const runtime::StateWrite& write = writes_[i];
    const int place = write_captures_[i];
    Value value{.type = write_types_[i], .device = device_, .buffer = std::move(buffers[i])};
    const TensorRef& target = write.argument >= 0
                                  ? call.arguments[static_cast<size_t>(write.argument)]
                              : place >= 0 ? call.captures[static_cast<size_t>(place)]
                                           : write.tensor;
    target->assign(runtime::Variable{.value = std::move(value)});
  }
}

void Program::timed(const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  {
    const runtime::HostPause pause(true);
    run();
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const std::scoped_lock lock(mutex_);
  ++timing_.runs;
  timing_.run_seconds += seconds;
}

}  // namespace lucid::compile

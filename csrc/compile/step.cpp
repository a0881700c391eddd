#include "compile/step.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "autodiff/autodiff.h"
#include "runtime/autograd/node.h"
#include "runtime/dispatch/dispatch.h"
#include "runtime/process.h"
#include "support/errors.h"

namespace lucid::compile {
namespace {

using backends::BufferRef;
using runtime::Edge;
using runtime::Gradients;
using runtime::Value;
using runtime::Variable;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool same_bits(const Value& lhs, const Value& rhs) {
  if (lhs.buffer == rhs.buffer) return true;
  const auto size = static_cast<size_t>(lhs.type.size_bytes());
  return std::memcmp(lhs.buffer->data(), rhs.buffer->data(), size) == 0;
}

// A lock under which cells are touched. Taking a view again runs a kernel then.
struct CellLock {
  explicit CellLock(std::mutex& mutex) : lock(mutex) {}
  std::scoped_lock<std::mutex> lock;
  runtime::HostHold hold;
};

// The value in memory of our own: borrowed memory may change while a seed is kept.
Value owned(Value value) {
  if (!value.buffer->is_borrowed()) return value;
  const int64_t size = value.type.size_bytes();
  const BufferRef copy = backends::backend_for(value.device).allocate(size);
  std::memcpy(copy->data(), value.buffer->data(), static_cast<size_t>(size));
  value.buffer = copy;
  return value;
}

// Ties a step's finished gradients into the tape.
class StepNode final : public runtime::GradNode {
 public:
  StepNode(std::shared_ptr<CompiledStep> step, std::vector<Edge> next, Value seed,
           std::vector<BufferRef> inputs, Gradients gradients)
      : GradNode(std::move(next)),
        step_(std::move(step)),
        seed_(std::move(seed)),
        inputs_(std::move(inputs)),
        gradients_(std::move(gradients)) {}

  std::string name() const override { return "CompiledStep_backward"; }
  size_t num_outputs() const override { return 1; }

  Gradients apply(const Gradients& grads, const runtime::BackwardMode& mode) override {
    if (is_released_) runtime::fail_released();
    if (mode.create_graph) {
      throw Error(ErrorKind::kAutograd,
                  "backward: the gradients of a compiled step have no history, so create_graph "
                  "cannot go through it; call autograd.grad(..., create_graph=True) inside the "
                  "loss, or use the eager step");
    }
    const Value& seed = grads.front()->value;
    if (!same_bits(seed, seed_)) {
      const Value own_seed = owned(seed);
      gradients_ = step_->rerun(inputs_, own_seed);
      seed_ = own_seed;
    }
    return mode.retain_graph ? gradients_ : std::move(gradients_);
  }

  void release() override {
    inputs_.clear();
    gradients_.clear();
    is_released_ = true;
  }

 private:
  std::shared_ptr<CompiledStep> step_;
  Value seed_;
  std::vector<BufferRef> inputs_;  // for a run with another seed
  Gradients gradients_;
  bool is_released_ = false;
};

}  // namespace

void CompiledStep::describe_inputs(const runtime::Trace& trace) {
  // By value id: where each input of the graph comes from.
  std::vector<InputSource> by_value(trace.graph.num_values(), InputSource{Source::kSeed, 0});
  const auto note = [&](ir::ValueId value, Source source, size_t place) {
    by_value[index(value)] = {source, static_cast<int>(place)};
  };
  for (size_t i = 0; i < trace.arguments.size(); ++i) note(trace.arguments[i], Source::kArgument, i);
  for (size_t i = 0; i < trace.captures.size(); ++i) {
    note(trace.captures[i].value, Source::kCapture, i);
  }
  for (size_t i = 0; i < trace.draws.size(); ++i) note(trace.draws[i].value, Source::kDraw, i);
  for (const ir::Input& input : trace.graph.inputs()) {
    sources_.push_back(by_value[index(input.value)]);
    input_types_.push_back(trace.graph.type(input.value));
    const int64_t size = input_types_.back().size_bytes();
    (input.role == ir::Role::kParameter ? memory_.parameters : memory_.inputs) += size;
  }
}

std::shared_ptr<CompiledStep> CompiledStep::make(runtime::Trace trace, bool with_gradients,
                                                 Device device) {
  const Clock::time_point start = Clock::now();
  std::shared_ptr<CompiledStep> step(new CompiledStep);  // NOLINT: private constructor
  ir::Graph& graph = trace.graph;
  const ir::ValueId loss = trace.results.front();
  if (graph.type(loss).num_elements() != 1 || !is_floating(graph.type(loss).dtype)) {
    throw Error(ErrorKind::kUser, "step: the loss must be one floating element: got " +
                                      ir::to_string(graph.type(loss)) +
                                      "; reduce it with mean() or sum()");
  }
  step->device_ = device;
  step->loss_type_ = graph.type(loss);
  step->seed_ = runtime::unit_value(step->loss_type_, device);
  std::vector<ir::ValueId> outputs = {loss};
  const bool differentiates = with_gradients && !trace.targets.empty();
  if (differentiates) {
    const ir::ValueId seed = graph.add_input(ir::Role::kSeed, step->loss_type_);
    std::vector<ir::ValueId> targets;
    for (const runtime::GradTarget& target : trace.targets) targets.push_back(target.value);
    const ir::Grads grads = autodiff::differentiate(graph, {{loss}}, {{seed}}, targets);
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i]) continue;
      outputs.push_back(*grads[i]);
      step->targets_.push_back(trace.targets[i]);
      step->gradient_types_.push_back(graph.type(*grads[i]));
    }
  }
  for (const runtime::StateWrite& write : trace.writes) {
    outputs.push_back(write.value);
    step->write_types_.push_back(graph.type(write.value));
  }
  graph.set_outputs(std::move(outputs));
  ir::verify(graph, "autodiff");
  step->describe_inputs(trace);
  step->draws_ = std::move(trace.draws);
  step->writes_ = std::move(trace.writes);
  for (runtime::StateWrite& write : step->writes_) {
    int place = -1;
    for (size_t i = 0; i < trace.captures.size(); ++i) {
      if (write.tensor != nullptr && trace.captures[i].tensor->cell() == write.tensor->cell()) {
        place = static_cast<int>(i);
      }
    }
    step->write_captures_.push_back(place);
  }
  step->compiled_ = compile_graph(std::move(graph), device);
  const backends::MemoryReport report = step->compiled_->executable->memory();
  step->memory_.outputs = report.outputs;
  step->memory_.arena_peak = report.arena_peak;
  step->timing_.compile_seconds = seconds_since(start);
  return step;
}

std::vector<BufferRef> CompiledStep::gather(std::span<const TensorRef> arguments,
                                            std::span<const TensorRef> captures,
                                            std::vector<runtime::Generator::State>& drawn) const {
  const CellLock lock(mutex_);
  std::vector<BufferRef> inputs;
  inputs.reserve(sources_.size());
  drawn.reserve(draws_.size());
  for (size_t i = 0; i < sources_.size(); ++i) {
    const auto place = static_cast<size_t>(sources_[i].place);
    const TensorRef* tensor = nullptr;
    switch (sources_[i].source) {
      case Source::kArgument:
        tensor = &arguments[place];
        break;
      case Source::kCapture:
        tensor = &captures[place];
        break;
      case Source::kDraw:
        drawn.push_back(draws_[place].generator->draw(draws_[place].counters));
        inputs.push_back(runtime::to_value(drawn.back()).buffer);
        continue;
      case Source::kSeed:
        inputs.push_back(seed_.buffer);
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

std::vector<Edge> CompiledStep::target_edges(std::span<const TensorRef> arguments,
                                             std::span<const TensorRef> captures) const {
  const CellLock lock(mutex_);
  std::vector<Edge> edges;
  edges.reserve(targets_.size());
  for (const runtime::GradTarget& target : targets_) {
    const TensorRef& tensor = target.argument >= 0
                                  ? arguments[static_cast<size_t>(target.argument)]
                                  : captures[static_cast<size_t>(target.capture)];
    edges.push_back(tensor->edge());
  }
  return edges;
}

std::vector<BufferRef> CompiledStep::execute(std::span<const BufferRef> inputs) {
  const Clock::time_point start = Clock::now();
  std::vector<BufferRef> outputs;
  {
    const runtime::HostPause pause(true);
    outputs = compiled_->executable->run(inputs, nullptr);
  }
  runtime::process_state().executable_runs.fetch_add(1, std::memory_order_relaxed);
  const double seconds = seconds_since(start);
  const std::scoped_lock lock(mutex_);
  ++timing_.runs;
  timing_.run_seconds += seconds;
  return outputs;
}

Gradients CompiledStep::take_gradients(std::vector<BufferRef>& outputs) const {
  Gradients gradients(gradient_types_.size());
  for (size_t i = 0; i < gradient_types_.size(); ++i) {
    Value& value = gradients[i].emplace().value;
    value.type = gradient_types_[i];
    value.device = device_;
    value.buffer = std::move(outputs[1 + i]);
  }
  return gradients;
}

void CompiledStep::write_state(std::span<const TensorRef> arguments,
                               std::span<const TensorRef> captures,
                               std::vector<BufferRef>& outputs) const {
  if (writes_.empty()) return;
  const CellLock lock(mutex_);
  const runtime::GradMode no_grad(false);
  for (size_t i = 0; i < writes_.size(); ++i) {
    const runtime::StateWrite& write = writes_[i];
    const int place = write_captures_[i];
    Value value{.type = write_types_[i],
                .device = device_,
                .buffer = std::move(outputs[1 + gradient_types_.size() + i])};
    const TensorRef& target = write.argument >= 0 ? arguments[static_cast<size_t>(write.argument)]
                              : place >= 0        ? captures[static_cast<size_t>(place)]
                                                  : write.tensor;
    target->assign(Variable{.value = std::move(value)});
  }
}

TensorRef CompiledStep::run(std::span<const TensorRef> arguments,
                            std::span<const TensorRef> captures) {
  std::vector<runtime::Generator::State> drawn;
  std::vector<BufferRef> inputs;
  std::vector<BufferRef> outputs;
  std::vector<Edge> edges;
  Value seed;
  try {
    inputs = gather(arguments, captures, drawn);
    edges = target_edges(arguments, captures);
    seed = {.type = loss_type_, .device = device_};
    if (!targets_.empty()) seed.buffer = inputs.back();
    outputs = execute(inputs);
  } catch (...) {
    for (size_t i = 0; i < drawn.size(); ++i) {
      draws_[i].generator->take_back(drawn[i], draws_[i].counters);
    }
    throw;
  }
  Variable loss{.value = {.type = loss_type_, .device = device_, .buffer = outputs.front()}};
  if (!targets_.empty()) {
    loss.edge.node = std::make_shared<StepNode>(
        shared_from_this(), std::move(edges), std::move(seed), std::move(inputs),
        take_gradients(outputs));
  }
  write_state(arguments, captures, outputs);
  return runtime::make_tensor(std::move(loss));
}

Gradients CompiledStep::rerun(std::vector<BufferRef> inputs, const Value& seed) {
  inputs.back() = seed.buffer;
  std::vector<BufferRef> outputs = execute(inputs);
  {
    const std::scoped_lock lock(mutex_);
    seed_ = seed;
  }
  return take_gradients(outputs);
}

StepMemory CompiledStep::memory() const { return memory_; }

StepTiming CompiledStep::timing() const {
  const std::scoped_lock lock(mutex_);
  return timing_;
}

}  // namespace lucid::compile

#include "compile/step.h"

#include <algorithm>
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

// Ties a step's gradients into the tape.
class StepNode final : public runtime::GradNode {
 public:
  StepNode(std::shared_ptr<CompiledStep> step, std::vector<Edge> next, Value seed,
           Pieces::Table table)
      : GradNode(std::move(next)),
        step_(std::move(step)),
        seed_(std::move(seed)),
        table_(std::move(table)) {}

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
      gradients_ = step_->backward(table_, &own_seed);
      seed_ = own_seed;
    } else if (gradients_.empty()) {
      gradients_ = step_->backward(table_, nullptr);
    }
    const bool may_keep = mode.retain_graph && !step_->has_effects();
    return may_keep ? gradients_ : std::exchange(gradients_, {});
  }

  void release() override {
    table_.clear();
    gradients_.clear();
    is_released_ = true;
  }

 private:
  std::shared_ptr<CompiledStep> step_;
  Value seed_;
  Pieces::Table table_;  // the inputs, for a run with another seed, and what crosses segments
  Gradients gradients_;  // once they are finished
  bool is_released_ = false;
};

bool any_effects(const ir::Graph& graph) {
  return std::ranges::any_of(graph.nodes(),
                             [](const ir::Node& node) { return !node.op->is(ir::kPure); });
}

// The segment of each node: by the trace's marks, for the backward that of its origin.
passes::Segmentation segmentation_of(const runtime::Trace& trace, size_t num_forward_nodes,
                                     const std::vector<size_t>& origins) {
  passes::Segmentation result;
  result.num_segments = static_cast<int>(trace.marks.size()) + 1;
  result.num_forward_nodes = num_forward_nodes;
  const auto segment_of = [&](size_t node) {
    const auto passed = std::ranges::upper_bound(trace.marks, node);
    return static_cast<int>(passed - trace.marks.begin());
  };
  for (size_t i = 0; i < num_forward_nodes; ++i) result.segments.push_back(segment_of(i));
  for (const size_t origin : origins) result.segments.push_back(segment_of(origin));
  // The last segment runs again for another gradient of the loss. Where a node must run once, an
  // empty segment ends the step, and the backward waits for the gradient that it is given.
  if (!origins.empty() && any_effects(trace.graph)) {
    ++result.num_segments;
    result.num_kept = 1;
  }
  return result;
}

}  // namespace

void CompiledStep::describe_inputs(const runtime::Trace& trace) {
  // By value id: where each input of the graph comes from.
  std::vector<InputSource> by_value(trace.graph.num_values(), InputSource{Source::kSeed, 0});
  const auto note = [&](ir::ValueId value, Source source, size_t place) {
    by_value[index(value)] = {source, static_cast<int>(place)};
  };
  for (size_t i = 0; i < trace.arguments.size(); ++i)
    note(trace.arguments[i], Source::kArgument, i);
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

void CompiledStep::describe_writes(runtime::Trace& trace) {
  writes_ = std::move(trace.writes);
  for (const runtime::StateWrite& write : writes_) {
    write_types_.push_back(trace.graph.type(write.value));
    int place = -1;
    for (size_t i = 0; i < trace.captures.size(); ++i) {
      if (write.tensor != nullptr && trace.captures[i].tensor->cell() == write.tensor->cell()) {
        place = static_cast<int>(i);
      }
    }
    write_captures_.push_back(place);
  }
}

// Appends the backward; returns the gradients of the targets that the loss depends on.
std::vector<ir::ValueId> CompiledStep::add_backward(runtime::Trace& trace,
                                                    std::vector<size_t>& origins) {
  ir::Grads grads;
  if (trace.backward) {
    grads = std::move(trace.backward->grads);
    origins = std::move(trace.backward->origins);
  } else {
    const ir::ValueId seed = trace.graph.add_input(ir::Role::kSeed, result_types_.front());
    std::vector<ir::ValueId> targets;
    for (const runtime::GradTarget& target : trace.targets) targets.push_back(target.value);
    const ir::ValueId loss = trace.results.front();
    grads = autodiff::differentiate(trace.graph, {{loss}}, {{seed}}, targets, &origins);
  }
  std::vector<ir::ValueId> found;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i]) continue;
    found.push_back(*grads[i]);
    targets_.push_back(trace.targets[i]);
    gradient_types_.push_back(trace.graph.type(*grads[i]));
  }
  return found;
}

std::shared_ptr<CompiledStep> CompiledStep::make(runtime::Trace trace, bool with_gradients,
                                                 Device device) {
  const Clock::time_point start = Clock::now();
  std::shared_ptr<CompiledStep> step(new CompiledStep);  // NOLINT: private constructor
  ir::Graph& graph = trace.graph;
  std::vector<ir::ValueId> outputs = trace.results;
  for (const ir::ValueId result : outputs) step->result_types_.push_back(graph.type(result));
  const ir::ValueType& loss = step->result_types_.front();
  if (loss.num_elements() != 1 || !is_floating(loss.dtype)) {
    throw Error(ErrorKind::kUser, "step: the loss must be one floating element: got " +
                                      ir::to_string(loss) + "; reduce it with mean() or sum()");
  }
  step->device_ = device;
  step->seed_ = runtime::unit_value(loss, device);
  const size_t num_forward_nodes =
      trace.backward ? trace.backward->num_forward_nodes : graph.nodes().size();
  std::vector<size_t> origins;
  if (with_gradients && !trace.targets.empty()) {
    const std::vector<ir::ValueId> grads = step->add_backward(trace, origins);
    outputs.insert(outputs.end(), grads.begin(), grads.end());
  }
  for (const runtime::StateWrite& write : trace.writes) outputs.push_back(write.value);
  graph.set_outputs(std::move(outputs));
  ir::verify(graph, "autodiff");
  step->has_effects_ = any_effects(graph);
  step->describe_inputs(trace);
  step->describe_writes(trace);
  step->draws_ = std::move(trace.draws);
  step->pieces_ = std::make_unique<const Pieces>(
      graph, segmentation_of(trace, num_forward_nodes, origins), device);
  step->memory_.outputs = step->pieces_->output_bytes();
  step->memory_.arena_peak = step->pieces_->arena_peak();
  step->memory_.segments = step->pieces_->segments();
  step->timing_.compile_seconds = seconds_since(start);
  return step;
}

Pieces::Table CompiledStep::gather(std::span<const TensorRef> arguments,
                                   std::span<const TensorRef> captures,
                                   std::vector<runtime::Generator::State>& drawn) const {
  const CellLock lock(mutex_);
  Pieces::Table inputs;
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
    const TensorRef& tensor = target.argument >= 0 ? arguments[static_cast<size_t>(target.argument)]
                                                   : captures[static_cast<size_t>(target.capture)];
    edges.push_back(tensor->edge());
  }
  return edges;
}

void CompiledStep::take_back(const std::vector<runtime::Generator::State>& drawn) const {
  for (size_t i = 0; i < drawn.size(); ++i) {
    draws_[i].generator->take_back(drawn[i], draws_[i].counters);
  }
}

template <class Run>
void CompiledStep::timed(Run run) {
  const Clock::time_point start = Clock::now();
  {
    const runtime::HostPause pause(true);
    run();
  }
  const double seconds = seconds_since(start);
  const std::scoped_lock lock(mutex_);
  ++timing_.runs;
  timing_.run_seconds += seconds;
}

Gradients CompiledStep::take_gradients(Pieces::Table& table) const {
  Gradients gradients(gradient_types_.size());
  for (size_t i = 0; i < gradient_types_.size(); ++i) {
    Value& value = gradients[i].emplace().value;
    value.type = gradient_types_[i];
    value.device = device_;
    BufferRef& buffer = table[pieces_->output_slot(result_types_.size() + i)];
    value.buffer = pieces_->has_distinct_outputs() ? std::move(buffer) : buffer;
  }
  return gradients;
}

void CompiledStep::write_state(std::span<const TensorRef> arguments,
                               std::span<const TensorRef> captures,
                               const Pieces::Table& table) const {
  if (writes_.empty()) return;
  const CellLock lock(mutex_);
  const runtime::GradMode no_grad(false);
  const size_t first = result_types_.size() + gradient_types_.size();
  for (size_t i = 0; i < writes_.size(); ++i) {
    const runtime::StateWrite& write = writes_[i];
    const int place = write_captures_[i];
    Value value{.type = write_types_[i],
                .device = device_,
                .buffer = table[pieces_->output_slot(first + i)]};
    const TensorRef& target = write.argument >= 0 ? arguments[static_cast<size_t>(write.argument)]
                              : place >= 0        ? captures[static_cast<size_t>(place)]
                                                  : write.tensor;
    target->assign(Variable{.value = std::move(value)});
  }
}

std::vector<TensorRef> CompiledStep::run(std::span<const TensorRef> arguments,
                                         std::span<const TensorRef> captures) {
  std::vector<runtime::Generator::State> drawn;
  Pieces::Table table;
  std::vector<Edge> edges;
  Value seed{.type = result_types_.front(), .device = device_};
  try {
    table = gather(arguments, captures, drawn);
    edges = target_edges(arguments, captures);
    if (!targets_.empty()) seed.buffer = table[sources_.size() - 1];
    timed([&] { pieces_->run_forward(table); });
  } catch (...) {
    take_back(drawn);
    throw;
  }
  std::vector<TensorRef> results;
  for (size_t i = 0; i < result_types_.size(); ++i) {
    Value value{
        .type = result_types_[i], .device = device_, .buffer = table[pieces_->output_slot(i)]};
    results.push_back(runtime::make_tensor(std::move(value)));
  }
  write_state(arguments, captures, table);
  if (targets_.empty()) return results;
  results.front()->set_history({std::make_shared<StepNode>(shared_from_this(), std::move(edges),
                                                           std::move(seed), std::move(table)),
                                0});
  return results;
}

Gradients CompiledStep::backward(Pieces::Table& table, const Value* seed) {
  if (seed != nullptr) {
    table[sources_.size() - 1] = seed->buffer;
    timed([&] { pieces_->rerun_last(table); });
    const std::scoped_lock lock(mutex_);
    seed_ = *seed;
  }
  if (!pieces_->has_backward()) return take_gradients(table);
  // A copy of the references: after an error the table is as it was.
  Pieces::Table values = table;
  timed([&] { pieces_->run_backward(values); });
  return take_gradients(values);
}

void CompiledStep::probe(std::span<const TensorRef> arguments,
                         std::span<const TensorRef> captures) {
  std::vector<runtime::Generator::State> drawn;
  try {
    Pieces::Table table = gather(arguments, captures, drawn);
    timed([&] {
      pieces_->run_forward(table);
      pieces_->run_backward(table);
    });
  } catch (...) {
    take_back(drawn);
    throw;
  }
  take_back(drawn);
}

StepMemory CompiledStep::memory() const { return memory_; }

StepTiming CompiledStep::timing() const {
  const std::scoped_lock lock(mutex_);
  return timing_;
}

}  // namespace lucid::compile

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

// Appends the backward; returns the gradients of the targets that the loss depends on.
std::vector<ir::ValueId> CompiledStep::add_backward(runtime::Trace& trace,
                                                    std::vector<size_t>& origins) {
  ir::Grads grads;
  if (!trace.backwards.empty()) {
    grads = std::move(trace.backwards.front().grads);
    origins = std::move(trace.backwards.front().origins);
  } else {
    const ir::ValueId loss = trace.results.front();
    const ir::ValueId seed = trace.graph.add_input(ir::Role::kSeed, trace.graph.type(loss));
    std::vector<ir::ValueId> targets;
    for (const runtime::GradTarget& target : trace.targets) targets.push_back(target.value);
    grads = autodiff::differentiate(trace.graph, {{loss}}, {{seed}}, targets, &origins);
  }
  return note_targets(trace, trace.graph, grads);
}

std::shared_ptr<CompiledStep> CompiledStep::make(runtime::Trace trace, bool with_gradients,
                                                 Device device, const Options& options) {
  const Clock::time_point start = Clock::now();
  std::shared_ptr<CompiledStep> step(new CompiledStep(device));  // NOLINT: private constructor
  ir::Graph& graph = trace.graph;
  std::vector<ir::ValueId> outputs = trace.results;
  const ir::ValueType& loss = graph.type(outputs.front());
  if (loss.num_elements() != 1 || !is_floating(loss.dtype)) {
    throw Error(ErrorKind::kUser, "step: the loss must be one floating element: got " +
                                      ir::to_string(loss) + "; reduce it with mean() or sum()");
  }
  step->seed_ = runtime::unit_value(loss, device);
  const size_t num_forward_nodes =
      trace.backwards.empty() ? graph.nodes().size() : trace.backwards.front().first_node;
  std::vector<size_t> origins;
  if (with_gradients && !trace.targets.empty()) {
    const std::vector<ir::ValueId> grads = step->add_backward(trace, origins);
    step->has_seed_ = true;
    outputs.insert(outputs.end(), grads.begin(), grads.end());
  }
  for (const runtime::StateWrite& write : trace.writes) outputs.push_back(write.value);
  graph.set_outputs(std::move(outputs));
  ir::verify(graph, "autodiff");
  step->has_effects_ = any_effects(graph);
  step->describe(trace);
  step->pieces_ = std::make_unique<const Pieces>(
      graph, segmentation_of(trace, num_forward_nodes, origins), device, options);
  step->memory_.outputs = step->pieces_->output_bytes();
  step->memory_.arena_peak = step->pieces_->arena_peak();
  step->memory_.segments = step->pieces_->segments();
  step->timing_.compile_seconds = seconds_since(start);
  return step;
}

Pieces::Table CompiledStep::gather_with_seed(const Call& call, Drawn& drawn) const {
  Pieces::Table table = gather(call, drawn);
  if (!has_seed_) return table;
  const std::scoped_lock lock(mutex_);
  table.back() = seed_.buffer;
  return table;
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

std::vector<BufferRef> CompiledStep::written(const Pieces::Table& table) const {
  std::vector<BufferRef> buffers;
  const size_t first = result_types_.size() + gradient_types_.size();
  for (size_t i = 0; i < writes_.size(); ++i) {
    buffers.push_back(table[pieces_->output_slot(first + i)]);
  }
  return buffers;
}

std::vector<TensorRef> CompiledStep::run(const Call& call) {
  Drawn drawn;
  Pieces::Table table;
  std::vector<Edge> edges;
  Value seed{.type = result_types_.front(), .device = device_};
  try {
    table = gather_with_seed(call, drawn);
    edges = target_edges(call);
    if (has_seed_) seed.buffer = table.back();
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
  write_state(call, written(table));
  if (targets_.empty()) return results;
  auto self = std::static_pointer_cast<CompiledStep>(shared_from_this());
  results.front()->set_history({std::make_shared<StepNode>(std::move(self), std::move(edges),
                                                           std::move(seed), std::move(table)),
                                0});
  return results;
}

Gradients CompiledStep::backward(Pieces::Table& table, const Value* seed) {
  if (seed != nullptr) {
    table[input_types_.size() - 1] = seed->buffer;
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

void CompiledStep::probe(const Call& call) {
  Drawn drawn;
  try {
    Pieces::Table table = gather_with_seed(call, drawn);
    timed([&] {
      pieces_->run_forward(table);
      pieces_->run_backward(table);
      backends::backend_for(device_).synchronize();  // what is timed is the work
    });
  } catch (...) {
    take_back(drawn);
    throw;
  }
  take_back(drawn);
}

std::vector<backends::KernelTime> CompiledStep::profile(const Call& call) {
  Drawn drawn;
  std::vector<backends::KernelTime> times;
  try {
    Pieces::Table table = gather_with_seed(call, drawn);
    timed([&] { times = pieces_->profile(table); });
  } catch (...) {
    take_back(drawn);
    throw;
  }
  take_back(drawn);
  return times;
}

}  // namespace lucid::compile

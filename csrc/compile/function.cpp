#include "compile/function.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <set>
#include <utility>

#include "autodiff/autodiff.h"
#include "compile/recorded.h"
#include "ops/host_functions.h"
#include "passes/split.h"
#include "runtime/process.h"
#include "support/errors.h"

namespace lucid::compile {
namespace {

using backends::BufferRef;
using runtime::Gradients;
using runtime::Value;

constexpr uint32_t kNoSlot = ~0u;

std::vector<BufferRef> run_executable(const Compiled& compiled, std::span<const BufferRef> inputs) {
  std::vector<BufferRef> outputs = compiled.executable->run(inputs, nullptr);
  runtime::process_state().executable_runs.fetch_add(1, std::memory_order_relaxed);
  return outputs;
}

// The rules of functions have ended with their trace.
class UnforeseenRules final : public ops::GradientRules {
 public:
  ir::Grads apply(const ir::Node&, const ir::Grads&, const std::vector<bool>&) override {
    throw Error(ErrorKind::kUnsupported,
                "backward: gradients of a part of the results of a compiled function would go "
                "through an autograd.Function: of more than 4 results it is recorded for all "
                "together and for each alone; give all a gradient, or return fewer");
  }
};

void end_in_gradients(ir::Graph& graph, const ir::Grads& gradients) {
  std::vector<ir::ValueId> outputs;
  for (const auto& gradient : gradients) {
    if (gradient) outputs.push_back(*gradient);
  }
  std::ranges::sort(outputs);
  outputs.erase(std::ranges::unique(outputs).begin(), outputs.end());
  graph.set_outputs(std::move(outputs));
  ir::verify(graph, "autodiff");
}

// Ties the gradients of a compiled function into the tape.
class FunctionNode final : public runtime::GradNode {
 public:
  FunctionNode(std::shared_ptr<CompiledFunction> function, std::vector<runtime::Edge> next,
               size_t num_outputs, CompiledFunction::Table table)
      : GradNode(std::move(next)),
        function_(std::move(function)),
        num_outputs_(num_outputs),
        table_(std::move(table)) {}

  std::string name() const override { return "CompiledFunction_backward"; }
  size_t num_outputs() const override { return num_outputs_; }

  Gradients apply(const Gradients& grads, const runtime::BackwardMode& mode) override {
    if (is_released_) runtime::fail_released();
    if (mode.create_graph) {
      throw Error(ErrorKind::kAutograd,
                  "backward: the gradients of a compiled function have no history, so create_graph "
                  "cannot go through it; use the function that was compiled");
    }
    return function_->backward(table_, grads);
  }

  void release() override {
    table_.clear();
    is_released_ = true;
  }

 private:
  std::shared_ptr<CompiledFunction> function_;
  size_t num_outputs_;
  CompiledFunction::Table table_;
  bool is_released_ = false;
};

}  // namespace

std::shared_ptr<CompiledFunction> CompiledFunction::make(runtime::Trace trace, bool with_gradients,
                                                         Device device, const Options& options) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  std::shared_ptr<CompiledFunction> made(new CompiledFunction(device, options));  // NOLINT: private
  for (RecordedGraph& recorded : take_backwards(trace)) {
    Differentiated found{.graph = std::move(recorded.graph),
                         .gradients = std::move(recorded.gradients)};
    end_in_gradients(found.graph, found.gradients);
    made->recorded_.emplace(std::move(recorded.mask), std::move(found));
  }
  made->graph_ = trace.graph;
  made->results_ = trace.results;
  made->has_effects_ = std::ranges::any_of(
      trace.graph.nodes(), [](const ir::Node& node) { return !node.op->is(ir::kPure); });
  std::vector<ir::ValueId> finals = trace.results;
  for (const runtime::StateWrite& write : trace.writes) finals.push_back(write.value);
  std::vector<ir::ValueId> kept;
  std::optional<Differentiated> found;
  if (with_gradients && !trace.targets.empty()) {
    made->roots_ = runtime::differentiable_results(trace);
    for (const runtime::GradTarget& target : trace.targets) {
      made->all_targets_.push_back(target.value);
    }
  }
  if (!made->roots_.empty()) {
    found = made->differentiate(Mask(made->roots_.size(), true));
    made->note_targets(trace, found->graph, found->gradients);
    const auto note = [&](ir::ValueId value) {
      const int node = found->graph.producer(value);
      const bool is_forward = index(value) < trace.graph.num_values() && node >= 0;
      if (is_forward) kept.push_back(value);
    };
    for (size_t i = trace.graph.nodes().size(); i < found->graph.nodes().size(); ++i) {
      for (const auto& input : found->graph.nodes()[i].inputs) {
        if (input) note(*input);
      }
    }
    for (const auto& gradient : found->gradients) {
      if (gradient) note(*gradient);
    }
  }
  made->describe(trace);
  made->compile_forward(finals, kept);
  if (found) {
    const BackwardRef backward = made->compile_backward(*found);
    made->backwards_.emplace(Mask(made->roots_.size(), true), backward);
  }
  made->measure(kept);
  made->timing_.compile_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return made;
}

/// The buffers that one run overwrites, marked while it does.
class CompiledFunction::Change {
 public:
  Change(const Table& table, const std::vector<planner::Given>& pairs)
      : is_given_(table.size(), false) {
    for (const planner::Given& pair : pairs) {
      const BufferRef& buffer = table[pair.input];
      if (buffer.use_count() != kCellAndTable || buffer->is_borrowed()) continue;
      is_given_[pair.input] = true;
      buffers_.push_back(buffer.get());
    }
    // What former holders read is read before the run writes.
    std::atomic_thread_fence(std::memory_order_acquire);
    for (backends::Buffer* buffer : buffers_) buffer->begin_change();
  }
  Change(Change&& other) noexcept
      : is_given_(std::move(other.is_given_)), buffers_(std::exchange(other.buffers_, {})) {}
  ~Change() {
    for (backends::Buffer* buffer : buffers_) buffer->end_change();
  }

  const std::vector<bool>& is_given() const { return is_given_; }

 private:
  static constexpr int64_t kCellAndTable = 2;

  std::vector<bool> is_given_;              // by input of the graph
  std::vector<backends::Buffer*> buffers_;  // the table owns them
};

// Without a backward nobody but a cell that is written reads its old value after a run. It goes to
// the cell's own new value, so that a cell holds one of the two at any time. Who reads the cell
// meanwhile waits and may hold the host's lock: a run that needs that lock gets nothing.
void CompiledFunction::note_given(const std::vector<ir::ValueId>& finals) {
  const auto calls_host = [](const ir::Node& node) { return ops::calls_host(*node.op); };
  if (std::ranges::any_of(graph_.nodes(), calls_host)) return;
  const std::vector<int> inputs = written_inputs();
  const auto num_inputs = static_cast<uint32_t>(graph_.inputs().size());
  const std::set<ir::ValueId> returned(finals.begin(), finals.end());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] < 0 || write_slots_[i] < num_inputs) continue;
    const auto input = static_cast<uint32_t>(inputs[i]);
    if (returned.contains(graph_.inputs()[input].value)) continue;
    options_.given.push_back({write_slots_[i] - num_inputs, input});
  }
}

// Under the lock of gather: two runs at once never both take a cell for theirs.
CompiledFunction::Change CompiledFunction::begin_change(const Table& table) const {
  const CellLock lock(mutex_);
  return Change(table, options_.given);
}

CompiledFunction::Differentiated CompiledFunction::differentiate(const Mask& mask) const {
  if (const auto known = recorded_.find(mask); known != recorded_.end()) return known->second;
  Differentiated result{.graph = graph_, .gradients = {}};
  std::vector<ir::ValueId> roots;
  std::vector<ir::ValueId> seeds;
  for (size_t i = 0; i < roots_.size(); ++i) {
    if (!mask[i]) continue;
    roots.push_back(results_[roots_[i]]);
    seeds.push_back(result.graph.add_input(ir::Role::kSeed, graph_.type(roots.back())));
  }
  UnforeseenRules rules;
  result.gradients =
      autodiff::differentiate(result.graph, roots, seeds, all_targets_, nullptr, &rules);
  end_in_gradients(result.graph, result.gradients);
  return result;
}

// The forward returns each value once; a value that is an input of the graph is read there.
void CompiledFunction::compile_forward(const std::vector<ir::ValueId>& finals,
                                       const std::vector<ir::ValueId>& kept) {
  slot_of_value_.assign(graph_.num_values(), kNoSlot);
  uint32_t num_slots = 0;
  for (const ir::Input& input : graph_.inputs()) slot_of_value_[index(input.value)] = num_slots++;
  is_kept_.assign(num_slots, true);
  std::vector<ir::ValueId> outputs;
  const auto add = [&](ir::ValueId value, bool is_kept) {
    uint32_t& slot = slot_of_value_[index(value)];
    if (slot == kNoSlot) {
      slot = num_slots++;
      outputs.push_back(value);
      is_kept_.push_back(is_kept);
    }
    if (is_kept) is_kept_[slot] = true;
    return slot;
  };
  const size_t num_results = results_.size();
  for (size_t i = 0; i < finals.size(); ++i) {
    (i < num_results ? result_slots_ : write_slots_).push_back(add(finals[i], false));
  }
  for (const ir::ValueId value : kept) add(value, true);
  if (roots_.empty()) note_given(finals);
  ir::Graph forward = graph_;
  forward.set_outputs(std::move(outputs));
  ir::verify(forward, "trace");
  forward_ = compile_graph(std::move(forward), device_, options_);
}

bool CompiledFunction::finds_slots(const std::vector<ir::ValueId>& values,
                                   std::vector<uint32_t>& slots) const {
  slots.clear();
  for (const ir::ValueId value : values) {
    // A seed: they follow the values of the trace, and the slots of the table.
    const bool is_seed = index(value) >= slot_of_value_.size();
    const size_t slot = is_seed ? is_kept_.size() + (index(value) - slot_of_value_.size())
                                : slot_of_value_[index(value)];
    if (slot == kNoSlot || (!is_seed && !is_kept_[slot])) return false;
    slots.push_back(static_cast<uint32_t>(slot));
  }
  return true;
}

CompiledFunction::BackwardRef CompiledFunction::compile_backward(
    const Differentiated& found) const {
  passes::Segmentation cut;
  cut.num_segments = 2;
  cut.num_forward_nodes = found.graph.nodes().size();
  cut.segments.assign(found.graph.nodes().size(), 1);
  std::fill_n(cut.segments.begin(), graph_.nodes().size(), 0);
  passes::Piece piece = passes::split(found.graph, cut).back();
  auto backward = std::make_shared<Backward>();
  if (!finds_slots(piece.inputs, backward->inputs)) {
    // The gradients of some results alone read what those of all do not: compute it again.
    if (has_effects_) {
      throw Error(ErrorKind::kUnsupported,
                  "backward: the gradients of some results of a compiled function would run its "
                  "impure operations again; give all results a gradient, or leave it uncompiled");
    }
    cut.num_segments = 1;
    piece = passes::split(found.graph, cut).back();
    finds_slots(piece.inputs, backward->inputs);
  }
  const std::vector<ir::ValueId>& made = piece.outputs;
  for (const auto& gradient : found.gradients) {
    Found& place = backward->gradients.emplace_back();
    if (!gradient) continue;
    const auto at = std::ranges::find(made, *gradient);
    if (at != made.end()) {
      place = {Found::In::kOutputs, static_cast<uint32_t>(at - made.begin())};
    } else {
      place = {Found::In::kTable, slot_of_value_[index(*gradient)]};
    }
  }
  // Targets that no result depends on were not noted.
  std::vector<Found> noted;
  for (const runtime::GradTarget& target : targets_) {
    const auto at = std::ranges::find(all_targets_, target.value);
    noted.push_back(backward->gradients[static_cast<size_t>(at - all_targets_.begin())]);
  }
  backward->gradients = std::move(noted);
  backward->compiled = compile_graph(std::move(piece.graph), device_, options_);
  return backward;
}

CompiledFunction::BackwardRef CompiledFunction::backward_for(const Mask& mask) {
  {
    const std::scoped_lock lock(mutex_);
    const auto known = backwards_.find(mask);
    if (known != backwards_.end()) return known->second;
  }
  const BackwardRef made = compile_backward(differentiate(mask));
  const std::scoped_lock lock(mutex_);
  return backwards_.emplace(mask, made).first->second;
}

std::vector<TensorRef> CompiledFunction::run(const Call& call) {
  Drawn drawn;
  Table table;
  std::vector<runtime::Edge> edges;
  try {
    table = gather(call, drawn);
    edges = target_edges(call);
    std::vector<BufferRef> outputs;
    Change begun = begin_change(table);
    timed([&] {
      const Change change = std::move(begun);  // ends here, before the host is held again
      outputs = forward_->executable->run_giving(table, change.is_given());
      runtime::process_state().executable_runs.fetch_add(1, std::memory_order_relaxed);
    });
    for (BufferRef& output : outputs) table.push_back(std::move(output));
  } catch (...) {
    take_back(drawn);
    throw;
  }
  std::vector<TensorRef> results;
  for (size_t i = 0; i < result_slots_.size(); ++i) {
    Value value{.type = result_types_[i], .device = device_, .buffer = table[result_slots_[i]]};
    results.push_back(runtime::make_tensor(std::move(value)));
  }
  std::vector<BufferRef> written;
  for (const uint32_t slot : write_slots_) written.push_back(table[slot]);
  if (!targets_.empty()) {
    for (size_t slot = 0; slot < table.size(); ++slot) {
      if (!is_kept_[slot]) table[slot].reset();
    }
    auto self = std::static_pointer_cast<CompiledFunction>(shared_from_this());
    const auto node = std::make_shared<FunctionNode>(std::move(self), std::move(edges),
                                                     roots_.size(), std::move(table));
    for (size_t i = 0; i < roots_.size(); ++i) {
      results[roots_[i]]->set_history({node, static_cast<uint32_t>(i)});
    }
  }
  write_state(call, std::move(written));
  return results;
}

Gradients CompiledFunction::backward(const Table& table, const Gradients& grads) {
  Mask mask;
  std::vector<BufferRef> seeds;
  for (const auto& grad : grads) {
    mask.push_back(grad.has_value());
    if (grad) seeds.push_back(grad->value.buffer);
  }
  const BackwardRef backward = backward_for(mask);
  std::vector<BufferRef> inputs;
  for (const uint32_t slot : backward->inputs) {
    inputs.push_back(slot < table.size() ? table[slot] : seeds[slot - table.size()]);
  }
  std::vector<BufferRef> outputs;
  timed([&] { outputs = run_executable(*backward->compiled, inputs); });
  Gradients result(targets_.size());
  for (size_t i = 0; i < targets_.size(); ++i) {
    const Found found = backward->gradients[i];
    if (found.in == Found::In::kNowhere) continue;
    Value& value = result[i].emplace().value;
    value.type = gradient_types_[i];
    value.device = device_;
    value.buffer = found.in == Found::In::kOutputs ? outputs[found.place] : table[found.place];
  }
  return result;
}

void CompiledFunction::probe(const Call& call) {
  Drawn drawn;
  try {
    const Table table = gather(call, drawn);
    timed([&] { run_executable(*forward_, table); });
  } catch (...) {
    take_back(drawn);
    throw;
  }
  take_back(drawn);
}

std::vector<backends::KernelTime> CompiledFunction::profile(const Call& call) {
  Drawn drawn;
  std::vector<backends::KernelTime> times;
  try {
    const Table table = gather(call, drawn);
    std::vector<BufferRef> outputs;
    timed([&] { times = forward_->executable->profile(table, outputs); });
  } catch (...) {
    take_back(drawn);
    throw;
  }
  take_back(drawn);
  return times;
}

void CompiledFunction::measure(const std::vector<ir::ValueId>& kept) {
  int64_t kept_bytes = 0;
  std::vector<bool> is_counted(is_kept_.size(), false);
  for (const ir::ValueId value : kept) {
    const uint32_t slot = slot_of_value_[index(value)];
    if (!is_counted[slot]) kept_bytes += graph_.type(value).size_bytes();
    is_counted[slot] = true;
  }
  for (const ir::ValueType& type : result_types_) memory_.outputs += type.size_bytes();
  for (const ir::ValueType& type : gradient_types_) memory_.outputs += type.size_bytes();
  int64_t arena = forward_->executable->memory().arena_peak;
  for (const auto& [mask, backward] : backwards_) {
    arena = std::max(arena, backward->compiled->executable->memory().arena_peak);
  }
  memory_.arena_peak = arena + kept_bytes;
}

std::string CompiledFunction::graph_text() const {
  std::string text = ir::to_string(forward_->graph);
  const std::scoped_lock lock(mutex_);
  for (const auto& [mask, backward] : backwards_) text += ir::to_string(backward->compiled->graph);
  return text;
}

size_t CompiledFunction::num_nodes() const {
  size_t count = forward_->graph.nodes().size();
  const std::scoped_lock lock(mutex_);
  for (const auto& [mask, backward] : backwards_) count += backward->compiled->graph.nodes().size();
  return count;
}

}  // namespace lucid::compile

#include "runtime/trace/recorder.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "autodiff/autodiff.h"
#include "autodiff/graph_builder.h"
#include "ops/registry.h"
#include "runtime/process.h"
#include "support/errors.h"

namespace lucid::runtime {
namespace {

std::atomic<TraceId> next_trace{1};

ir::LocationRef caller() {
  const Host* host = process_state().host;
  return host == nullptr ? nullptr : host->caller();
}

std::string at(const ir::LocationRef& location) {
  if (location == nullptr) return "";
  return "\n  at " + location->file + ":" + std::to_string(location->line);
}

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorKind::kTrace, what + at(caller()));
}

// The cell that a tensor's writes end in: its own, or that of the base of its views.
const Cell* root_of(const Tensor& tensor) {
  const Cell* cell = tensor.cell().get();
  while (cell->view != nullptr) cell = cell->view->base->cell().get();
  return cell;
}

bool is_tracked(const Operand& operand) {
  if (const auto* tensor = std::get_if<TensorRef>(&operand)) return (*tensor)->requires_grad();
  if (const auto* variable = std::get_if<Variable>(&operand)) return variable->requires_grad();
  return false;
}

// Which results may bring a gradient: all of them first. Of more than a few not every subset is
// foreseen, but each alone.
std::vector<std::vector<bool>> masks_of(size_t count) {
  constexpr size_t kFew = 4;
  std::vector<std::vector<bool>> masks = {std::vector<bool>(count, true)};
  if (count > kFew) {
    for (size_t i = 0; i < count; ++i) masks.emplace_back(count, false)[i] = true;
    return masks;
  }
  for (uint32_t bits = (1u << count) - 2; bits > 0; --bits) {
    std::vector<bool>& mask = masks.emplace_back();
    for (size_t i = 0; i < count; ++i) mask.push_back((bits >> i & 1u) != 0);
  }
  return masks;
}

}  // namespace

// The rules of a recorder, for one differentiation.
class Recorder::Rules final : public ops::GradientRules {
 public:
  Rules(Recorder& recorder, bool create_graph) : recorder_(recorder), create_graph_(create_graph) {}
  ir::Grads apply(const ir::Node& node, const ir::Grads& grads,
                  const std::vector<bool>& wanted) override {
    return recorder_.apply_rule(node, grads, wanted, create_graph_);
  }

 private:
  Recorder& recorder_;
  bool create_graph_;
};

Recorder::Recorder(std::string what) : what_(std::move(what)), id_(next_trace.fetch_add(1)) {
  if (thread_state().recorder != nullptr) {
    fail(what_ + ": compiled inside the trace of another step; call what it compiles instead");
  }
  thread_state().recorder = this;
  num_on_.fetch_add(1, std::memory_order_relaxed);
}

Recorder::~Recorder() { end(); }

TensorRef Recorder::argument(const TensorRef& source, std::optional<int64_t> size) {
  ir::ValueType type = source->value().type;
  if (size) type.shape = type.shape.with(0, *size);
  const ir::ValueId value = trace_.graph.add_input(ir::Role::kArgument, type);
  const int place = static_cast<int>(trace_.arguments.size());
  trace_.arguments.push_back(value);
  device_ = source->device();
  Variable variable{.value = {.type = type, .device = source->device(), .trace = id_, .id = value}};
  variable.tracks = source->requires_grad();
  if (variable.tracks) trace_.targets.push_back({.argument = place, .value = value});
  proxies_.push_back(make_tensor(std::move(variable)));
  argument_sources_.push_back({source->cell().get(), root_of(*source)});
  return proxies_.back();
}

TensorRef Recorder::scalar(DType dtype, Device device) {
  const ir::ValueType type{dtype, Shape{}};
  const ir::ValueId value = trace_.graph.add_input(ir::Role::kArgument, type);
  trace_.scalars.push_back(value);
  device_ = device;
  return make_tensor(
      Variable{.value = {.type = type, .device = device, .trace = id_, .id = value}});
}

Device Recorder::device_of(std::span<const Operand> operands) const {
  for (const Operand& operand : operands) {
    if (const auto* tensor = std::get_if<TensorRef>(&operand)) return (*tensor)->device();
    if (const auto* variable = std::get_if<Variable>(&operand)) return variable->value.device;
  }
  return device_;
}

ir::ValueId Recorder::value_of(const Variable& variable, const ir::Op& op) const {
  if (variable.value.trace == id_) return variable.value.id;
  if (variable.value.is_symbolic()) {
    fail(std::string(op.name) + ": an operand belongs to a trace that has ended");
  }
  fail(std::string(op.name) + ": a value without a tensor cannot be captured");
}

ir::ValueId Recorder::value_of(const TensorRef& tensor) {
  const Variable& variable = tensor->variable();
  if (!variable.value.is_symbolic()) return capture(tensor);
  if (variable.value.trace != id_) {
    fail(what_ + ": a tensor of a trace that has ended was used; return it as a result instead");
  }
  if (tensor->requires_grad() && tensor->is_leaf() && !is_touched(*tensor)) {
    return local_leaf(tensor);
  }
  const bool hides_history = tensor->is_detached() && variable.tracks;
  if (!hides_history) {
    const bool is_written_leaf = tensor->requires_grad() && !variable.requires_grad();
    if (is_written_leaf) {
      // A leaf that the trace changed: gradients of its new value are the leaf's.
      const int place = static_cast<int>(trace_.captures.size());
      const bool is_known = std::ranges::any_of(trace_.targets, [&](const GradTarget& target) {
        return target.value == variable.value.id;
      });
      if (!is_known) {
        const ir::ValueId input = trace_.graph.add_input(ir::Role::kParameter, variable.value.type);
        trace_.captures.push_back({tensor, input});
        trace_.targets.push_back({.capture = place, .value = variable.value.id});
      }
    }
    return variable.value.id;
  }
  autodiff::GraphBuilder builder(trace_.graph);
  return builder.op("detach", {variable.value.id});
}

bool Recorder::is_touched(const Tensor& tensor) const {
  return stand_in_of_.contains(tensor.cell().get());
}

// The start of a gradient that autograd.grad asks for inside the trace.
ir::ValueId Recorder::local_leaf(const TensorRef& tensor) {
  const ir::ValueId value = tensor->value().id;
  for (const LocalLeaf& known : local_leaves_) {
    if (known.tensor == tensor && known.value == value) return known.leaf;
  }
  autodiff::GraphBuilder builder(trace_.graph);
  builder.set_location(caller());
  local_leaves_.push_back({tensor, value, builder.op("detach", {value})});
  return local_leaves_.back().leaf;
}

ir::ValueId Recorder::capture(const TensorRef& tensor) {
  const bool tracked = tensor->requires_grad();
  const void* key = tracked ? static_cast<const void*>(tensor.get())
                            : static_cast<const void*>(tensor->cell().get());
  const auto known = captured_.find(key);
  if (known != captured_.end()) return known->second;
  const ir::Role role = tracked && tensor->is_leaf() ? ir::Role::kParameter : ir::Role::kCaptured;
  const ir::ValueId value = trace_.graph.add_input(role, tensor->value().type);
  if (trace_.arguments.empty()) device_ = tensor->device();
  const int place = static_cast<int>(trace_.captures.size());
  trace_.captures.push_back({tensor, value});
  if (tracked) trace_.targets.push_back({.capture = place, .value = value});
  captured_.emplace(key, value);
  return value;
}

ir::ValueId Recorder::value_of(const GeneratorRef& generator, int64_t counters, ir::Attrs& attrs,
                               const ir::Op& op) {
  auto draw = std::ranges::find(trace_.draws, generator, &Draw::generator);
  if (draw == trace_.draws.end()) {
    const ir::ValueId value = trace_.graph.add_input(ir::Role::kRandom, {DType::kInt64, Shape{2}});
    trace_.draws.push_back({generator, value, 0});
    draw = trace_.draws.end() - 1;
  }
  attrs[static_cast<size_t>(op.attr_index("offset"))] = draw->counters;
  draw->counters += counters;
  return draw->value;
}

std::vector<Variable> Recorder::record(const ir::Op& op, std::span<const Operand> operands,
                                       ir::Attrs attrs) {
  if (trace_.graph.nodes().size() >= max_nodes_) {
    fail(what_ +
         ": the number of operations grows with the size of the first axis; replace the "
         "loop over it by operations on whole tensors");
  }
  const ir::LocationRef location = caller();
  ir::Node node{.op = &op,
                .inputs = {},
                .outputs = {},
                .attrs = {},
                .location = location,
                .stop_gradient = !thread_state().grad_enabled};
  std::vector<std::optional<ir::ValueType>> types;
  const GeneratorRef* generator = nullptr;
  for (const Operand& operand : operands) {
    std::optional<ir::ValueId> value;
    if (const auto* tensor = std::get_if<TensorRef>(&operand)) value = value_of(*tensor);
    if (const auto* variable = std::get_if<Variable>(&operand)) value = value_of(*variable, op);
    if (const auto* source = std::get_if<GeneratorRef>(&operand)) generator = source;
    node.inputs.push_back(value);
    types.push_back(value ? std::optional(trace_.graph.type(*value)) : std::nullopt);
  }
  if (generator != nullptr && is_differentiating_) {
    fail(what_ +
         ": the backward of an autograd.Function draws random numbers; draw them in its "
         "forward and save them for the backward");
  }
  if (generator != nullptr) types.back() = ir::ValueType{DType::kInt64, Shape{2}};
  const ir::ValueTypes outputs = ir::infer(op, types, attrs, location);
  if (generator != nullptr) {
    const int64_t counters = counters_of(outputs.front().num_elements());
    node.inputs.back() = value_of(*generator, counters, attrs, op);
  }
  node.attrs = std::move(attrs);
  const bool tracks = thread_state().grad_enabled && std::ranges::any_of(operands, is_tracked);
  const Device device = device_of(operands);
  const std::vector<ir::ValueId> made = trace_.graph.add_node(std::move(node), outputs);
  std::vector<Variable> result;
  for (size_t i = 0; i < made.size(); ++i) {
    Variable variable{.value = {.type = outputs[i], .device = device, .trace = id_, .id = made[i]}};
    const bool differentiable = (op.nondifferentiable_outputs >> i & 1u) == 0;
    variable.tracks = tracks && differentiable && is_floating(outputs[i].dtype);
    result.push_back(std::move(variable));
  }
  return result;
}

std::vector<TensorRef> Recorder::grad(std::span<const TensorRef> roots,
                                      std::span<const TensorRef> seeds,
                                      std::span<const TensorRef> inputs, bool create_graph,
                                      bool allow_unused) {
  std::vector<ir::ValueId> root_values;
  std::vector<ir::ValueId> seed_values;
  autodiff::GraphBuilder builder(trace_.graph);
  builder.set_location(caller());
  for (size_t i = 0; i < roots.size(); ++i) {
    root_values.push_back(value_of(roots[i]));
    if (seeds[i] == nullptr && roots[i]->type().num_elements() != 1) {
      fail("grad: a gradient can be implied only for one element: the tensor has shape " +
           to_string(roots[i]->type().shape) + "; reduce it to a scalar or pass grad_outputs=");
    }
    seed_values.push_back(seeds[i] != nullptr ? value_of(seeds[i])
                                              : builder.full_like(1.0, root_values.back()));
  }
  std::vector<ir::ValueId> targets;
  for (const TensorRef& input : inputs) targets.push_back(value_of(input));
  Rules rules(*this, create_graph);
  const ir::Grads grads =
      autodiff::differentiate(trace_.graph, root_values, seed_values, targets, nullptr, &rules);
  std::vector<TensorRef> result;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i] && !allow_unused) {
      fail("grad: input " + std::to_string(i) +
           " is not part of the graph; pass allow_unused=True to get None for it");
    }
    if (!grads[i]) {
      result.push_back(nullptr);
      continue;
    }
    result.push_back(symbolic(*grads[i], inputs[i]->device(), true));
  }
  return result;
}

TensorRef Recorder::symbolic(ir::ValueId id, Device device, bool tracks) const {
  Variable variable{
      .value = {.type = trace_.graph.type(id), .device = device, .trace = id_, .id = id}};
  variable.tracks = tracks;
  return make_tensor(std::move(variable));
}

std::vector<Variable> Recorder::tie(std::span<const TensorRef> arguments,
                                    std::span<const TensorRef> results, GradientRule rule) {
  if (results.empty()) return {};
  static const ir::Op& with_gradient = ops::get("with_gradient");
  RuleEntry entry{.run = std::move(rule), .arguments = {}, .device = results.front()->device()};
  std::vector<Operand> operands;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == nullptr) continue;
    entry.arguments.push_back(i);
    operands.emplace_back(arguments[i]);
  }
  operands.insert(operands.end(), results.begin(), results.end());
  const auto number = static_cast<int64_t>(rules_.size());
  rules_.push_back(std::move(entry));
  return record(with_gradient, operands, {number, static_cast<int64_t>(results.size())});
}

ir::Grads Recorder::apply_rule(const ir::Node& node, const ir::Grads& grads,
                               const std::vector<bool>& wanted, bool create_graph) {
  const RuleEntry& entry = rules_[static_cast<size_t>(node.integer("rule"))];
  std::vector<TensorRef> given;
  for (const auto& grad : grads) {
    given.push_back(grad ? symbolic(*grad, entry.device, create_graph) : nullptr);
  }
  const TieResult tie_result = [&](size_t result, const TensorRef&) {
    return symbolic(node.outputs[result], entry.device, true);
  };
  const AutocastOff no_autocast;  // as every backward
  const std::vector<TensorRef> found = entry.run(given, create_graph, tie_result);
  ir::Grads result(node.inputs.size());
  for (size_t i = 0; i < entry.arguments.size(); ++i) {
    const TensorRef& grad = found[entry.arguments[i]];
    if (grad != nullptr && wanted[i]) result[i] = value_of(grad);
  }
  return result;
}

void Recorder::differentiate(std::span<const TensorRef> results, bool ends_in_loss) {
  if (rules_.empty() || trace_.targets.empty() || !thread_state().grad_enabled) return;
  note_results(results);
  std::vector<size_t> roots = {0};
  if (!ends_in_loss) roots = differentiable_results(trace_);
  if (roots.empty()) return;
  for (std::vector<bool>& mask : masks_of(roots.size())) {
    trace_.backwards.push_back(record_backward(roots, std::move(mask)));
  }
  for (RecordedBackward& backward : trace_.backwards) {
    backward.grads.resize(trace_.targets.size());  // a rule may have met further ones
  }
  if (ends_in_loss) trace_.graph.move_input_last(trace_.backwards.front().seeds.front());
}

RecordedBackward Recorder::record_backward(std::span<const size_t> roots, std::vector<bool> mask) {
  RecordedBackward backward;
  backward.mask = std::move(mask);
  std::vector<ir::ValueId> values;
  for (size_t i = 0; i < roots.size(); ++i) {
    if (!backward.mask[i]) continue;
    values.push_back(trace_.results[roots[i]]);
    const ir::ValueType type = trace_.graph.type(values.back());
    backward.seeds.push_back(trace_.graph.add_input(ir::Role::kSeed, type));
  }
  std::vector<ir::ValueId> targets;
  for (const GradTarget& target : trace_.targets) targets.push_back(target.value);
  backward.first_node = trace_.graph.nodes().size();
  const size_t num_leaves = local_leaves_.size();
  Rules rules(*this, false);
  is_differentiating_ = true;
  backward.grads = autodiff::differentiate(trace_.graph, values, backward.seeds, targets,
                                           &backward.origins, &rules);
  is_differentiating_ = false;
  local_leaves_.resize(num_leaves);  // each backward has its own
  return backward;
}

Cell& Recorder::seen(Cell& cell) {
  const auto it = stand_in_of_.find(&cell);
  return it == stand_in_of_.end() ? cell : it->second->cell;
}

// Versions of a stand-in are apart from all of the cell's: other threads may go on with those.
Cell& Recorder::stand_in(const std::shared_ptr<Cell>& cell, const TensorRef& tensor) {
  constexpr uint64_t kFirstVersion = uint64_t{1} << 63;
  if (const auto it = stand_in_of_.find(cell.get()); it != stand_in_of_.end()) {
    return it->second->cell;
  }
  StandIn& made = stand_ins_.emplace_back();
  made.outside = cell;
  made.tensor = tensor;
  made.cell.variable = cell->variable;
  made.cell.version = kFirstVersion;
  if (cell->view != nullptr) made.cell.view = std::make_unique<View>(*cell->view);
  stand_in_of_.emplace(cell.get(), &made);
  return made.cell;
}

Cell& Recorder::written(const TensorRef& tensor) {
  Cell& cell = seen(*tensor->cell());
  if (is_differentiating_ && cell.variable.value.trace != id_) {
    fail(what_ +
         ": the backward of an autograd.Function changed a tensor that outlives the step; "
         "change it in the forward, or outside of the step");
  }
  if (cell.variable.value.trace == id_) {
    const bool is_proxy = std::ranges::find(proxies_, tensor) != proxies_.end();
    if (!is_proxy && !thread_state().grad_enabled && cell.variable.tracks) {
      fail(what_ +
           ": an intermediate tensor that needs a gradient was changed in place under "
           "no_grad; use an ordinary operation, or leave no_grad");
    }
    return cell;
  }
  return stand_in(tensor->cell(), tensor);
}

Cell& Recorder::refreshed(const std::shared_ptr<Cell>& cell) {
  Cell& now = seen(*cell);
  return now.variable.value.is_symbolic() ? now : stand_in(cell, nullptr);
}

void Recorder::collect_writes() {
  for (const StandIn& touched : stand_ins_) {
    if (touched.tensor == nullptr || touched.cell.view != nullptr) continue;
    const Variable& now = touched.cell.variable;
    if (now.value.trace != id_) continue;
    if (now.tracks) {
      fail(what_ +
           ": a tensor that outlives the step was given a value that needs a gradient; "
           "write it under no_grad or from a detached value");
    }
    trace_.writes.push_back({.tensor = touched.tensor, .value = now.value.id});
  }
  for (size_t i = 0; i < proxies_.size(); ++i) {
    const Variable& now = proxies_[i]->variable();
    if (now.value.id == trace_.arguments[i]) continue;
    if (now.tracks) {
      fail(what_ + ": argument " + std::to_string(i) +
           " of the step was changed in place by a value that needs a gradient; clone it first");
    }
    const bool is_shared = std::ranges::any_of(argument_sources_, [&](const Source& other) {
      return other.root == argument_sources_[i].root && other.cell != argument_sources_[i].cell;
    });
    if (is_shared) {
      fail(what_ + ": argument " + std::to_string(i) +
           " of the step was changed in place and shares memory with another argument; clone it "
           "first");
    }
    trace_.writes.push_back({.argument = static_cast<int>(i), .value = now.value.id});
  }
}

void Recorder::pause() const {
  if (thread_state().recorder == this) thread_state().recorder = nullptr;
}

void Recorder::resume() { thread_state().recorder = this; }

void Recorder::end() {
  if (has_ended_) return;
  has_ended_ = true;
  num_on_.fetch_sub(1, std::memory_order_relaxed);
  if (thread_state().recorder == this) thread_state().recorder = nullptr;
}

void Recorder::refuse(const std::string& what) {
  if (!notes_refusals_) throw Error(ErrorKind::kTrace, what);
  trace_.refusals.push_back({what + at(caller()), trace_.graph.nodes().size()});
}

void refuse(const std::string& what) {
  if (thread_state().recorder == nullptr) throw Error(ErrorKind::kTrace, what);
  thread_state().recorder->refuse(what);
}

Trace Recorder::abandon() {
  end();
  return std::move(trace_);
}

void Recorder::note_results(std::span<const TensorRef> results) {
  if (!trace_.result_tracks.empty()) return;
  for (const TensorRef& result : results) {
    trace_.results.push_back(value_of(result));
    trace_.result_tracks.push_back(result->requires_grad());
  }
}

Trace Recorder::finish(std::span<const TensorRef> results) {
  note_results(results);
  collect_writes();
  end();
  return std::move(trace_);
}

std::vector<size_t> differentiable_results(const Trace& trace) {
  std::vector<size_t> places;
  for (size_t i = 0; i < trace.results.size(); ++i) {
    const bool is_floating_result = is_floating(trace.graph.type(trace.results[i]).dtype);
    if (trace.result_tracks[i] && is_floating_result) places.push_back(i);
  }
  return places;
}

}  // namespace lucid::runtime

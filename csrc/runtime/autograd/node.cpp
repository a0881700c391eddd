#include "runtime/autograd/node.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "autodiff/autodiff.h"
#include "runtime/autograd/checkpoint.h"
#include "runtime/autograd/eager_builder.h"
#include "runtime/process.h"
#include "support/errors.h"

namespace lucid::runtime {
namespace {

std::atomic<uint64_t> next_sequence{1};

bool is_read(uint32_t mask, size_t place) { return place >= 32 || (mask >> place & 1u) != 0; }

ir::LocationRef noted_line() {
  const ProcessState& state = process_state();
  const bool is_noted = state.notes_lines.load(std::memory_order_relaxed) && state.host != nullptr;
  return is_noted ? state.host->caller() : nullptr;
}

// The type without the contents.
Value type_only(const Value& value) { return {.type = value.type, .device = value.device}; }

}  // namespace

GradNode::GradNode(std::vector<Edge> next, bool is_accumulator)
    : next_(std::move(next)),
      sequence_(next_sequence.fetch_add(1, std::memory_order_relaxed)),
      location_(noted_line()),
      is_accumulator_(is_accumulator) {}

GradNode::~GradNode() {
  thread_local std::vector<std::shared_ptr<GradNode>> pending;
  thread_local bool is_draining = false;
  for (Edge& edge : next_) {
    if (edge.node != nullptr) pending.push_back(std::move(edge.node));
  }
  if (is_draining) return;
  is_draining = true;
  while (!pending.empty()) {
    const std::shared_ptr<GradNode> node = std::move(pending.back());
    pending.pop_back();
  }
  is_draining = false;
}

Gradients Accumulator::apply(const Gradients&, const BackwardMode&) {
  throw Error(ErrorKind::kInternal, "a leaf's accumulator is not applied");
}

OpNode::OpNode(const ir::Op& op, const ir::Attrs& attrs,
               const std::vector<std::optional<Variable>>& inputs, std::vector<Edge> next,
               const std::vector<Value>& outputs)
    : GradNode(std::move(next)), op_(op), attrs_(attrs), num_outputs_(outputs.size()) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) {
      inputs_.emplace_back();
    } else if (is_read(op.vjp_reads_inputs, i)) {
      inputs_.push_back(inputs[i]);
    } else {
      inputs_.push_back(Variable{.value = type_only(inputs[i]->value)});
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs_.push_back(is_read(op.vjp_reads_outputs, i) ? outputs[i] : type_only(outputs[i]));
  }
}

std::string OpNode::name() const { return std::string(op_.name) + "_backward"; }

Gradients OpNode::apply(const Gradients& grads, const BackwardMode& mode) {
  if (is_released_) fail_released();
  if (forgotten_ != nullptr) forgotten_->restore();
  const GradMode grad_mode(mode.create_graph);
  EagerBuilder builder;
  ir::Node node{.op = &op_,
                .inputs = {},
                .outputs = {},
                .attrs = attrs_,
                .location = nullptr,
                .stop_gradient = false};
  std::vector<bool> wanted;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    node.inputs.push_back(inputs_[i] ? std::optional(builder.add(*inputs_[i])) : std::nullopt);
    wanted.push_back(static_cast<bool>(next_[i]));
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Variable output{.value = outputs_[i]};
    output.edge = {shared_from_this(), static_cast<uint32_t>(i)};
    node.outputs.push_back(builder.add(std::move(output)));
  }
  ir::Grads output_grads;
  for (const auto& grad : grads) {
    output_grads.push_back(grad ? std::optional(builder.add(*grad)) : std::nullopt);
  }
  const ir::Grads found = autodiff::apply_vjp(builder, node, output_grads, wanted);
  Gradients result(next_.size());  // another thread may have released the inputs
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] && wanted[i]) result[i] = builder.variable(*found[i]);
  }
  return result;
}

void OpNode::release() {
  inputs_.clear();
  outputs_.clear();
  forgotten_ = nullptr;
  is_released_ = true;
}

void OpNode::forget(std::shared_ptr<Checkpoint> source) {
  for (auto& input : inputs_) {
    if (input) input->value = type_only(input->value);
  }
  for (Value& output : outputs_) output = type_only(output);
  forgotten_ = std::move(source);
}

bool OpNode::take(const OpNode& again) {
  if (is_released_) return true;
  const auto same_types = [](const auto& mine, const auto& theirs) {
    return mine.has_value() == theirs.has_value() &&
           (!mine || mine->value.type == theirs->value.type);
  };
  if (&op_ != &again.op_ || attrs_ != again.attrs_ ||
      !std::ranges::equal(inputs_, again.inputs_, same_types)) {
    return false;
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i]) inputs_[i]->value = again.inputs_[i]->value;
  }
  outputs_ = again.outputs_;
  forgotten_ = nullptr;
  return true;
}

void fail_released() {
  throw Error(ErrorKind::kAutograd,
              "backward: the saved values were freed by an earlier backward; pass "
              "retain_graph=True to that one to go through the same graph again");
}

}  // namespace lucid::runtime

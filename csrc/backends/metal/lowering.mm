#include "backends/metal/lowering.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "backends/metal/lower/families.h"
#include "backends/metal/retained.h"
#include "ops/registry.h"

namespace lucid::metal {
namespace {

constexpr int kPhiloxWords = 22;  // ten rounds of two keys, and the first counter

const LoweringRow* find_row(std::string_view op) {
  static const auto& rows = *[] {                                                // never destroyed
    auto* table = new std::unordered_map<std::string_view, const LoweringRow*>;  // NOLINT
    for (const auto family :
         {unary_lowerings, binary_lowerings, comparison_lowerings, create_lowerings,
          random_lowerings, shape_lowerings, index_lowerings, reduction_lowerings, order_lowerings,
          product_lowerings, convolution_lowerings, pooling_lowerings, normalization_lowerings,
          loss_lowerings, attention_lowerings}) {
      for (const LoweringRow& row : family()) table->emplace(row.op, &row);
    }
    return table;
  }();
  const auto it = rows.find(op);
  return it == rows.end() ? nullptr : it->second;
}

/// The node's output types and tensors must agree: a wrong graph would abort the process later.
void check_made(const Node& node, const ValueType& type, Tensor tensor) {
  if ([tensor dataType] != mps_type(type.dtype)) {
    throw Error(ErrorKind::kInternal, std::string(node.op->name) +
                                          ": its lowering gives another dtype than " +
                                          ir::to_string(type));
  }
  NSArray<NSNumber*>* shape = [tensor shape];
  if (shape == nil || [shape count] == 0) return;  // not known before compilation
  if ([shape isEqual:mps_shape(type.shape)]) return;
  throw Error(ErrorKind::kInternal, std::string(node.op->name) + ": its lowering gives shape " +
                                        text_of([shape description]) + " instead of " +
                                        ir::to_string(type));
}

}  // namespace

std::string with_location(const std::string& text, const ir::LocationRef& location) {
  if (location == nullptr || text.find("\n  at ") != std::string::npos) return text;
  return text + "\n  at " + location->file + ":" + std::to_string(location->line);
}

bool has_lowering(std::string_view op) {
  return find_row(op) != nullptr || ops::get(op).decompose != nullptr;
}

Lowering::Lowering(MPSGraph* graph, const ir::Graph& source, const LoweringOptions& options)
    : calc_(graph), source_(source), options_(options) {
  for (size_t i = 0; i < source.num_values(); ++i) {
    slots_.push_back({source.type(ValueId{static_cast<uint32_t>(i)})});
  }
  for (size_t i = 0; i < source.inputs().size(); ++i) {
    Slot& slot = slots_[index(source.inputs()[i].value)];
    slot.input = static_cast<int>(i);
    // A generator's state is read by the host; an empty value has no tensor.
    const bool has_tensor =
        source.inputs()[i].role != ir::Role::kRandom && slot.type.num_elements() > 0;
    if (has_tensor) {
      check_limits("input", slot.type);
      slot.tensor = [graph placeholderWithShape:mps_shape(slot.type.shape)
                                       dataType:mps_type(slot.type.dtype)
                                           name:nil];
    }
    placeholders_.push_back(slot.tensor);
  }
}

ValueId Lowering::add_value(ValueType type, Tensor tensor) {
  slots_.push_back({std::move(type), tensor});
  return ValueId{static_cast<uint32_t>(slots_.size() - 1)};
}

void Lowering::run() {
  for (const Node& node : source_.nodes()) lower(node);
}

void Lowering::lower(const Node& node) {
  if (node.location != nullptr) location_ = node.location;
  try {
    const bool needs_tensors =
        std::ranges::any_of(node.outputs, [&](ValueId id) { return !is_empty(id); });
    if (!needs_tensors) return;
    for (const ValueId output : node.outputs) {
      check_limits(std::string(node.op->name).c_str(), type(output));
      mps_type(type(output).dtype);
    }
    const Tensors made = lowered(node);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (is_empty(node.outputs[i])) continue;
      check_made(node, type(node.outputs[i]), made[i]);
      slots_[index(node.outputs[i])].tensor = made[i];
    }
    if (node.op->is(ir::kAlias)) {
      Slot& alias = slots_[index(node.outputs[0])];
      alias.input = slots_[index(node.in(0))].input;
      alias.below = slots_[index(node.in(0))].below;
    }
  } catch (const Error& error) {
    throw Error(error.kind(), with_location(error.what(), location_));
  }
}

Tensors Lowering::lowered(const Node& node) {
  for (const auto& input : node.inputs) {
    if (input && is_empty(*input)) return lower_of_empty(*this, node);
  }
  if (const LoweringRow* row = find_row(node.op->name)) return row->lower(*this, node);
  if (node.op->decompose == nullptr) refuse(node, "no metal lowering");
  Tensors made;
  for (const ValueId id : node.op->decompose(*this, node)) made.push_back(tensor(id));
  return made;
}

void Lowering::refuse(const Node& node, const std::string& what) const {
  throw Error(ErrorKind::kUnsupported,
              std::string(node.op->name) + ": " + what + "; run it eagerly, or use device cpu");
}

std::vector<ValueId> Lowering::emit(const ir::Op& op, std::vector<std::optional<ValueId>> inputs,
                                    ir::Attrs attrs) {
  Node node{.op = &op,
            .inputs = std::move(inputs),
            .outputs = {},
            .attrs = std::move(attrs),
            .location = nullptr,
            .stop_gradient = false};
  std::vector<std::optional<ValueType>> types;
  for (const auto& input : node.inputs) {
    types.push_back(input ? std::optional(type(*input)) : std::nullopt);
  }
  for (ValueType& output : ir::infer(op, types, node.attrs, location_)) {
    node.outputs.push_back(ValueId{static_cast<uint32_t>(slots_.size())});
    slots_.push_back({std::move(output)});
  }
  lower(node);
  return node.outputs;
}

bool Lowering::add_check(const Node& node, size_t i, int64_t size, bool wraps,
                         std::optional<int64_t> allowed) {
  const Slot& slot = slots_[index(node.in(i))];
  if (slot.below >= 0 && slot.below <= size) return true;  // right by its making
  const int input = slot.input;
  if (input < 0) return false;
  checks_.push_back({.op = std::string(node.op->name),
                     .input = static_cast<uint32_t>(input),
                     .dtype = type(node.in(i)).dtype,
                     .size = size,
                     .wraps = wraps,
                     .allowed = allowed,
                     .location = location_});
  return true;
}

void Lowering::add_flag(const Node& node, Tensor is_wrong, int64_t size) {
  Tensor ones = calc_.cast(is_wrong, MPSDataTypeInt32);
  flags_.push_back({calc_.sum(ones, Ints{0}), std::string(node.op->name), size, location_});
}

Tensor Lowering::indices(const Node& node, size_t i, int64_t size) {
  Tensor given = in(node, i);
  Tensor end = calc_.number_like(static_cast<double>(size), given);
  Tensor zero = calc_.number_like(0, given);
  Tensor is_negative = calc_.less(given, zero);
  Tensor wrapped = calc_.select(is_negative, calc_.add(given, end), given);
  if (!add_check(node, i, size, true, std::nullopt)) {
    const int64_t count = in_type(node, i).num_elements();
    Tensor flat = calc_.reshape(wrapped, Shape{count});
    Tensor is_wrong = calc_.either(calc_.less(flat, zero), calc_.less_equal(end, flat));
    add_flag(node, is_wrong, size);
    wrapped = calc_.minimum(calc_.maximum(wrapped, zero),
                            calc_.number_like(static_cast<double>(size - 1), given));
  }
  return calc_.cast(wrapped, MPSDataTypeInt32);
}

Tensor Lowering::labels(const Node& node, size_t i, int64_t size, int64_t allowed) {
  Tensor given = in(node, i);
  Tensor zero = calc_.number_like(0, given);
  Tensor is_allowed = calc_.equal(given, calc_.number_like(static_cast<double>(allowed), given));
  Tensor label = calc_.select(is_allowed, zero, given);
  if (!add_check(node, i, size, false, allowed)) {
    Tensor end = calc_.number_like(static_cast<double>(size), given);
    Tensor flat = calc_.reshape(label, Shape{in_type(node, i).num_elements()});
    add_flag(node, calc_.either(calc_.less(flat, zero), calc_.less_equal(end, flat)), size);
    label = calc_.minimum(calc_.maximum(label, zero),
                          calc_.number_like(static_cast<double>(size - 1), given));
  }
  return calc_.cast(label, MPSDataTypeInt32);
}

Tensor Lowering::host_feed(const Node& node, size_t state, HostFeed::Kind kind) {
  const int input = slots_[index(node.in(state))].input;
  if (input < 0) refuse(node, "the generator's state is computed by the step");
  HostFeed feed{.kind = kind,
                .placeholder = nil,
                .type = out_type(node),
                .state_input = static_cast<uint32_t>(input),
                .offset = node.integer("offset"),
                .executable = nullptr};
  if (kind == HostFeed::Kind::kPhiloxKeys) {
    feed.placeholder = [calc_.graph() placeholderWithShape:@[ @(kPhiloxWords) ]
                                                  dataType:MPSDataTypeUInt32
                                                      name:nil];
  } else {
    ir::Graph one;
    Node copy = node;
    copy.outputs.clear();
    copy.inputs = {one.add_input(ir::Role::kRandom, in_type(node, state))};
    one.set_outputs(one.add_node(std::move(copy), {{out_type(node)}}));
    feed.executable = backends::backend_for(Device::kCpu).compile(one);
    feed.placeholder = [calc_.graph() placeholderWithShape:mps_shape(feed.type.shape)
                                                  dataType:mps_type(feed.type.dtype)
                                                      name:nil];
  }
  host_feeds_.push_back(feed);
  return feed.placeholder;
}

}  // namespace lucid::metal

#include "runtime/dispatch/dispatch.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "backends/backend.h"
#include "ops/registry.h"
#include "runtime/autograd/checkpoint.h"
#include "runtime/autograd/node.h"
#include "runtime/dispatch/autocast.h"
#include "runtime/dispatch/eager_cache.h"
#include "runtime/dispatch/promote.h"
#include "runtime/process.h"
#include "runtime/trace/recorder.h"
#include "support/errors.h"
#include "support/half.h"

namespace lucid::runtime {
namespace {

using Inputs = std::vector<std::optional<Variable>>;

double as_double(const Number& number) {
  return std::visit([](auto value) { return static_cast<double>(value); }, number);
}

int64_t as_integer(const Number& number) {
  if (const auto* integer = std::get_if<int64_t>(&number)) return *integer;
  if (const auto* flag = std::get_if<bool>(&number)) return *flag ? 1 : 0;
  return static_cast<int64_t>(std::get<double>(number));
}

template <class T>
void store(void* place, T value) {
  std::memcpy(place, &value, sizeof(value));
}

void store_number(void* place, const Number& number, DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return store(place, as_double(number) != 0.0);
    case DType::kUInt8:
      return store(place, static_cast<uint8_t>(as_integer(number)));
    case DType::kInt8:
      return store(place, static_cast<int8_t>(as_integer(number)));
    case DType::kInt16:
      return store(place, static_cast<int16_t>(as_integer(number)));
    case DType::kInt32:
      return store(place, static_cast<int32_t>(as_integer(number)));
    case DType::kInt64:
      return store(place, as_integer(number));
    case DType::kFloat16:
      return store(place, to_float16(static_cast<float>(as_double(number))));
    case DType::kBFloat16:
      return store(place, to_bfloat16(static_cast<float>(as_double(number))));
    case DType::kFloat32:
      return store(place, static_cast<float>(as_double(number)));
    case DType::kFloat64:
      return store(place, as_double(number));
  }
}

Device device_of(const Operand& operand) {
  if (const auto* tensor = std::get_if<TensorRef>(&operand)) return (*tensor)->device();
  return std::get<Variable>(operand).value.device;
}

// The one device of the call. Throws DeviceError for two.
Device common_device(const ir::Op& op, std::span<const Operand> operands, Device home) {
  std::optional<Device> found;
  for (const Operand& operand : operands) {
    if (type_of(operand) == nullptr) continue;
    const Device device = device_of(operand);
    if (found && *found != device) {
      throw Error(ErrorKind::kDevice,
                  std::string(op.name) + ": tensors on two devices: " + std::string(name(*found)) +
                      " and " + std::string(name(device)) + "; move one with .to()");
    }
    found = device;
  }
  return found.value_or(home);
}

// A number as operand: recorded while tracing, a small buffer else.
Operand number_operand(const Number& number, DType dtype, Device device) {
  if (thread_state().recorder == nullptr) {
    return Variable{.value = number_value(number, dtype, device)};
  }
  static const ir::Op& full = ops::get("full");
  const ir::AttrValue value =
      is_floating(dtype) ? ir::AttrValue(as_double(number)) : ir::AttrValue(as_integer(number));
  return dispatch(full, {}, {ir::Ints{}, dtype, value}).front();
}

// Brings the operands to one dtype where the operation asks for it; numbers become values.
std::vector<Operand> promoted(const ir::Op& op, std::span<const Operand> operands, Device device) {
  std::vector<Operand> result(operands.begin(), operands.end());
  const bool promotes = op.is(ir::kPromotes | ir::kPromotesToFloat);
  const auto first = promotes ? std::min(static_cast<size_t>(op.promotes_from), result.size()) : 0;
  const auto meeting = std::span<const Operand>(result).subspan(first);
  const DType common = common_dtype(meeting, op.is(ir::kPromotesToFloat));
  static const ir::Op& cast = ops::get("cast");
  for (size_t i = 0; i < result.size(); ++i) {
    if (const auto* number = std::get_if<Number>(&result[i])) {
      result[i] = number_operand(Number(*number), i < first ? DType::kBool : common, device);
      continue;
    }
    const ir::ValueType* type = type_of(result[i]);
    if (type == nullptr || i < first || !promotes || type->dtype == common) continue;
    const std::vector<Operand> operand = {result[i]};
    result[i] = dispatch(cast, operand, {common}).front();
  }
  return result;
}

bool needs_promotion(const ir::Op& op, std::span<const Operand> operands) {
  const ir::ValueType* first = nullptr;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (std::holds_alternative<Number>(operands[i])) return true;
    if (static_cast<int>(i) < op.promotes_from) continue;
    const ir::ValueType* type = type_of(operands[i]);
    if (type == nullptr) continue;
    if (first != nullptr && first->dtype != type->dtype)
      return op.is(ir::kPromotes | ir::kPromotesToFloat);
    first = type;
  }
  return first != nullptr && op.is(ir::kPromotesToFloat) && !is_floating(first->dtype);
}

Inputs resolved(const ir::Op& op, std::span<const Operand> operands) {
  Inputs inputs;
  inputs.reserve(operands.size());
  for (const Operand& operand : operands) {
    if (const auto* tensor = std::get_if<TensorRef>(&operand)) {
      inputs.emplace_back((*tensor)->operand());
    } else if (const auto* variable = std::get_if<Variable>(&operand)) {
      inputs.emplace_back(*variable);
    } else {
      inputs.emplace_back();
    }
    if (inputs.back() && inputs.back()->value.is_symbolic()) {
      throw Error(ErrorKind::kTrace, std::string(op.name) +
                                         ": a tensor of a compiled step was used after its trace; "
                                         "return it as a result of the step instead");
    }
  }
  return inputs;
}

// The generator that a random operation draws from: its last operand, or null.
const GeneratorRef* generator_of(const ir::Op& op, std::span<const Operand> operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const auto* generator = std::get_if<GeneratorRef>(&operands[i]);
    if (generator == nullptr) continue;
    if (op.is(ir::kRandom) && i + 1 == operands.size()) return generator;
    throw Error(ErrorKind::kType, std::string(op.name) + ": input " + std::to_string(i) +
                                      " is a generator; pass a tensor");
  }
  return nullptr;
}

// Ties the outputs to their inputs where a gradient may be asked for.
std::vector<Variable> with_history(const ir::Op& op, const ir::Attrs& attrs, const Inputs& inputs,
                                   std::vector<Value> outputs) {
  std::vector<Variable> result;
  const auto tracked = [](const auto& input) { return input && static_cast<bool>(input->edge); };
  std::shared_ptr<GradNode> node;
  if (thread_state().grad_enabled && std::ranges::any_of(inputs, tracked)) {
    std::vector<Edge> next;
    for (const auto& input : inputs) next.push_back(input ? input->edge : Edge{});
    const auto is_float = [](const Value& output) { return is_floating(output.type.dtype); };
    const bool any = std::ranges::any_of(outputs, is_float) && op.nondifferentiable_outputs != ~0u;
    if (any) {
      auto made = std::make_shared<OpNode>(op, attrs, inputs, std::move(next), outputs);
      if (thread_state().checkpoint != nullptr) thread_state().checkpoint->note(made);
      node = std::move(made);
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    Variable variable{.value = std::move(outputs[i])};
    const bool differentiable = (op.nondifferentiable_outputs >> i & 1u) == 0;
    if (node != nullptr && differentiable && is_floating(variable.value.type.dtype)) {
      variable.edge = {node, static_cast<uint32_t>(i)};
    }
    result.push_back(std::move(variable));
  }
  return result;
}

std::vector<Value> run_entry(const EagerEntry& entry, const Inputs& inputs, const ir::Attrs& attrs,
                             Device device) {
  std::vector<backends::BufferRef> buffers;
  buffers.reserve(inputs.size());
  for (const auto& input : inputs) {
    if (input) buffers.push_back(input->value.buffer);
  }
  std::vector<backends::BufferRef> made;
  {
    const HostPause pause(entry.is_long);
    made = entry.executable->run(buffers, &attrs);
  }
  std::vector<Value> outputs;
  outputs.reserve(made.size());
  for (size_t i = 0; i < made.size(); ++i) {
    outputs.push_back({.type = entry.outputs[i], .device = device, .buffer = std::move(made[i])});
  }
  return outputs;
}

std::vector<Value> run_eager(const ir::Op& op, Inputs& inputs, const GeneratorRef* generator,
                             const ir::Attrs& attrs, Device device) {
  process_state().eager_dispatches.fetch_add(1, std::memory_order_relaxed);
  std::vector<std::optional<ir::ValueType>> types;
  types.reserve(inputs.size());
  for (const auto& input : inputs) {
    types.push_back(input ? std::optional(input->value.type) : std::nullopt);
  }
  if (op.is(ir::kAlias)) {
    const ir::ValueTypes made = ir::infer(op, types, attrs, nullptr);  // refuses a missing input
    Value output = inputs.front()->value;
    output.type = made.front();
    return {std::move(output)};
  }
  if (generator == nullptr) {
    return run_entry(*eager_entry(op, types, attrs, device), inputs, attrs, device);
  }
  types.back() = ir::ValueType{DType::kInt64, Shape{2}};
  const auto entry = eager_entry(op, types, attrs, device);
  const int64_t counters = counters_of(entry->outputs.front().num_elements());
  const Generator::State before = (*generator)->draw(counters);
  try {
    inputs.back() = Variable{.value = to_value(before)};
    return run_entry(*entry, inputs, attrs, device);
  } catch (...) {
    (*generator)->take_back(before, counters);
    throw;
  }
}

}  // namespace

const ir::ValueType* type_of(const Operand& operand) {
  if (const auto* tensor = std::get_if<TensorRef>(&operand)) return &(*tensor)->type();
  if (const auto* variable = std::get_if<Variable>(&operand)) return &variable->value.type;
  return nullptr;
}

Value number_value(const Number& number, DType dtype, Device device) {
  Value value{.type = {dtype, Shape{}}, .device = device};
  value.buffer = backends::backend_for(device).allocate(value.type.size_bytes());
  store_number(value.buffer->data(), number, dtype);
  return value;
}

Value unit_value(const ir::ValueType& type, Device device) {
  // Never destroyed: values may outlive every static object.
  static auto& units = *new std::array<std::array<backends::BufferRef, kNumDTypes>, 2>;  // NOLINT
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  backends::BufferRef& unit = units[static_cast<size_t>(device)][static_cast<size_t>(type.dtype)];
  if (unit == nullptr) unit = number_value(Number{1.0}, type.dtype, device).buffer;
  return {.type = type, .device = device, .buffer = unit};
}

std::vector<Variable> dispatch(const ir::Op& op, std::span<const Operand> operands, ir::Attrs attrs,
                               Device home) {
  const Device device = common_device(op, operands, home);
  std::vector<Operand> autocasted;
  if (casts_operands(op, device)) {
    autocasted = autocast_operands(op, operands, device);
    operands = autocasted;
  }
  std::vector<Operand> converted;
  if (needs_promotion(op, operands)) {
    converted = promoted(op, operands, device);
    operands = converted;
  }
  const GeneratorRef* generator = generator_of(op, operands);
  Recorder* recorder = thread_state().recorder;
  if (recorder != nullptr) return recorder->record(op, operands, std::move(attrs));
  Inputs inputs = resolved(op, operands);
  std::vector<Value> outputs = run_eager(op, inputs, generator, attrs, device);
  return with_history(op, attrs, inputs, std::move(outputs));
}

Variable dispatch_one(const ir::Op& op, std::initializer_list<Variable> inputs, ir::Attrs attrs) {
  const std::vector<Operand> operands(inputs.begin(), inputs.end());
  return dispatch(op, operands, std::move(attrs)).front();
}

TensorRef dispatch_view(const ir::Op& op, const TensorRef& base, ir::Attrs attrs) {
  constexpr int kMaxDepth = 1000;  // reading a view goes down to its base by recursion
  const View* outer = base->cell()->view.get();
  const int depth = outer == nullptr ? 1 : outer->depth + 1;
  if (depth > kMaxDepth) {
    throw Error(ErrorKind::kUnsupported, std::string(op.name) + ": view of a view, " +
                                             std::to_string(depth) + " deep; clone() it first");
  }
  base->variable();  // a stale base is taken again before its version is read
  const uint64_t version = base->version();
  const std::vector<Operand> operands = {base};
  TensorRef result = make_tensor(dispatch(op, operands, attrs).front());
  result->cell()->view = std::make_unique<View>(View{base, depth, &op, std::move(attrs), version});
  return result;
}

}  // namespace lucid::runtime

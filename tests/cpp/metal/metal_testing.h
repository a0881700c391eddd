// Graphs of one node for the tests of the metal backend, and what the cpu gives for them.
#pragma once

#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "ir/graph.h"
#include "ops/registry.h"
#include "support/half.h"
#include "testing.h"

namespace lucid::testing {

using backends::BufferRef;
using ir::Attrs;
using ir::Ints;

/// How the elements of an input are made.
enum class Fill { kNormal, kPositive, kUnit, kLow, kBools, kState, kNumbers };

struct Operand {
  ir::ValueType type;
  Fill fill = Fill::kNormal;
  int64_t below = 0;              ///< of kLow: integers in [0, below)
  std::vector<double> numbers{};  ///< of kNumbers, as they stand
};

inline Operand f32(const Shape& shape, Fill fill = Fill::kNormal) {
  return {{DType::kFloat32, shape}, fill};
}
inline Operand of(DType dtype, const Shape& shape, Fill fill = Fill::kNormal) {
  return {{dtype, shape}, fill};
}
/// Integers from 0.
inline Operand low(DType dtype, const Shape& shape, int64_t below) {
  return {{dtype, shape}, Fill::kLow, below};
}
inline Operand bools(const Shape& shape) { return {{DType::kBool, shape}, Fill::kBools}; }
inline Operand numbers(DType dtype, const Shape& shape, std::vector<double> values) {
  return {{dtype, shape}, Fill::kNumbers, 0, std::move(values)};
}
inline Operand state() { return {{DType::kInt64, Shape{2}}, Fill::kState}; }

inline void store(void* data, DType dtype, int64_t i, double value) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
      static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(value);
      return;
    case DType::kInt8:
      static_cast<int8_t*>(data)[i] = static_cast<int8_t>(value);
      return;
    case DType::kInt16:
      static_cast<int16_t*>(data)[i] = static_cast<int16_t>(value);
      return;
    case DType::kInt32:
      static_cast<int32_t*>(data)[i] = static_cast<int32_t>(value);
      return;
    case DType::kInt64:
      static_cast<int64_t*>(data)[i] = static_cast<int64_t>(value);
      return;
    case DType::kFloat16:
      static_cast<Float16*>(data)[i] = to_float16(static_cast<float>(value));
      return;
    case DType::kBFloat16:
      static_cast<BFloat16*>(data)[i] = to_bfloat16(static_cast<float>(value));
      return;
    case DType::kFloat32:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      return;
    case DType::kFloat64:
      static_cast<double*>(data)[i] = value;
      return;
  }
}

inline double load(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return static_cast<const uint8_t*>(data)[i];
    case DType::kInt8:
      return static_cast<const int8_t*>(data)[i];
    case DType::kInt16:
      return static_cast<const int16_t*>(data)[i];
    case DType::kInt32:
      return static_cast<const int32_t*>(data)[i];
    case DType::kInt64:
      return static_cast<double>(static_cast<const int64_t*>(data)[i]);
    case DType::kFloat16:
      return to_float(static_cast<const Float16*>(data)[i]);
    case DType::kBFloat16:
      return to_float(static_cast<const BFloat16*>(data)[i]);
    case DType::kFloat32:
      return static_cast<const float*>(data)[i];
    case DType::kFloat64:
      return static_cast<const double*>(data)[i];
  }
  return 0;
}

/// A buffer of the device with the operand's elements, the same at each call.
inline BufferRef make_buffer(const Operand& operand, Device device) {
  const ir::ValueType& type = operand.type;
  BufferRef buffer = backends::backend_for(device).allocate(type.size_bytes());
  std::mt19937 generator(1234);
  std::normal_distribution<double> normal;
  void* data = buffer->data();
  if (operand.fill == Fill::kState) {
    // The counters cross 2^32 inside a draw.
    static_cast<int64_t*>(data)[0] = 0x123456789abcdefLL;
    static_cast<int64_t*>(data)[1] = (int64_t{7} << 32) - 3;
    return buffer;
  }
  for (int64_t i = 0; i < type.num_elements(); ++i) {
    double value = normal(generator);
    if (operand.fill == Fill::kPositive) value = std::abs(value) + 0.1;
    if (operand.fill == Fill::kUnit) value = 0.98 * std::tanh(value);
    if (operand.fill == Fill::kLow)
      value = static_cast<double>(generator() % static_cast<uint64_t>(operand.below));
    if (operand.fill == Fill::kBools) value = value > 0 ? 1 : 0;
    if (operand.fill == Fill::kNumbers) value = operand.numbers[static_cast<size_t>(i)];
    store(data, type.dtype, i, value);
  }
  return buffer;
}

/// A graph of the node and of a copy of its outputs: the backend takes it for part of a step.
inline ir::Graph graph_of(std::string_view op, const std::vector<std::optional<Operand>>& inputs,
                          Attrs attrs) {
  ir::Graph graph;
  ir::Node node;
  node.op = &ops::get(op);
  node.attrs = std::move(attrs);
  std::vector<std::optional<ir::ValueType>> types;
  for (const auto& input : inputs) {
    types.push_back(input ? std::optional(input->type) : std::nullopt);
    const bool is_state = input && input->fill == Fill::kState;
    const ir::Role role = is_state ? ir::Role::kRandom : ir::Role::kArgument;
    node.inputs.push_back(input ? std::optional(graph.add_input(role, input->type)) : std::nullopt);
  }
  const ir::ValueTypes outputs = ir::infer(*node.op, types, node.attrs, nullptr);
  std::vector<ir::ValueId> made = graph.add_node(std::move(node), outputs);
  for (size_t i = 0; i < made.size(); ++i) {
    ir::Node copy;
    copy.op = &ops::get("detach");
    copy.inputs = {made[i]};
    made[i] = graph.add_node(std::move(copy), {{outputs[i]}}).front();
  }
  graph.set_outputs(made);
  return graph;
}

inline std::vector<BufferRef> run_on(Device device, const ir::Graph& graph,
                                     const std::vector<std::optional<Operand>>& inputs) {
  std::vector<BufferRef> buffers;
  for (const auto& input : inputs) {
    if (!input) continue;
    const bool is_state = input->fill == Fill::kState;
    buffers.push_back(make_buffer(*input, is_state ? Device::kCpu : device));
  }
  return backends::backend_for(device).compile(graph)->run(buffers, nullptr);
}

/// Largest |a - b| / max(1, |b|) of two buffers; nan equals nan.
inline double largest_gap(const ir::ValueType& type, const BufferRef& a, const BufferRef& b) {
  double largest = 0;
  for (int64_t i = 0; i < type.num_elements(); ++i) {
    const double x = load(a->data(), type.dtype, i);
    const double y = load(b->data(), type.dtype, i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    const double gap = std::abs(x - y) / std::max(1.0, std::abs(y));
    largest = std::isnan(gap) ? INFINITY : std::max(largest, gap);
  }
  return largest;
}

/// What a float32 lowering may differ from the cpu: some roundings of another order.
inline double metal_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 2e-3;
    case DType::kBFloat16:
      return 2e-2;
    case DType::kFloat32:
      return 1e-5;
    default:
      return 0;
  }
}

/// Reports outputs of the node that differ from the cpu's.
inline void check_node(const char* file, int line, std::string_view op,
                       const std::vector<std::optional<Operand>>& inputs, Attrs attrs) {
  try {
    const ir::Graph graph = graph_of(op, inputs, std::move(attrs));
    const auto expected = run_on(Device::kCpu, graph, inputs);
    const auto found = run_on(Device::kMetal, graph, inputs);
    for (size_t i = 0; i < expected.size(); ++i) {
      const ir::ValueType& type = graph.type(graph.outputs()[i]);
      const double gap = largest_gap(type, found[i], expected[i]);
      if (gap <= metal_tolerance(type.dtype)) continue;
      fail(
          file, line,
          std::string(op) + ": output " + std::to_string(i) + " differs by " + std::to_string(gap));
    }
  } catch (const Error& error) {
    fail(file, line, std::string(op) + ": " + error.what());
  }
}

}  // namespace lucid::testing

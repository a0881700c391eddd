// Runs one operation through its cpu kernel, on values that tests write as doubles.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "backends/cpu/kernel.h"
#include "backends/cpu/threads/team.h"
#include "ops/registry.h"
#include "planner/plan.h"
#include "support/half.h"
#include "testing.h"

namespace lucid::testing {

struct alignas(64) Line {
  unsigned char bytes[64];
};

/// What memory holds that a kernel has not written.
constexpr unsigned char kGarbage = 0xa5;

/// A dense tensor in 64-byte aligned memory.
class Value {
 public:
  Value() = default;
  explicit Value(ir::ValueType type) : type_(std::move(type)) {
    lines_.resize(static_cast<size_t>(type_.size_bytes() + 63) / 64);
  }
  Value(DType dtype, Shape shape, const std::vector<double>& elements)
      : Value(ir::ValueType{dtype, shape}) {
    for (int64_t i = 0; i < shape.num_elements(); ++i) set(i, elements[static_cast<size_t>(i)]);
  }

  const ir::ValueType& type() const { return type_; }
  const Shape& shape() const { return type_.shape; }
  int64_t size() const { return type_.num_elements(); }
  void* data() { return lines_.data(); }
  /// Fills the elements with garbage.
  void spoil() {
    if (size() > 0) std::memset(data(), kGarbage, static_cast<size_t>(type_.size_bytes()));
  }
  const void* data() const { return lines_.data(); }

  double at(int64_t i) const {
    return visit([i](const auto* elements) { return widen(elements[i]); });
  }
  std::vector<double> elements() const {
    std::vector<double> result;
    for (int64_t i = 0; i < size(); ++i) result.push_back(at(i));
    return result;
  }
  bool same_bits(const Value& other) const {
    return type_ == other.type_ &&
           (size() == 0 ||
            std::memcmp(data(), other.data(), static_cast<size_t>(type_.size_bytes())) == 0);
  }

  void set(int64_t i, double value) {
    visit([i, value](auto* elements) {
      using T = std::remove_reference_t<decltype(*elements)>;
      if constexpr (std::is_same_v<T, Float16>) {
        elements[i] = to_float16(static_cast<float>(value));
      } else if constexpr (std::is_same_v<T, BFloat16>) {
        elements[i] = to_bfloat16(static_cast<float>(value));
      } else {
        elements[i] = static_cast<T>(value);
      }
      return 0.0;
    });
  }

 private:
  template <class T>
  static double widen(T value) {
    if constexpr (std::is_arithmetic_v<T>) {
      return static_cast<double>(value);
    } else {
      return static_cast<double>(to_float(value));
    }
  }

  template <class Body>
  double visit(Body body) const {
    void* data = const_cast<Line*>(lines_.data());
    switch (type_.dtype) {
      case DType::kBool:
      case DType::kUInt8:
        return body(static_cast<uint8_t*>(data));
      case DType::kInt8:
        return body(static_cast<int8_t*>(data));
      case DType::kInt16:
        return body(static_cast<int16_t*>(data));
      case DType::kInt32:
        return body(static_cast<int32_t*>(data));
      case DType::kInt64:
        return body(static_cast<int64_t*>(data));
      case DType::kFloat16:
        return body(static_cast<Float16*>(data));
      case DType::kBFloat16:
        return body(static_cast<BFloat16*>(data));
      case DType::kFloat32:
        return body(static_cast<float*>(data));
      case DType::kFloat64:
        return body(static_cast<double*>(data));
    }
    return 0;
  }

  ir::ValueType type_;
  std::vector<Line> lines_;
};

/// Normal numbers, the same at every call with the same seed.
inline Value normal(DType dtype, const Shape& shape, unsigned seed = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> distribution;
  Value value(ir::ValueType{dtype, shape});
  for (int64_t i = 0; i < value.size(); ++i) value.set(i, distribution(generator));
  return value;
}

/// Integers in [low, high).
inline Value integers(DType dtype, const Shape& shape, int64_t low, int64_t high,
                      unsigned seed = 1) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int64_t> distribution(low, high - 1);
  Value value(ir::ValueType{dtype, shape});
  for (int64_t i = 0; i < value.size(); ++i) {
    value.set(i, static_cast<double>(distribution(generator)));
  }
  return value;
}

using Inputs = std::vector<std::optional<Value>>;

/// An operation with its kernel, ready to run on the given inputs.
class OneNode {
 public:
  OneNode(std::string_view name, Inputs inputs, ir::Attrs attrs) : inputs_(std::move(inputs)) {
    ir::Node node;
    node.op = &ops::get(name);
    std::vector<std::optional<ir::ValueType>> types;
    for (const auto& input : inputs_) {
      types.push_back(input ? std::optional(input->type()) : std::nullopt);
      node.inputs.push_back(
          input ? std::optional(graph_.add_input(ir::Role::kArgument, input->type()))
                : std::nullopt);
    }
    node.attrs = std::move(attrs);
    const ir::ValueTypes outputs = ir::infer(*node.op, types, node.attrs, nullptr);
    graph_.add_node(std::move(node), outputs);
    kernel_ = cpu::make_kernel({graph_.nodes()[0], graph_});
    for (const ir::ValueType& type : outputs) outputs_.emplace_back(type);
    // Behind the scratch stands as much again for each thread that a test may add.
    scratch_.resize(kMaxThreads * (kernel_->scratch_bytes() / sizeof(Line) + 2));
  }

  /// Most threads that a kernel is run with.
  static constexpr size_t kMaxThreads = 4;

  /// Runs once; outputs and scratch hold garbage before. Fails if memory behind the scratch was
  /// written.
  const std::vector<Value>& run() {
    std::memset(scratch_.data(), kGarbage, scratch_.size() * sizeof(Line));
    for (Value& output : outputs_) output.spoil();
    run_again();
    const auto* bytes = reinterpret_cast<const unsigned char*>(scratch_.data());
    const bool kept =
        std::all_of(bytes + kernel_->scratch_bytes(), bytes + scratch_.size() * sizeof(Line),
                    [](unsigned char byte) { return byte == kGarbage; });
    if (!kept) fail(graph_.nodes()[0].op->name.data(), 0, "wrote behind its scratch");
    return outputs_;
  }

  /// Runs once, with the first output in the memory of a copy of the input that it may take.
  const std::vector<Value>& run_in_place() {
    const size_t taken = graph_.nodes()[0].op->in_place_input;
    outputs_[0] = *inputs_[taken];
    run_with(taken, outputs_[0].data());
    return outputs_;
  }

  /// Runs without preparing memory: for timing.
  void run_again() { run_with(inputs_.size(), nullptr); }

 private:
  // With other memory for one input, if there is one of that number.
  void run_with(size_t number, const void* memory) {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const auto& input : inputs_) inputs.push_back(input ? input->data() : nullptr);
    if (number < inputs.size()) inputs[number] = memory;
    for (Value& output : outputs_) outputs.push_back(output.data());
    kernel_->run({inputs.data(), outputs.data(), scratch_.data(), &graph_.nodes()[0].attrs});
  }

  Inputs inputs_;
  ir::Graph graph_;
  std::unique_ptr<cpu::Kernel> kernel_;
  std::vector<Value> outputs_;
  std::vector<Line> scratch_;
};

/// Outputs of a graph that is run node by node, each value in memory of its own that held garbage
/// before. Node i has the kernel `kernel_of(i)`, which makes `num_results(i)` results: those beyond
/// the node's outputs lie in the first one.
template <class KernelOf, class NumResults>
std::vector<Value> run_nodes(const ir::Graph& graph, const std::vector<Value>& inputs,
                             const KernelOf& kernel_of, const NumResults& num_results) {
  std::vector<Value> values;
  for (size_t i = 0; i < graph.num_values(); ++i) {
    values.emplace_back(graph.type(ir::ValueId{static_cast<uint32_t>(i)}));
    values.back().spoil();
  }
  for (size_t i = 0; i < inputs.size(); ++i) values[index(graph.inputs()[i].value)] = inputs[i];
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const ir::Node& node = graph.nodes()[i];
    const std::unique_ptr<cpu::Kernel> kernel = kernel_of(i);
    std::vector<const void*> from;
    std::vector<void*> to;
    for (const auto& input : node.inputs) {
      from.push_back(input ? values[index(*input)].data() : nullptr);
    }
    for (const ir::ValueId output : node.outputs) to.push_back(values[index(output)].data());
    to.resize(num_results(i), to.front());
    std::vector<Line> scratch(kernel->scratch_bytes() / sizeof(Line) + 1);
    kernel->run({from.data(), to.data(), scratch.data(), &node.attrs});
  }
  std::vector<Value> outputs;
  for (const ir::ValueId output : graph.outputs()) outputs.push_back(values[index(output)]);
  return outputs;
}

/// Outputs of one operation; checks that 1, 2 and 4 threads give the same bits, with a kernel that
/// was made for `threads_at_making`, and that none of them writes behind its scratch.
inline std::vector<Value> run(std::string_view name, Inputs inputs, ir::Attrs attrs,
                              int threads_at_making = 1) {
  cpu::set_num_threads(threads_at_making);
  OneNode node(name, std::move(inputs), std::move(attrs));
  cpu::set_num_threads(1);
  const std::vector<Value> expected = node.run();
  for (const int threads : {2, 4}) {
    cpu::set_num_threads(threads);
    const std::vector<Value>& outputs = node.run();
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].same_bits(expected[i])) continue;
      fail(name.data(), 0, "bits differ with " + std::to_string(threads) + " threads");
    }
  }
  cpu::set_num_threads(1);
  return expected;
}

/// Largest |a - b| / max(1, |b|); elements that are both nan, or equal, count 0.
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double gap = std::abs(a[i] - b[i]) / std::max(1.0, std::abs(b[i]));
    largest = std::isnan(gap) ? INFINITY : std::max(largest, gap);
  }
  return largest;
}

/// Rounding that a dtype allows.
inline double tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 2e-3;
    case DType::kBFloat16:
      return 2e-2;
    case DType::kFloat32:
      return 1e-5;
    default:
      return 1e-12;
  }
}

inline constexpr DType kFloatingTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                           DType::kBFloat16};

/// Checks that an operation whose first output may take an input's memory has the same bits there.
inline void check_in_place(std::string_view op, const Inputs& inputs, const ir::Attrs& attrs) {
  CHECK(planner::allows_overwrite(ops::get(op), 0, ops::get(op).in_place_input));
  const std::vector<Value> apart = run(op, inputs, attrs);
  for (const int threads : {1, 3}) {
    cpu::set_num_threads(threads);
    OneNode node(op, inputs, attrs);
    const std::vector<Value>& found = node.run_in_place();
    for (size_t i = 0; i < apart.size(); ++i) CHECK(found[i].same_bits(apart[i]));
  }
  cpu::set_num_threads(1);
}

}  // namespace lucid::testing

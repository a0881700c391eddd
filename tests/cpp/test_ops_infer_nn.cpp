// Types, messages, gradient rules and decompositions of products, convolution, pooling,
// normalisation, losses and attention.
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/builder.h"
#include "ops/registry.h"
#include "testing.h"

namespace {

using lucid::DType;
using lucid::Error;
using lucid::Shape;
using lucid::ir::Attrs;
using lucid::ir::Graph;
using lucid::ir::Ints;
using lucid::ir::Node;
using lucid::ir::Op;
using lucid::ir::ValueId;
using lucid::ir::ValueType;
using lucid::ir::ValueTypes;
using std::string_literals::operator""s;

/// Appends to a graph.
class Recorder : public lucid::ops::Builder {
 public:
  std::vector<ValueId> emit(const Op& op, std::vector<std::optional<ValueId>> inputs,
                            Attrs attrs) override {
    std::vector<std::optional<ValueType>> types;
    for (const auto& input : inputs) {
      types.push_back(input ? std::optional(graph.type(*input)) : std::nullopt);
    }
    const ValueTypes outputs = lucid::ir::infer(op, types, attrs, nullptr);
    Node node;
    node.op = &op;
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    return graph.add_node(std::move(node), outputs);
  }
  const ValueType& type(ValueId id) const override { return graph.type(id); }

  Graph graph;
};

/// A call: the operation's name, the types of its inputs, its attributes.
struct Call {
  std::string name;
  std::vector<std::optional<ValueType>> inputs;
  Attrs attrs;
};

ValueType f32(Shape shape) { return {DType::kFloat32, shape}; }
ValueType f16(Shape shape) { return {DType::kFloat16, shape}; }
ValueType i64(Shape shape) { return {DType::kInt64, shape}; }
ValueType i32(Shape shape) { return {DType::kInt32, shape}; }

ValueTypes infer(const Call& call) {
  return lucid::ir::infer(lucid::ops::get(call.name), call.inputs, call.attrs, nullptr);
}

/// "float32[2, 3] int64[2]".
std::string types_text(const ValueTypes& types) {
  std::string text;
  for (const ValueType& type : types) {
    if (!text.empty()) text += ' ';
    text += to_string(type);
  }
  return text;
}

std::string inferred(const Call& call) { return types_text(infer(call)); }

std::string error_of(const Call& call) {
  try {
    infer(call);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

constexpr std::nullopt_t kNone = std::nullopt;
const Attrs kPlain2d = {Ints{1, 1}, Ints{0, 0}, Ints{0, 0}, Ints{1, 1}, int64_t{1}};
const Attrs kMean = {int64_t{-100}, 0.0, "mean"s};

Attrs with_shape(Ints shape, Attrs rest) {
  rest.insert(rest.begin(), std::move(shape));
  return rest;
}

/// stride, padding on both sides, dilation of one number each.
Attrs geometry(size_t rank, int64_t stride, int64_t padding, int64_t dilation, int64_t groups) {
  return {Ints(rank, stride), Ints(rank, padding), Ints(rank, padding), Ints(rank, dilation),
          groups};
}

Attrs max_attrs(Ints kernel, Ints stride, Ints padding, Ints dilation, bool ceil_mode) {
  return {std::move(kernel), std::move(stride), std::move(padding), std::move(dilation), ceil_mode};
}

Attrs average_attrs(Ints kernel, Ints stride, Ints padding, bool ceil_mode) {
  return {std::move(kernel), std::move(stride), std::move(padding), ceil_mode, true, int64_t{0}};
}

std::vector<Call> product_and_window_samples() {
  const Attrs plain = kPlain2d;
  const Attrs spread = geometry(2, 2, 1, 1, 2);
  const Attrs max = max_attrs({3, 2}, {2, 2}, {1, 0}, {1, 1}, true);
  const Attrs average = average_attrs({3, 2}, {2, 2}, {1, 0}, true);
  return {
      {"matmul", {f32({2, 3}), f32({3, 4})}, {false, false}},
      {"matmul", {f32({3, 2}), f32({3, 4})}, {true, false}},
      {"matmul", {f32({2, 3}), f32({4, 3})}, {false, true}},
      {"matmul", {f32({3, 2}), f32({4, 3})}, {true, true}},
      {"matmul", {f32({5, 1, 2, 3}), f32({6, 3, 4})}, {false, false}},
      {"matmul", {f32({5, 2, 3}), f32({3, 4})}, {false, false}},
      {"matmul", {f32({5, 2, 3}), f32({4, 3})}, {false, true}},
      {"matmul", {f32({5, 3, 2}), f32({4, 3})}, {true, true}},
      {"linear", {f32({2, 3}), f32({4, 3}), f32({4})}, {}},
      {"linear", {f32({3}), f32({4, 3}), kNone}, {}},
      {"linear", {f32({5, 2, 3}), f32({4, 3}), f32({4})}, {}},
      {"convolution", {f32({2, 3, 8, 8}), f32({4, 3, 3, 3}), f32({4})}, plain},
      {"convolution", {f32({2, 4, 7, 8}), f32({6, 2, 3, 2}), kNone}, spread},
      {"convolution", {f32({2, 3, 8}), f32({4, 3, 3}), f32({4})}, geometry(1, 1, 1, 2, 1)},
      {"convolution_input_grad",
       {f32({2, 6, 4, 5}), f32({6, 2, 3, 2})},
       with_shape({2, 4, 7, 8}, spread)},
      {"convolution_weight_grad",
       {f32({2, 6, 4, 5}), f32({2, 4, 7, 8})},
       with_shape({6, 2, 3, 2}, spread)},
      {"max_pool", {f32({2, 3, 7, 8})}, max},
      {"max_pool_grad", {f32({2, 3, 4, 4}), i32({2, 3, 4, 4})}, {Ints{2, 3, 7, 8}}},
      {"avg_pool", {f32({2, 3, 7, 8})}, average},
      {"avg_pool_grad", {f32({2, 3, 4, 4})}, with_shape({2, 3, 7, 8}, average)},
  };
}

std::vector<Call> normalisation_and_loss_samples() {
  const Attrs smooth = {int64_t{0}, 0.1, "none"s};
  const Attrs sum = {int64_t{0}, 0.1, "sum"s};
  const Attrs full = {false, 0.5};
  const Attrs causal = {true, 0.5};
  const ValueType mask{DType::kBool, {4, 5}};
  const ValueType q = f32({2, 3, 4, 6}), k = f32({2, 3, 5, 6}), v = f32({2, 3, 5, 7});
  const ValueType out = f32({2, 3, 4, 7}), rows = f32({2, 3, 4});
  const ValueType y = f32({2, 3, 4}), row3 = f32({3}), last = f32({4}), lead = f32({2, 3});
  return {
      {"softmax", {f32({2, 3})}, {int64_t{1}}},
      {"softmax", {f16({2, 0})}, {int64_t{1}}},
      {"log_softmax", {f16({2, 3})}, {int64_t{0}}},
      {"softmax_grad", {f16({2, 3}), f16({2, 3})}, {int64_t{1}}},
      {"log_softmax_grad", {f32({2, 3}), f32({2, 3})}, {int64_t{1}}},
      {"layer_norm", {y, last, last}, {int64_t{1}, 1e-5}},
      {"layer_norm", {f16({2, 3}), kNone, f16({2, 3})}, {int64_t{2}, 1e-5}},
      {"layer_norm_grad", {y, y, lead, lead, last}, {int64_t{1}}},
      {"layer_norm_grad", {f16({2, 3}), f16({2, 3}), f32({}), f32({}), kNone}, {int64_t{2}}},
      {"batch_norm", {y, row3, row3}, {1e-5}},
      {"batch_norm", {f16({2, 3}), kNone, kNone}, {1e-5}},
      {"batch_norm_grad", {y, y, row3, row3, row3}, {}},
      {"batch_norm_grad", {f16({2, 3}), f16({2, 3}), row3, row3, kNone}, {}},
      {"cross_entropy", {f32({5, 3}), i64({5}), kNone}, kMean},
      {"cross_entropy", {f16({5, 3}), i32({5}), f16({3})}, smooth},
      {"cross_entropy_grad", {f32({}), f32({5, 3}), i64({5}), f32({5}), kNone}, kMean},
      {"cross_entropy_grad", {f16({5}), f16({5, 3}), i32({5}), f32({5}), f16({3})}, smooth},
      {"cross_entropy_grad", {f32({}), f32({5, 3}), i64({5}), f32({5}), row3}, sum},
      {"attention", {q, k, v, kNone}, causal},
      {"attention", {q, k, v, mask}, full},
      {"attention", {q, k, v, f32({2, 1, 1, 5})}, causal},
      {"attention", {f16({4, 6}), f16({5, 6}), f16({5, 7}), f16({5})}, full},
      {"attention_grad", {out, q, k, v, out, rows, kNone}, causal},
      {"attention_grad", {out, q, k, v, out, rows, mask}, full},
      {"attention_grad",
       {f16({4, 7}), f16({4, 6}), f16({5, 6}), f16({5, 7}), f16({4, 7}), f32({4}), f16({4, 1})},
       causal},
  };
}

/// One valid call of every operation of these families and of its main variants.
std::vector<Call> samples() {
  std::vector<Call> calls = product_and_window_samples();
  std::ranges::copy(normalisation_and_loss_samples(), std::back_inserter(calls));
  return calls;
}

/// Inputs of the graph for the call's present inputs.
std::vector<std::optional<ValueId>> add_inputs(Graph& graph, const Call& call) {
  std::vector<std::optional<ValueId>> ids;
  for (const auto& type : call.inputs) {
    const auto role = lucid::ir::Role::kArgument;
    ids.push_back(type ? std::optional(graph.add_input(role, *type)) : std::nullopt);
  }
  return ids;
}

void check_decompose(const Call& call) {
  const Op& op = lucid::ops::get(call.name);
  Recorder b;
  Node node;
  node.op = &op;
  node.inputs = add_inputs(b.graph, call);
  node.attrs = call.attrs;
  const std::vector<ValueId> outputs = op.decompose(b, node);
  b.graph.set_outputs(outputs);
  lucid::ir::verify(b.graph, call.name);
  ValueTypes types;
  for (const ValueId output : outputs) types.push_back(b.graph.type(output));
  CHECK_EQ(call.name + ' ' + types_text(types), call.name + ' ' + inferred(call));
}

/// Bits of those values that a node after the first reads.
uint32_t read_bits(const Graph& graph, const std::vector<std::optional<ValueId>>& values) {
  uint32_t bits = 0;
  for (size_t i = 1; i < graph.nodes().size(); ++i) {
    const auto& inputs = graph.nodes()[i].inputs;
    for (size_t bit = 0; bit < values.size(); ++bit) {
      if (values[bit] && std::ranges::find(inputs, values[bit]) != inputs.end()) bits |= 1u << bit;
    }
  }
  return bits;
}

uint32_t present_bits(const std::vector<std::optional<ValueId>>& values) {
  uint32_t bits = 0;
  for (size_t bit = 0; bit < values.size(); ++bit) bits |= values[bit] ? 1u << bit : 0u;
  return bits;
}

/// Runs the gradient rule with those inputs wanted; the graph starts with the node itself.
lucid::ir::Grads run_vjp(Recorder& b, const Call& call, const std::vector<bool>& wanted,
                         Node& node) {
  const Op& op = lucid::ops::get(call.name);
  const auto inputs = add_inputs(b.graph, call);
  b.emit(op, inputs, call.attrs);
  node = b.graph.nodes().front();
  lucid::ir::Grads grads(node.outputs.size());
  const ValueType first = b.graph.type(node.outputs[0]);
  grads[0] = b.graph.add_input(lucid::ir::Role::kArgument, first);
  lucid::ir::Grads result = op.vjp(b, node, grads, wanted);
  lucid::ir::verify(b.graph, call.name);
  return result;
}

void check_vjp(const Call& call) {
  const Op& op = lucid::ops::get(call.name);
  Recorder b;
  Node node;
  const auto result = run_vjp(b, call, std::vector<bool>(call.inputs.size(), true), node);
  CHECK_EQ(result.size(), call.inputs.size());
  for (size_t i = 0; i < result.size(); ++i) {
    if (result[i]) CHECK_EQ(to_string(b.graph.type(*result[i])), to_string(*call.inputs[i]));
  }
  const std::vector<std::optional<ValueId>> outputs(node.outputs.begin(), node.outputs.end());
  CHECK_EQ(read_bits(b.graph, node.inputs), op.vjp_reads_inputs & present_bits(node.inputs));
  CHECK_EQ(read_bits(b.graph, outputs), op.vjp_reads_outputs & present_bits(outputs));
  for (size_t only = 0; only < call.inputs.size(); ++only) {
    Recorder each;
    std::vector<bool> wanted(call.inputs.size(), false);
    wanted[only] = true;
    const auto one = run_vjp(each, call, wanted, node);
    for (size_t i = 0; i < one.size(); ++i) {
      CHECK_EQ(one[i].has_value(), i == only && result[i].has_value());
    }
  }
}

}  // namespace

TEST(decompositions_have_the_types_of_the_node) {
  int num_checked = 0;
  for (const Call& call : samples()) {
    if (lucid::ops::get(call.name).decompose == nullptr) continue;
    check_decompose(call);
    ++num_checked;
  }
  CHECK_EQ(num_checked, 25);
}

TEST(gradients_have_the_types_of_the_inputs_and_read_what_they_say) {
  int num_checked = 0;
  for (const Call& call : samples()) {
    if (lucid::ops::get(call.name).vjp == nullptr) continue;
    check_vjp(call);
    ++num_checked;
  }
  CHECK_EQ(num_checked, 33);
}

TEST(every_operation_can_be_differentiated) {
  for (const Call& call : samples()) {
    const Op& op = lucid::ops::get(call.name);
    CHECK(op.vjp != nullptr || op.decompose != nullptr);
    CHECK(op.is(lucid::ir::kPure));
  }
}

TEST(products_infer) {
  CHECK_EQ(inferred({"matmul", {f32({5, 1, 2, 3}), f32({6, 4, 3})}, {false, true}}),
           "float32[5, 6, 2, 4]"s);
  CHECK_EQ(inferred({"linear", {f32({7, 2, 3}), f32({4, 3}), kNone}, {}}), "float32[7, 2, 4]"s);
  CHECK_EQ(inferred({"linear", {f32({3}), f32({4, 3}), f32({4})}, {}}), "float32[4]"s);
  CHECK_EQ(error_of({"linear", {f32({32, 10}), f32({64, 12}), kNone}, {}}),
           "linear: features differ: input (32, 10) has 10, weight (64, 12) expects 12; "
           "the last axis of input must be in_features"s);
  CHECK_EQ(error_of({"linear", {f32({32, 12}), f32({64, 12}), f32({12})}, {}}),
           "linear: bias does not fit weight: bias (12,), weight (64, 12); "
           "give bias the shape (64,)"s);
  CHECK_EQ(error_of({"linear", {i64({32, 12}), f32({64, 12}), kNone}, {}}),
           "linear: input must be floating point: got int64; cast it to float32 first"s);
  CHECK_EQ(error_of({"linear", {f32({32, 12}), f16({64, 12}), kNone}, {}}),
           "linear: dtypes differ: input float32, weight float16; cast one of them"s);
  CHECK_EQ(error_of({"matmul", {f32({2, 3}), f32({2, 3})}, {false, false}}),
           "matmul: inner sizes differ: first input (2, 3) has 3, second input (2, 3) has 2; "
           "transpose or reshape one of them"s);
  CHECK_EQ(error_of({"matmul", {f32({3}), f32({3, 4})}, {false, false}}),
           "matmul: inputs need at least 2 axes: (3,) and (3, 4); add one with reshape"s);
  CHECK_EQ(error_of({"matmul", {f32({2, 2, 3}), f32({5, 3, 4})}, {false, false}}),
           "matmul: leading axes do not broadcast: (2, 2, 3) and (5, 3, 4); "
           "expand or reshape one of them"s);
}

TEST(one_weight_for_all_batches_gets_its_gradient_from_one_product) {
  Recorder b;
  Node node;
  run_vjp(b, {"matmul", {f32({5, 2, 3}), f32({3, 4})}, {false, false}}, {false, true}, node);
  CHECK_EQ(to_string(b.graph),
           "graph {\n"
           "  %0 = input argument float32[5, 2, 3]\n"
           "  %1 = input argument float32[3, 4]\n"
           "  %3 = input argument float32[5, 2, 4]\n"
           "  %2 = matmul(%0, %1) {transpose_a=false, transpose_b=false} : float32[5, 2, 4]\n"
           "  %4 = reshape(%0) {shape=[10, 3]} : float32[10, 3]\n"
           "  %5 = reshape(%3) {shape=[10, 4]} : float32[10, 4]\n"
           "  %6 = matmul(%4, %5) {transpose_a=true, transpose_b=false} : float32[3, 4]\n"
           "  return\n"
           "}\n"s);
}

TEST(convolution_infers) {
  CHECK_EQ(
      inferred(
          {"convolution", {f32({2, 4, 7, 8}), f32({6, 2, 3, 2}), kNone}, geometry(2, 2, 1, 1, 2)}),
      "float32[2, 6, 4, 5]"s);
  CHECK_EQ(
      inferred({"convolution", {f32({0, 3, 9}), f32({4, 3, 3}), kNone}, geometry(1, 1, 0, 3, 1)}),
      "float32[0, 4, 3]"s);
  const Attrs same = {Ints{1, 1}, Ints{1, 0}, Ints{0, 2}, Ints{1, 1}, int64_t{1}};
  CHECK_EQ(inferred({"convolution", {f32({1, 1, 3, 4}), f32({1, 1, 2, 3}), kNone}, same}),
           "float32[1, 1, 3, 4]"s);
  CHECK_EQ(error_of({"convolution", {f32({1, 3, 8, 8}), f32({4, 2, 3, 3}), kNone}, kPlain2d}),
           "convolution: channels differ: input (1, 3, 8, 8) has 3, weight (4, 2, 3, 3) expects 2 "
           "in each of 1 group; channels must be weight's second size times groups"s);
  CHECK_EQ(error_of({"convolution", {f32({1, 3, 2, 8}), f32({4, 3, 3, 3}), kNone}, kPlain2d}),
           "convolution: kernel is larger than the padded input: input (1, 3, 2, 8), "
           "weight (4, 3, 3, 3), axis 2 has 2 with padding, the kernel covers 3; "
           "pad more or take a smaller kernel"s);
  CHECK_EQ(
      error_of(
          {"convolution", {f32({1, 4, 8, 8}), f32({4, 2, 3, 3}), kNone}, geometry(2, 1, 0, 1, 3)}),
      "convolution: groups must divide the 4 output channels: groups = 3, "
      "input (1, 4, 8, 8), weight (4, 2, 3, 3); choose a divisor"s);
  CHECK_EQ(
      error_of(
          {"convolution", {f32({1, 4, 8, 8}), f32({4, 4, 3, 3}), kNone}, geometry(2, 0, 0, 1, 1)}),
      "convolution: stride out of range: [0, 0]; each number must be from 1 to 2147483647"s);
  CHECK_EQ(error_of({"convolution_input_grad",
                     {f32({1, 4, 5, 5}), f32({4, 3, 3, 3})},
                     with_shape({1, 3, 8, 8}, kPlain2d)}),
           "convolution_input_grad: gradient does not fit: grad (1, 4, 5, 5), "
           "input (1, 3, 8, 8), weight (4, 3, 3, 3); give grad the shape (1, 4, 6, 6)"s);
}

TEST(pooling_infers) {
  const ValueType x = f32({1, 2, 6, 6});
  CHECK_EQ(inferred({"max_pool", {x}, max_attrs({2, 2}, {2, 2}, {0, 0}, {1, 1}, false)}),
           "float32[1, 2, 3, 3] int32[1, 2, 3, 3]"s);
  // Ceil mode: the window at 6 would start outside a row of 6 and is dropped; one at 3 is kept.
  CHECK_EQ(inferred({"avg_pool", {x}, average_attrs({1, 4}, {3, 3}, {0, 0}, true)}),
           "float32[1, 2, 2, 2]"s);
  CHECK_EQ(inferred({"avg_pool", {x}, average_attrs({1, 4}, {3, 3}, {0, 0}, false)}),
           "float32[1, 2, 2, 1]"s);
  CHECK_EQ(inferred({"avg_pool", {f32({1, 1, 5})}, average_attrs({2}, {3}, {1}, true)}),
           "float32[1, 1, 2]"s);
  CHECK_EQ(error_of({"max_pool", {x}, max_attrs({2, 2}, {2, 2}, {2, 0}, {1, 1}, false)}),
           "max_pool: padding is more than half the kernel: padding 2, kernel extent 2; "
           "pad the input with pad first"s);
  CHECK_EQ(error_of({"max_pool", {x}, max_attrs({7, 2}, {1, 1}, {0, 0}, {1, 1}, false)}),
           "max_pool: kernel is larger than the padded input: input (1, 2, 6, 6), axis 2 has 6 "
           "with padding, the kernel covers 7; take a smaller kernel"s);
  CHECK_EQ(error_of({"max_pool", {f32({1, 1, 3})}, max_attrs({2}, {1}, {1}, {4}, false)}),
           "max_pool: a window lies in the padding only: input (1, 1, 3), axis 2, padding 1, "
           "dilation 4; pad or dilate less"s);
  CHECK_EQ(error_of({"avg_pool", {f32({2, 6, 6})}, average_attrs({2, 2}, {2, 2}, {0, 0}, false)}),
           "avg_pool: kernel does not fit input: kernel [2, 2], input (2, 6, 6); give (batch, "
           "channels, *spatial) with 1 to 3 spatial axes and one kernel size for each"s);
  CHECK_EQ(error_of({"max_pool", {x}, max_attrs({2, 2}, {2}, {0, 0}, {1, 1}, false)}),
           "max_pool: stride has a wrong length: [2] for 2 spatial axes; "
           "give one number for each"s);
  CHECK_EQ(error_of({"max_pool_grad", {f32({1, 2, 3, 3}), i64({1, 2, 3, 3})}, {Ints{1, 2, 6, 6}}}),
           "max_pool_grad: indices must be int32: got int64; cast it to int32 first"s);
}

TEST(normalisation_infers) {
  CHECK_EQ(inferred({"layer_norm", {f16({2, 3, 4}), f16({3, 4}), kNone}, {int64_t{2}, 1e-5}}),
           "float16[2, 3, 4] float32[2] float32[2]"s);
  CHECK_EQ(inferred({"batch_norm", {f32({2, 3, 4, 4}), f32({3}), f32({3})}, {1e-5}}),
           "float32[2, 3, 4, 4] float32[3] float32[3] float32[3]"s);
  CHECK_EQ(error_of({"layer_norm", {f32({2, 3, 4}), f32({3}), kNone}, {int64_t{1}, 1e-5}}),
           "layer_norm: weight does not fit input: weight (3,), input (2, 3, 4); "
           "give weight the shape (4,)"s);
  CHECK_EQ(error_of({"layer_norm", {f32({2, 3}), kNone, kNone}, {int64_t{3}, 1e-5}}),
           "layer_norm: axes out of range: 3 trailing axes of input (2, 3); "
           "normalise at least one axis and at most all"s);
  CHECK_EQ(error_of({"batch_norm", {f32({3}), kNone, kNone}, {1e-5}}),
           "batch_norm: input needs at least 2 axes: input (3,); give (batch, channels, ...)"s);
  CHECK_EQ(error_of({"batch_norm", {f32({2, 3}), kNone, kNone}, {-0.5}}),
           "batch_norm: eps must not be negative: got -0.5; 1e-5 is usual"s);
  CHECK_EQ(error_of({"softmax", {f32({2, 3})}, {int64_t{2}}}),
           "softmax: axis out of range: 2 for shape (2, 3); use 0 to 1"s);
  CHECK_EQ(error_of({"softmax", {i64({2, 3})}, {int64_t{1}}}),
           "softmax: input must be floating point: got int64; cast it to float32 first"s);
}

TEST(losses_infer) {
  const Attrs none = {int64_t{-100}, 0.0, "none"s};
  CHECK_EQ(inferred({"cross_entropy", {f32({5, 3}), i64({5}), kNone}, kMean}),
           "float32[] float32[5]"s);
  CHECK_EQ(inferred({"cross_entropy", {f16({5, 3}), i32({5}), kNone}, none}),
           "float16[5] float32[5]"s);
  CHECK_EQ(error_of({"cross_entropy", {f32({5, 3}), f32({5}), kNone}, kMean}),
           "cross_entropy: target must be int32 or int64: got float32; cast it to int64 first"s);
  CHECK_EQ(error_of({"cross_entropy", {f32({5, 3}), i64({4}), kNone}, kMean}),
           "cross_entropy: target does not fit logits: target (4,), logits (5, 3); "
           "give target the shape (5,)"s);
  CHECK_EQ(error_of({"cross_entropy", {f32({5, 3}), i64({5}), f32({5})}, kMean}),
           "cross_entropy: weight does not fit logits: weight (5,), logits (5, 3); "
           "give weight the shape (3,)"s);
  CHECK_EQ(
      error_of({"cross_entropy", {f32({5, 3}), i64({5}), kNone}, {int64_t{-100}, 0.0, "average"s}}),
      "cross_entropy: unknown reduction: got \"average\"; use \"none\", \"mean\" or \"sum\""s);
  CHECK_EQ(
      error_of({"cross_entropy", {f32({5, 3}), i64({5}), kNone}, {int64_t{-100}, 1.5, "mean"s}}),
      "cross_entropy: label_smoothing must be from 0 to 1: got 1.5; 0.1 is usual"s);
}

TEST(attention_infers) {
  const ValueType q = f32({2, 4, 6}), k = f32({2, 5, 6}), v = f32({2, 5, 7});
  const Attrs attrs = {false, 0.5};
  CHECK_EQ(inferred({"attention", {q, k, v, kNone}, attrs}), "float32[2, 4, 7] float32[2, 4]"s);
  CHECK_EQ(error_of({"attention", {q, f32({2, 5, 8}), v, kNone}, attrs}),
           "attention: features of query and key differ: query (2, 4, 6), key (2, 5, 8), "
           "value (2, 5, 7); project them to one size"s);
  CHECK_EQ(error_of({"attention", {q, k, f32({2, 4, 7}), kNone}, attrs}),
           "attention: lengths of key and value differ: query (2, 4, 6), key (2, 5, 6), "
           "value (2, 4, 7); give one value for each key"s);
  CHECK_EQ(error_of({"attention", {q, k, v, f32({3, 5})}, attrs}),
           "attention: mask does not broadcast to the scores: mask (3, 5), scores (2, 4, 5); "
           "give (..., queries, keys) with sizes of 1 where it repeats"s);
  CHECK_EQ(error_of({"attention", {q, k, v, i64({4, 5})}, attrs}),
           "attention: mask must be bool or float32: got int64; cast it first"s);
  CHECK_EQ(error_of({"attention", {q, f32({1, 5, 6}), f32({1, 5, 7}), kNone}, attrs}),
           "attention: leading axes differ: query (2, 4, 6), key (1, 5, 6), value (1, 5, 7); "
           "expand them to one shape"s);
}

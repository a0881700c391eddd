// Infer functions of the element-wise, creation, random, shape, index and reduction families: their
// types and messages; and what the gradient rules of all these operations read and give.
#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/builder.h"
#include "ops/families.h"
#include "ops/registry.h"
#include "testing.h"

namespace lucid::ops {
namespace {

using ir::AttrValue;
using ir::Graph;
using ir::Role;
using ir::ValueTypes;

ValueType f32(Shape shape) { return {DType::kFloat32, shape}; }
ValueType i64(Shape shape) { return {DType::kInt64, shape}; }
ValueType boolean(Shape shape) { return {DType::kBool, shape}; }

ValueTypes infer(std::string_view op, const std::vector<ValueType>& inputs, Attrs attrs = {}) {
  const std::vector<std::optional<ValueType>> present(inputs.begin(), inputs.end());
  return ir::infer(get(op), present, attrs, nullptr);
}

std::string types(std::string_view op, const std::vector<ValueType>& inputs, Attrs attrs = {}) {
  std::string text;
  for (const ValueType& type : infer(op, inputs, std::move(attrs))) {
    text += (text.empty() ? "" : " ") + ir::to_string(type);
  }
  return text;
}

/// The class and the whole message of the refusal.
struct Refusal {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
};

Refusal refusal(std::string_view op, const std::vector<ValueType>& inputs, Attrs attrs = {}) {
  try {
    infer(op, inputs, std::move(attrs));
  } catch (const Error& error) {
    return {error.kind(), error.what()};
  }
  return {ErrorKind::kInternal, "accepted"};
}

/// One call of an operation.
struct Sample {
  std::string_view op;
  std::vector<ValueType> inputs;
  Attrs attrs = {};
};

/// A call of each operation with a gradient; the element-wise ones without attributes are added by
/// samples().
std::vector<Sample> special_samples() {
  const ValueType matrix = f32({2, 3});
  const ValueType generator = i64({2});
  return {
      {"gelu", {matrix}, {std::string("none")}},
      {"gelu", {matrix}, {std::string("tanh")}},
      {"softplus", {matrix}, {2.0, 1.0}},
      {"leaky_relu", {matrix}, {0.1}},
      {"where", {boolean({2, 3}), f32({3}), f32({2, 1})}},
      {"clamp", {matrix, f32({3}), f32({})}},
      {"cast", {matrix}, {DType::kFloat64}},
      {"dropout", {matrix, generator}, {0.5, int64_t{0}}},
      {"reshape", {matrix}, {Ints{6}}},
      {"permute", {f32({2, 3, 4})}, {Ints{1, 2, 0}}},
      {"broadcast_to", {f32({3, 1})}, {Ints{2, 3, 4}}},
      {"concat", {matrix, f32({2, 1}), f32({2, 2})}, {int64_t{1}}},
      {"pad", {matrix}, {Ints{1, 0}, Ints{0, 2}, 0.5}},
      {"slice", {f32({4, 5})}, {Ints{3, 0}, Ints{2, 3}, Ints{-2, 2}}},
      {"slice_update", {f32({4, 5}), f32({2, 3})}, {Ints{3, 0}, Ints{-2, 2}}},
      {"take", {f32({4, 5}), i64({2, 3})}, {int64_t{1}}},
      {"index_add", {f32({4, 5}), i64({3}), f32({3, 5})}, {int64_t{0}}},
      {"gather", {f32({4, 5}), i64({3, 5})}, {int64_t{0}}},
      {"scatter", {f32({4, 5}), i64({4, 2}), f32({4, 2})}, {int64_t{1}}},
      {"scatter_add", {f32({4, 5}), i64({4, 7}), f32({4, 7})}, {int64_t{1}}},
      {"scatter_max", {f32({4, 5}), i64({4, 7}), f32({4, 7})}, {int64_t{1}}},
      {"scatter_min", {f32({4, 5}), i64({4, 7}), f32({4, 7})}, {int64_t{1}}},
      {"sum", {f32({2, 3, 4})}, {Ints{0, 2}, false}},
      {"prod", {f32({2, 3, 4})}, {Ints{2, 0}, false}},
      {"amax", {f32({2, 3, 4})}, {Ints{1}, false}},
      {"amin", {f32({2, 3, 4})}, {Ints{1, 2}, true}},
      {"cumsum", {matrix}, {int64_t{1}}},
      {"sort", {matrix}, {int64_t{1}, true}},
  };
}

std::vector<ir::Op> rows() {
  std::vector<ir::Op> all;
  for (const auto family : {pointwise_ops, comparison_ops, create_ops, random_ops, shape_ops,
                            index_ops, reduction_ops}) {
    std::ranges::move(family(), std::back_inserter(all));
  }
  return all;
}

std::vector<Sample> samples() {
  std::vector<Sample> all = special_samples();
  for (const ir::Op& op : rows()) {
    const bool is_special =
        std::ranges::any_of(all, [&](const Sample& sample) { return sample.op == op.name; });
    if (op.vjp == nullptr || is_special) continue;
    std::vector<ValueType> inputs = {f32({2, 3})};
    if (op.min_inputs == 2) inputs.push_back(f32({3}));
    all.push_back({get(op.name).name, inputs});
  }
  return all;
}

/// Appends to a graph, as autodiff does.
class GraphBuilder final : public Builder {
 public:
  std::vector<ValueId> emit(const ir::Op& op, std::vector<std::optional<ValueId>> inputs,
                            Attrs attrs) override {
    std::vector<std::optional<ValueType>> input_types;
    for (const auto& input : inputs) {
      input_types.push_back(input ? std::optional(graph.type(*input)) : std::nullopt);
    }
    const ValueTypes output_types = ir::infer(op, input_types, attrs, nullptr);
    Node node;
    node.op = &op;
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    return graph.add_node(std::move(node), output_types);
  }
  const ValueType& type(ValueId id) const override { return graph.type(id); }

  Graph graph;
};

/// A sample's node and its gradient in one graph.
struct Differentiated {
  GraphBuilder builder;
  Node node;
  Grads input_grads;

  Differentiated(const Sample& sample, bool wanted, bool with_grads) {
    std::vector<std::optional<ValueId>> inputs;
    for (const ValueType& type : sample.inputs) {
      inputs.push_back(builder.graph.add_input(Role::kArgument, type));
    }
    builder.emit(get(sample.op), inputs, sample.attrs);
    node = builder.graph.nodes().back();
    Grads grads(node.outputs.size());
    for (size_t i = 0; with_grads && i < grads.size(); ++i) {
      const ValueType type = builder.type(node.outputs[i]);
      if (is_floating(type.dtype)) grads[i] = builder.graph.add_input(Role::kSeed, type);
    }
    input_grads = node.op->vjp(builder, node, grads, std::vector<bool>(inputs.size(), wanted));
  }

  bool reads(ValueId id) const {
    for (size_t i = 1; i < builder.graph.nodes().size(); ++i) {
      const auto& inputs = builder.graph.nodes()[i].inputs;
      if (std::ranges::find(inputs, std::optional(id)) != inputs.end()) return true;
    }
    return false;
  }
};

TEST(every_differentiable_operation_has_a_sample) {
  std::set<std::string_view> sampled;
  for (const Sample& sample : samples()) sampled.insert(sample.op);
  for (const ir::Op& op : rows()) {
    CHECK(!op.doc.empty());
    CHECK(op.is(ir::kPure));
    const bool is_flat = op.nondifferentiable_outputs == 1;
    // Second derivatives of a gradient come from its simpler nodes.
    CHECK_EQ(op.vjp == nullptr && op.decompose == nullptr, is_flat);
    if (op.vjp != nullptr && !sampled.contains(op.name)) {
      testing::fail(__FILE__, __LINE__, "no sample of " + std::string(op.name));
    }
  }
}

TEST(a_gradient_has_the_type_of_its_input) {
  for (const Sample& sample : samples()) {
    const Differentiated result(sample, true, true);
    CHECK_EQ(result.input_grads.size(), sample.inputs.size());
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      const bool is_expected = is_floating(sample.inputs[i].dtype);
      if (result.input_grads[i].has_value() != is_expected) {
        testing::fail(__FILE__, __LINE__, "gradient of " + std::string(sample.op));
      }
      if (!is_expected) continue;
      CHECK_EQ(ir::to_string(result.builder.type(*result.input_grads[i])),
               ir::to_string(sample.inputs[i]));
    }
  }
}

TEST(a_gradient_rule_reads_what_its_row_says) {
  for (const Sample& sample : samples()) {
    const Differentiated result(sample, true, true);
    const ir::Op& op = *result.node.op;
    uint32_t inputs = 0;
    uint32_t outputs = 0;
    for (size_t i = 0; i < result.node.inputs.size(); ++i) {
      if (result.reads(result.node.in(i))) inputs |= 1u << i;
    }
    for (size_t i = 0; i < result.node.outputs.size(); ++i) {
      if (result.reads(result.node.outputs[i])) outputs |= 1u << i;
    }
    if (inputs == op.vjp_reads_inputs && outputs == op.vjp_reads_outputs) continue;
    testing::fail(
        __FILE__, __LINE__,
        std::string(op.name) + " reads other values:\n" + to_string(result.builder.graph));
  }
}

TEST(nothing_wanted_or_given_emits_nothing) {
  for (const Sample& sample : samples()) {
    for (const bool wanted : {false, true}) {
      const Differentiated result(sample, wanted, !wanted);
      CHECK_EQ(result.builder.graph.nodes().size(), 1);
      CHECK(std::ranges::none_of(result.input_grads, [](const auto& g) { return g.has_value(); }));
    }
  }
}

TEST(a_decomposition_has_the_types_of_the_operation) {
  for (const Sample& sample : samples()) {
    if (get(sample.op).decompose == nullptr) continue;
    Differentiated result(sample, false, false);
    const std::vector<ValueId> outputs = result.node.op->decompose(result.builder, result.node);
    CHECK_EQ(outputs.size(), result.node.outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      CHECK(result.builder.type(outputs[i]) == result.builder.type(result.node.outputs[i]));
    }
    CHECK(result.builder.graph.nodes().size() > 2);
  }
}

TEST(elementwise_types) {
  CHECK_EQ(types("add", {f32({2, 1}), f32({3})}), "float32[2, 3]");
  CHECK_EQ(types("add", {boolean({2}), boolean({})}), "bool[2]");
  CHECK_EQ(types("mul", {f32({0, 3}), f32({1, 3})}), "float32[0, 3]");
  CHECK_EQ(types("pow", {i64({2}), i64({2})}), "int64[2]");
  CHECK_EQ(types("eq", {i64({2, 1}), i64({1, 2})}), "bool[2, 2]");
  CHECK_EQ(types("isnan", {i64({2})}), "bool[2]");
  CHECK_EQ(types("bitwise_not", {boolean({2})}), "bool[2]");
  CHECK_EQ(types("where", {boolean({2, 1}), i64({3}), i64({})}), "int64[2, 3]");
  CHECK_EQ(types("clamp", {f32({2}), f32({}), f32({3, 1})}), "float32[3, 2]");
  CHECK_EQ(types("cast", {f32({2})}, {DType::kInt8}), "int8[2]");
}

/// A call that is refused, with its class and whole message.
struct ErrorRow {
  ErrorKind kind;
  std::string message;
  Sample call;
};

void check_refusals(const std::vector<ErrorRow>& table) {
  for (const ErrorRow& row : table) {
    const Refusal found = refusal(row.call.op, row.call.inputs, row.call.attrs);
    CHECK_EQ(found.message, row.message);
    CHECK_EQ(found.kind, row.kind);
  }
}

TEST(elementwise_refusals) {
  check_refusals({
      {ErrorKind::kShape,
       "mul: shapes differ: (2, 3) and (4,); broadcast one of them first",
       {"mul", {f32({2, 3}), f32({4})}}},
      {ErrorKind::kShape,
       "clamp: shapes differ: (2,), () and (3,); broadcast one of them first",
       {"clamp", {f32({2}), f32({}), f32({3})}}},
      {ErrorKind::kShape,
       "add: shapes differ: (0,) and (3,); broadcast one of them first",
       {"add", {f32({0}), f32({3})}}},
      {ErrorKind::kDType,
       "add: dtypes differ: float32 and int64; cast one of them first",
       {"add", {f32({2}), i64({2})}}},
      {ErrorKind::kDType,
       "sqrt: dtype is not floating: int64; cast to a floating dtype first",
       {"sqrt", {i64({2})}}},
      {ErrorKind::kDType,
       "sub: dtype is not a number: bool; cast to an integer or floating dtype first",
       {"sub", {boolean({2}), boolean({2})}}},
      {ErrorKind::kDType,
       "bitwise_and: dtype is floating: float32; cast to an integer dtype or bool first",
       {"bitwise_and", {f32({2}), f32({2})}}},
      {ErrorKind::kDType,
       "where: condition is not bool: float32; compare or cast to bool first",
       {"where", {f32({2}), f32({2}), f32({2})}}},
      {ErrorKind::kUser,
       "gelu: approximate is unknown: 'erf'; use 'none' or 'tanh'",
       {"gelu", {f32({2})}, {std::string("erf")}}},
  });
}

TEST(creation_and_random_types) {
  const Attrs draw = {Ints{2, 3}, DType::kFloat32, int64_t{7}};
  CHECK_EQ(types("full", {}, {Ints{}, DType::kBool, int64_t{1}}), "bool[]");
  CHECK_EQ(types("arange", {}, {0.0, 0.5, int64_t{4}, DType::kFloat64}), "float64[4]");
  CHECK_EQ(types("constant", {}, {std::string(8, 'a'), Ints{2}, DType::kInt32}), "int32[2]");
  CHECK_EQ(types("uniform", {i64({2})}, draw), "float32[2, 3]");
  CHECK_EQ(types("normal", {i64({2})}, draw), "float32[2, 3]");
  CHECK_EQ(types("random_int", {i64({2})},
                 {int64_t{-128}, int64_t{128}, Ints{2}, DType::kInt8, int64_t{0}}),
           "int8[2]");
  CHECK_EQ(types("dropout", {f32({2, 3}), i64({2})}, {0.5, int64_t{0}}),
           "float32[2, 3] bool[2, 3]");
  for (const std::string_view op : {"uniform", "normal", "random_int", "dropout"}) {
    CHECK(get(op).is(ir::kRandom));
    CHECK(get(op).attrs.back().name == "offset" && get(op).attrs.back().run_time);
  }
}

TEST(creation_and_random_refusals) {
  const int64_t zero = 0;
  check_refusals({
      {ErrorKind::kShape,
       "full: negative size -1 in a shape",
       {"full", {}, {Ints{2, -1}, DType::kFloat32, 0.0}}},
      {ErrorKind::kUser,
       "arange: count is negative: -1; use 0 or more",
       {"arange", {}, {zero, int64_t{1}, int64_t{-1}, DType::kInt64}}},
      {ErrorKind::kUser,
       "constant: data has another size: 7 bytes for float32[2]; give 8",
       {"constant", {}, {std::string(7, 'a'), Ints{2}, DType::kFloat32}}},
      {ErrorKind::kType,
       "uniform: input is no generator state: float32[2]; pass int64[2], the seed and the offset",
       {"uniform", {f32({2})}, {Ints{2}, DType::kFloat32, zero}}},
      {ErrorKind::kDType,
       "normal: dtype is not floating: int64; draw float32 and cast, or use random_int",
       {"normal", {i64({2})}, {Ints{2}, DType::kInt64, zero}}},
      {ErrorKind::kUser,
       "random_int: range is empty: 3 to 3; low must be less than high",
       {"random_int", {i64({2})}, {int64_t{3}, int64_t{3}, Ints{2}, DType::kInt64, zero}}},
      {ErrorKind::kUser,
       "random_int: range does not fit uint8: 0 to 257; use a wider dtype",
       {"random_int", {i64({2})}, {zero, int64_t{257}, Ints{2}, DType::kUInt8, zero}}},
      {ErrorKind::kUser,
       "dropout: probability out of range: 1.5; use 0 to 1",
       {"dropout", {f32({2}), i64({2})}, {1.5, zero}}},
  });
}

TEST(shape_types) {
  CHECK_EQ(types("reshape", {f32({2, 3})}, {Ints{3, 2}}), "float32[3, 2]");
  CHECK_EQ(types("permute", {f32({2, 3, 4})}, {Ints{2, 0, 1}}), "float32[4, 2, 3]");
  CHECK_EQ(types("broadcast_to", {f32({3, 1})}, {Ints{2, 3, 0}}), "float32[2, 3, 0]");
  CHECK_EQ(types("concat", {f32({2, 3}), f32({2, 0})}, {int64_t{1}}), "float32[2, 3]");
  CHECK_EQ(types("pad", {f32({2, 3})}, {Ints{1, 0}, Ints{2, 4}, 0.0}), "float32[5, 7]");
  CHECK_EQ(types("slice", {f32({5})}, {Ints{4}, Ints{3}, Ints{-2}}), "float32[3]");
  CHECK_EQ(types("slice", {f32({5})}, {Ints{9}, Ints{0}, Ints{1}}), "float32[0]");
  CHECK_EQ(types("slice_update", {f32({5}), f32({2})}, {Ints{0}, Ints{4}}), "float32[5]");
  CHECK_EQ(types("detach", {f32({5})}), "float32[5]");
  CHECK(get("slice").attrs[0].run_time && !get("slice").attrs[1].run_time);
  CHECK(get("slice").attrs[2].run_time && get("slice_update").attrs[0].run_time);
}

TEST(shape_refusals) {
  const int64_t huge = int64_t{1} << 62;
  check_refusals({
      {ErrorKind::kShape,
       "reshape: element counts differ: (2, 3) has 6 and (4,) has 4; choose a shape of 6",
       {"reshape", {f32({2, 3})}, {Ints{4}}}},
      {ErrorKind::kUser,
       "permute: axis stands twice: 1 in [1, 1]; list each axis once",
       {"permute", {f32({2, 3})}, {Ints{1, 1}}}},
      {ErrorKind::kUser,
       "permute: dims do not list every axis: [1] for shape (2, 3); list each of its 2 axes once",
       {"permute", {f32({2, 3})}, {Ints{1}}}},
      {ErrorKind::kShape,
       "broadcast_to: shape does not broadcast: (3,) to (3, 2); sizes must be equal or 1, aligned "
       "at the last axis",
       {"broadcast_to", {f32({3})}, {Ints{3, 2}}}},
      {ErrorKind::kShape,
       "concat: shapes differ: (2, 3) and (3, 3); all sizes but that of axis 1 must be equal",
       {"concat", {f32({2, 3}), f32({3, 3})}, {int64_t{1}}}},
      {ErrorKind::kUser,
       "pad: widths do not fit: low [1] and high [1, 2] for shape (2, 3); give one width for each "
       "axis",
       {"pad", {f32({2, 3})}, {Ints{1}, Ints{1, 2}, 0.0}}},
      {ErrorKind::kUser,
       "pad: width out of range: low [-1] and high [0]; use 0 or more, and cut with slice",
       {"pad", {f32({2})}, {Ints{-1}, Ints{0}, 0.0}}},
      {ErrorKind::kUser,
       "slice: window does not fit: starts [0], sizes [1] and steps [1] for shape (2, 3); give one "
       "entry for each axis",
       {"slice", {f32({2, 3})}, {Ints{0}, Ints{1}, Ints{1}}}},
      {ErrorKind::kIndex,
       "slice: window out of range: start 3, size 3 and step 1 on axis 0 of shape (5,); keep each "
       "element on the axis",
       {"slice", {f32({5})}, {Ints{3}, Ints{3}, Ints{1}}}},
      {ErrorKind::kIndex,
       "slice: window out of range: start 0, size 3 and step " + std::to_string(huge) +
           " on axis 0 of shape (5,); keep each element on the axis",
       {"slice", {f32({5})}, {Ints{0}, Ints{3}, Ints{huge}}}},
      {ErrorKind::kIndex,
       "slice_update: window out of range: start 1, size 3 and step -1 on axis 0 of shape (5,); "
       "keep each element on the axis",
       {"slice_update", {f32({5}), f32({3})}, {Ints{1}, Ints{-1}}}},
  });
}

TEST(index_types) {
  const int64_t one = 1;
  CHECK_EQ(types("take", {f32({4, 5, 6}), i64({2, 3})}, {one}), "float32[4, 2, 3, 6]");
  CHECK_EQ(types("take", {f32({4, 5}), i64({})}, {one}), "float32[4]");
  CHECK_EQ(types("index_add", {f32({4, 5}), i64({2}), f32({4, 2})}, {one}), "float32[4, 5]");
  CHECK_EQ(types("gather", {f32({4, 5}), i64({3, 9})}, {one}), "float32[3, 9]");
  CHECK_EQ(types("scatter", {boolean({4, 5}), i64({3, 9}), boolean({3, 9})}, {one}), "bool[4, 5]");
  CHECK_EQ(types("scatter_add", {f32({4, 5}), i64({3, 9}), f32({3, 9})}, {one}), "float32[4, 5]");
}

TEST(index_refusals) {
  const int64_t one = 1;
  check_refusals({
      {ErrorKind::kDType,
       "take: dtype does not fit an index: float32; cast to int32 or int64 first",
       {"take", {f32({4, 5}), f32({2})}, {one}}},
      {ErrorKind::kIndex,
       "take: axis out of range: 2 for shape (4, 5); use 0 to 1",
       {"take", {f32({4, 5}), i64({2})}, {int64_t{2}}}},
      {ErrorKind::kShape,
       "index_add: source does not fit: (4, 3) for input (4, 5) and index (2,); use (4, 2)",
       {"index_add", {f32({4, 5}), i64({2}), f32({4, 3})}, {one}}},
      {ErrorKind::kShape,
       "gather: index does not fit: (5, 5) for input (4, 5); it needs the same rank and, off axis "
       "1, sizes no larger than the input's",
       {"gather", {f32({4, 5}), i64({5, 5})}, {one}}},
      {ErrorKind::kShape,
       "scatter: shapes of index and source differ: (4, 2) and (4, 3); slice the source to the "
       "index's shape",
       {"scatter", {f32({4, 5}), i64({4, 2}), f32({4, 3})}, {one}}},
      {ErrorKind::kDType,
       "scatter_add: dtypes differ: float32 and int64; cast one of them first",
       {"scatter_add", {f32({4, 5}), i64({4, 2}), i64({4, 2})}, {one}}},
  });
}

TEST(reduction_types) {
  CHECK_EQ(types("sum", {f32({2, 3, 4})}, {Ints{2, 0}, false}), "float32[3]");
  CHECK_EQ(types("sum", {f32({2, 0})}, {Ints{1}, true}), "float32[2, 1]");
  CHECK_EQ(types("amax", {f32({})}, {Ints{}, false}), "float32[]");
  CHECK_EQ(types("any", {f32({2, 3})}, {Ints{0, 1}, true}), "bool[1, 1]");
  CHECK_EQ(types("argmax", {f32({2, 3})}, {int64_t{0}, false}), "int64[3]");
  CHECK_EQ(types("cumsum", {i64({2, 3})}, {int64_t{0}}), "int64[2, 3]");
  CHECK_EQ(types("sort", {f32({2, 3})}, {int64_t{1}, true}), "float32[2, 3] int64[2, 3]");
}

TEST(reduction_refusals) {
  check_refusals({
      {ErrorKind::kIndex,
       "sum: axis out of range: 3 for shape (2, 3); use 0 to 1",
       {"sum", {f32({2, 3})}, {Ints{3}, false}}},
      {ErrorKind::kIndex,
       "cumsum: axis out of range: 0 for shape (); a 0-d tensor has no axes, reshape it to (1,) "
       "first",
       {"cumsum", {f32({})}, {int64_t{0}}}},
      {ErrorKind::kDType,
       "sum: dtype is not a number: bool; cast to an integer or floating dtype first",
       {"sum", {boolean({2})}, {Ints{0}, false}}},
      {ErrorKind::kShape,
       "amax: axis is empty: axis 1 of shape (2, 0); reduce an axis that has elements",
       {"amax", {f32({2, 0})}, {Ints{1}, false}}},
      {ErrorKind::kShape,
       "argmin: axis is empty: axis 0 of shape (0,); reduce an axis that has elements",
       {"argmin", {f32({0})}, {int64_t{0}, false}}},
  });
}

}  // namespace
}  // namespace lucid::ops

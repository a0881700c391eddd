// Every lowering against the cpu as second opinion, inside a graph.
#include <cstdio>
#include <set>

#include "metal_testing.h"

namespace lucid::testing {
namespace {

using Inputs = std::vector<std::optional<Operand>>;

struct Row {
  std::string op;
  Inputs inputs;
  Attrs attrs = {};
};

constexpr DType kF16 = DType::kFloat16;
constexpr DType kBF16 = DType::kBFloat16;
constexpr DType kI32 = DType::kInt32;
constexpr DType kI64 = DType::kInt64;
const Shape kPair{3, 5};

std::vector<Row> unary_rows() {
  std::vector<Row> rows;
  for (const char* op :
       {"exp",   "expm1", "sin",   "cos",   "tan",     "sinh", "cosh", "tanh",
        "asinh", "atan",  "erf",   "erfc",  "neg",     "abs",  "sign", "square",
        "floor", "ceil",  "round", "trunc", "sigmoid", "relu", "silu", "reciprocal"}) {
    rows.push_back({op, {f32(kPair)}});
    rows.push_back({op, {of(kF16, kPair)}});
    rows.push_back({op, {of(kBF16, Shape{})}});
  }
  for (const char* op : {"sqrt", "rsqrt", "log", "log2", "log10", "log1p"}) {
    rows.push_back({op, {f32(kPair, Fill::kPositive)}});
  }
  for (const char* op : {"asin", "acos", "atanh", "log1p", "expm1"}) {
    rows.push_back({op, {f32(kPair, Fill::kUnit)}});
  }
  rows.push_back({"acosh", {numbers(DType::kFloat32, Shape{3}, {1.0, 1.5, 20.0})}});
  for (const char* op :
       {"neg", "abs", "sign", "square", "floor", "ceil", "round", "trunc", "relu"}) {
    rows.push_back({op, {numbers(kI32, Shape{4}, {-3, 0, 7, 100})}});
    rows.push_back({op, {numbers(kI64, Shape{4}, {-3, 0, 7, 100})}});
  }
  const std::vector<double> small = {-1e-6, 1e-6, 3e-4, -0.4, 0.4, 3.0, 0.0, 9.5};
  for (const char* op : {"log1p", "expm1", "erfc"}) {
    rows.push_back({op, {numbers(DType::kFloat32, Shape{8}, small)}});
  }
  rows.push_back({"round", {numbers(DType::kFloat32, Shape{4}, {0.5, 1.5, 2.5, -0.5})}});
  rows.push_back({"relu", {numbers(DType::kFloat32, Shape{3}, {NAN, -INFINITY, INFINITY})}});
  rows.push_back({"gelu", {f32(kPair)}, {std::string("none")}});
  rows.push_back({"gelu", {f32(kPair)}, {std::string("tanh")}});
  rows.push_back({"gelu_grad", {f32(kPair), f32(kPair)}, {std::string("none")}});
  rows.push_back({"gelu_grad", {f32(kPair), f32(kPair)}, {std::string("tanh")}});
  rows.push_back({"softplus", {f32(kPair)}, {2.0, 1.0}});
  rows.push_back({"leaky_relu", {f32(kPair)}, {0.1}});
  for (const DType to : {kI32, kI64, DType::kBool, kF16, kBF16, DType::kUInt8}) {
    rows.push_back({"cast", {f32(kPair, Fill::kPositive)}, {to}});
  }
  rows.push_back({"cast", {bools(kPair)}, {DType::kFloat32}});
  rows.push_back({"cast", {bools(kPair)}, {kI64}});
  rows.push_back({"cast", {low(kI64, kPair, 1000)}, {DType::kFloat32}});
  return rows;
}

std::vector<Row> binary_rows() {
  std::vector<Row> rows;
  for (const char* op : {"add", "sub", "mul", "div", "maximum", "minimum", "fmod", "remainder",
                         "floor_divide", "atan2", "eq", "ne", "lt", "le", "gt", "ge"}) {
    rows.push_back({op, {f32({4, 1}), f32({3})}});
    rows.push_back({op, {of(kF16, {4, 1}), of(kF16, {})}});
  }
  rows.push_back({"pow", {f32(kPair, Fill::kPositive), f32(kPair)}});
  for (const char* op : {"add", "sub", "mul", "maximum", "minimum", "eq", "ne", "lt", "le", "gt",
                         "ge", "bitwise_and", "bitwise_or", "bitwise_xor"}) {
    rows.push_back({op, {low(kI32, {2, 3}, 9), low(kI32, {3}, 4)}});
    rows.push_back({op, {low(kI64, {2, 3}, 9), low(kI64, {3}, 4)}});
  }
  for (const char* op :
       {"add", "mul", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and",
        "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"}) {
    rows.push_back({op, {bools({4, 3}), bools({3})}});
  }
  const Operand edges = numbers(DType::kFloat32, Shape{5}, {NAN, INFINITY, -INFINITY, 0.0, 1.0});
  for (const char* op : {"isnan", "isinf", "isfinite", "logical_not"}) {
    rows.push_back({op, {edges}});
    rows.push_back({op, {low(kI32, {4}, 2)}});
  }
  rows.push_back({"maximum", {edges, f32({5})}});
  rows.push_back({"minimum", {edges, f32({5})}});
  rows.push_back({"logical_and", {f32(kPair), low(DType::kFloat32, kPair, 2)}});
  rows.push_back({"bitwise_not", {low(kI32, {4}, 9)}});
  rows.push_back({"bitwise_not", {bools({4})}});
  rows.push_back({"where", {bools({2, 3}), f32({3}), f32({})}});
  rows.push_back({"where", {bools({2, 3}), low(kI64, {2, 1}, 9), low(kI64, {}, 5)}});
  rows.push_back({"clamp", {f32(kPair), f32({}), f32({5}, Fill::kPositive)}});
  return rows;
}

std::vector<Row> shape_rows() {
  return {
      {"reshape", {f32({2, 6})}, {Ints{3, 4}}},
      {"reshape", {f32({1, 1})}, {Ints{}}},
      {"permute", {f32({2, 3, 4})}, {Ints{2, 0, 1}}},
      {"broadcast_to", {f32({3, 1})}, {Ints{2, 3, 4}}},
      {"broadcast_to", {f32({})}, {Ints{2, 2}}},
      {"concat", {f32({2, 3}), f32({2, 1}), f32({2, 2})}, {int64_t{1}}},
      {"concat", {f32({2, 3}), f32({2, 0}), f32({2, 2})}, {int64_t{1}}},
      {"pad", {f32({2, 3})}, {Ints{1, 0}, Ints{0, 2}, 1.5}},
      {"pad", {bools({2, 3})}, {Ints{1, 0}, Ints{0, 2}, int64_t{1}}},
      {"pad", {f32({0, 3})}, {Ints{1, 0}, Ints{1, 0}, 2.5}},
      {"slice", {f32({5, 6})}, {Ints{1, 0}, Ints{2, 3}, Ints{2, 2}}},
      {"slice", {f32({5, 6})}, {Ints{4, 5}, Ints{3, 2}, Ints{-2, -3}}},
      {"slice", {low(kI64, {5}, 9)}, {Ints{1}, Ints{3}, Ints{1}}},
      {"slice_update", {f32({5, 6}), f32({2, 3})}, {Ints{1, 0}, Ints{2, 2}}},
      {"slice_update", {f32({5, 6}), f32({3, 2})}, {Ints{4, 5}, Ints{-2, -3}}},
      {"slice_update", {low(kI64, {4}, 9), low(kI64, {2}, 5)}, {Ints{1}, Ints{1}}},
      {"slice_update", {bools({4}), bools({2})}, {Ints{1}, Ints{1}}},
      {"detach", {f32({2, 3})}},
      {"full", {}, {Ints{2, 3}, DType::kFloat32, 0.5}},
      {"full", {}, {Ints{2}, DType::kBool, int64_t{1}}},
      {"full", {}, {Ints{2}, kI64, (int64_t{1} << 60) + 1}},
      {"arange", {}, {0.25, 0.1, int64_t{7}, DType::kFloat32}},
      {"arange", {}, {int64_t{3}, int64_t{-2}, int64_t{7}, kI64}},
      {"constant", {}, {std::string("\x01\0\0\0\x02\0\0\0", 8), Ints{2}, kI32}},
      {"constant", {}, {std::string("\x01\0\x01", 3), Ints{3}, DType::kBool}},
  };
}

// Integers above 2^24 must come through whole.
const std::vector<double> kLarge = {16777217, -33554433, 2147483647, 5, -1, 123456789};

std::vector<Row> index_rows() {
  const auto index = [](const Shape& shape, std::vector<double> values) {
    return numbers(kI64, shape, std::move(values));
  };
  const Operand large32 = numbers(kI32, {6}, kLarge);
  const Operand large64 = numbers(kI64, {3, 2}, {4503599627370497.0, -1, 5, 1e15, 7, -9e15});
  return {
      {"take", {f32({4, 3}), index({2, 2}, {0, -1, 2, 2})}, {int64_t{0}}},
      {"take", {f32({4, 3}), index({}, {-2})}, {int64_t{1}}},
      {"take", {large32, numbers(kI32, {3}, {2, 0, 1})}, {int64_t{0}}},
      {"take", {large64, index({2}, {2, 0})}, {int64_t{0}}},
      {"take", {bools({5}), index({2}, {2, 0})}, {int64_t{0}}},
      {"index_from_front", {index({2}, {2, 0})}, {int64_t{3}, std::string("table")}},
      {"index_add", {f32({4, 3}), index({3}, {0, -1, 0}), f32({3, 3})}, {int64_t{0}}},
      {"index_add", {of(kF16, {2, 4}), index({2}, {0, 3}), of(kF16, {2, 2})}, {int64_t{1}}},
      {"gather", {f32({4, 3}), index({2, 3}, {0, -1, 2, 3, 1, 1})}, {int64_t{0}}},
      {"gather", {f32({4, 3}), index({2, 2}, {0, -1, 2, 1})}, {int64_t{1}}},
      {"gather", {large64, index({2, 2}, {0, 2, 1, -1})}, {int64_t{0}}},
      {"scatter", {f32({4, 3}), index({2, 3}, {0, -1, 2, 2, 1, 1}), f32({2, 3})}, {int64_t{0}}},
      {"scatter", {f32({4, 3}), index({1, 2}, {0, 2}), f32({1, 2})}, {int64_t{0}}},
      {"scatter", {large64, index({1, 2}, {0, 2}), numbers(kI64, {1, 2}, {9e15, 3})}, {int64_t{0}}},
      {"scatter_add", {f32({4, 3}), index({2, 3}, {0, 0, 2, 0, 1, 1}), f32({2, 3})}, {int64_t{0}}},
      {"scatter_add", {f32({4, 3}), index({2, 2}, {0, 0, 2, 0}), f32({2, 2})}, {int64_t{1}}},
      {"scatter_max", {f32({4, 3}), index({2, 3}, {0, 0, 2, 0, 1, 1}), f32({2, 3})}, {int64_t{0}}},
      {"scatter_min", {f32({4, 3}), index({2, 2}, {0, 0, 2, 0}), f32({2, 2})}, {int64_t{1}}},
  };
}

std::vector<Row> reduction_rows() {
  std::vector<Row> rows;
  for (const char* op : {"sum", "prod", "amax", "amin"}) {
    rows.push_back({op, {f32({3, 4, 2})}, {Ints{1}, false}});
    rows.push_back({op, {f32({3, 4, 2})}, {Ints{0, 2}, true}});
    rows.push_back({op, {of(kF16, {3, 4})}, {Ints{0, 1}, false}});
    rows.push_back({op, {low(kI64, {3, 4}, 5)}, {Ints{1}, false}});
    rows.push_back({op, {f32({})}, {Ints{}, false}});
  }
  const Operand edges = numbers(DType::kFloat32, {2, 3}, {1, NAN, INFINITY, 2, 2, 1});
  rows.push_back({"amax", {edges}, {Ints{1}, false}});
  rows.push_back({"amin", {edges}, {Ints{1}, false}});
  rows.push_back({"amax", {bools({3, 4})}, {Ints{1}, false}});
  for (const char* op : {"any", "all"}) {
    rows.push_back({op, {bools({3, 4})}, {Ints{1}, false}});
    rows.push_back({op, {low(DType::kFloat32, {3, 4}, 2)}, {Ints{0}, true}});
  }
  for (const char* op : {"argmax", "argmin"}) {
    rows.push_back({op, {f32({3, 4})}, {int64_t{1}, false}});
    rows.push_back({op, {edges}, {int64_t{1}, true}});
    rows.push_back({op, {low(kI64, {3, 4}, 3)}, {int64_t{0}, false}});
  }
  rows.push_back({"all_finite", {f32({3, 4}), f32({}), of(kF16, {5}), f32({2, 0})}});
  rows.push_back({"all_finite", {f32({3, 4}), edges}});
  rows.push_back({"all_finite", {f32({2, 0})}});
  rows.push_back({"sum", {f32({2, 0})}, {Ints{1}, false}});
  rows.push_back({"prod", {f32({2, 0})}, {Ints{1}, false}});
  rows.push_back({"cumsum", {f32({2, 3, 2, 2, 2, 2})}, {int64_t{1}}});
  rows.push_back({"cumsum", {low(kI32, {4, 3}, 9)}, {int64_t{0}}});
  for (const bool descending : {false, true}) {
    rows.push_back({"sort", {f32({3, 7})}, {int64_t{1}, descending}});
    rows.push_back({"sort", {low(kI64, {7, 3}, 3)}, {int64_t{0}, descending}});
    rows.push_back({"sort", {edges}, {int64_t{1}, descending}});
    rows.push_back({"sort", {bools({6})}, {int64_t{0}, descending}});
  }
  return rows;
}

/// The attributes of an adjoint: a shape in front.
Attrs with_shape(const Attrs& geometry, Ints shape) {
  Attrs attrs = {std::move(shape)};
  attrs.insert(attrs.end(), geometry.begin(), geometry.end());
  return attrs;
}

std::vector<Row> product_rows() {
  const Attrs plain2 = {Ints{1, 1}, Ints{1, 0}, Ints{0, 2}, Ints{1, 1}, int64_t{1}};
  const Attrs grouped2 = {Ints{2, 1}, Ints{1, 1}, Ints{1, 1}, Ints{1, 2}, int64_t{2}};
  const Attrs plain1 = {Ints{2}, Ints{1}, Ints{1}, Ints{1}, int64_t{1}};
  const Attrs plain3 = {Ints{1, 2, 1}, Ints{1, 0, 1}, Ints{0, 0, 1}, Ints{1, 1, 1}, int64_t{1}};
  return {
      {"matmul", {f32({4, 5}), f32({5, 3})}, {false, false}},
      {"matmul", {f32({5, 4}), f32({3, 5})}, {true, true}},
      {"matmul", {f32({2, 3, 4, 5}), f32({5, 3})}, {false, false}},
      {"matmul", {f32({2, 1, 4, 5}), f32({3, 3, 5})}, {false, true}},
      {"matmul", {f32({2, 1, 3, 4, 5}), f32({2, 2, 1, 5, 3})}, {false, false}},
      {"matmul", {f32({3, 0}), f32({0, 2})}, {false, false}},
      {"linear", {f32({2, 3, 5}), f32({4, 5}), f32({4})}},
      {"linear", {f32({5}), f32({4, 5}), std::nullopt}},
      {"convolution", {f32({2, 3, 6, 5}), f32({4, 3, 3, 2}), f32({4})}, plain2},
      {"convolution", {f32({2, 4, 6, 5}), f32({6, 2, 3, 2}), std::nullopt}, grouped2},
      {"convolution", {f32({2, 3, 9}), f32({4, 3, 3}), f32({4})}, plain1},
      {"convolution", {f32({1, 2, 4, 5, 3}), f32({3, 2, 2, 2, 3}), f32({3})}, plain3},
      {"convolution_input_grad",
       {f32({2, 4, 5, 6}), f32({4, 3, 3, 2})},
       with_shape(plain2, {2, 3, 6, 5})},
      {"convolution_weight_grad",
       {f32({2, 4, 5, 6}), f32({2, 3, 6, 5})},
       with_shape(plain2, {4, 3, 3, 2})},
      {"convolution_input_grad",
       {f32({2, 6, 3, 5}), f32({6, 2, 3, 2})},
       with_shape(grouped2, {2, 4, 6, 5})},
      {"convolution_weight_grad",
       {f32({2, 6, 3, 5}), f32({2, 4, 6, 5})},
       with_shape(grouped2, {6, 2, 3, 2})},
      {"convolution_input_grad", {f32({2, 4, 5}), f32({4, 3, 3})}, with_shape(plain1, {2, 3, 9})},
      {"convolution_weight_grad", {f32({2, 4, 5}), f32({2, 3, 9})}, with_shape(plain1, {4, 3, 3})},
      {"convolution_input_grad",
       {f32({1, 3, 4, 2, 3}), f32({3, 2, 2, 2, 3})},
       with_shape(plain3, {1, 2, 4, 5, 3})},
      {"convolution_weight_grad",
       {f32({1, 3, 4, 2, 3}), f32({1, 2, 4, 5, 3})},
       with_shape(plain3, {3, 2, 2, 2, 3})},
  };
}

std::vector<Row> pooling_rows() {
  const Attrs max2 = {Ints{3, 2}, Ints{2, 1}, Ints{1, 0}, Ints{1, 2}, true};
  const Attrs average2 = {Ints{3, 2}, Ints{2, 2}, Ints{1, 1}, true, false, int64_t{0}};
  const Attrs average3 = {Ints{2, 2, 2}, Ints{2, 1, 2}, Ints{0, 1, 0}, false, true, int64_t{0}};
  return {
      {"max_pool", {f32({2, 3, 7, 6})}, max2},
      {"max_pool", {f32({2, 3, 9})}, {Ints{2}, Ints{2}, Ints{1}, Ints{1}, false}},
      {"max_pool_grad",
       {f32({1, 1, 2, 2}), numbers(kI32, {1, 1, 2, 2}, {5, 5, 0, 11})},
       {Ints{1, 1, 3, 4}}},
      {"avg_pool", {f32({2, 3, 7, 6})}, average2},
      {"avg_pool", {f32({2, 3, 5})}, {Ints{2}, Ints{2}, Ints{0}, false, true, int64_t{3}}},
      {"avg_pool", {f32({1, 2, 4, 3, 4})}, average3},
      {"avg_pool_grad", {f32({2, 3, 4, 4})}, with_shape(average2, {2, 3, 7, 6})},
      {"avg_pool_grad", {f32({1, 2, 2, 4, 2})}, with_shape(average3, {1, 2, 4, 3, 4})},
  };
}

std::vector<Row> network_rows() {
  const Operand target = numbers(kI64, {4}, {2, -100, 0, 4});
  return {
      {"softmax", {f32({3, 5})}, {int64_t{1}}},
      {"softmax", {of(kF16, {3, 5})}, {int64_t{0}}},
      {"softmax",
       {numbers(DType::kFloat32, {2, 2}, {-INFINITY, -INFINITY, -INFINITY, 0})},
       {int64_t{1}}},
      {"log_softmax", {f32({3, 5})}, {int64_t{1}}},
      {"softmax_grad", {f32({3, 5}), f32({3, 5}, Fill::kPositive)}, {int64_t{1}}},
      {"log_softmax_grad", {f32({3, 5}), f32({3, 5})}, {int64_t{1}}},
      {"layer_norm", {f32({4, 3, 5}), f32({3, 5}), f32({3, 5})}, {int64_t{2}, 1e-5}},
      {"layer_norm", {f32({4, 5}), std::nullopt, std::nullopt}, {int64_t{1}, 1e-5}},
      {"layer_norm_grad",
       {f32({4, 5}), f32({4, 5}), f32({4}), f32({4}, Fill::kPositive), f32({5})},
       {int64_t{1}}},
      {"batch_norm", {f32({4, 3, 5}), f32({3}), f32({3})}, {1e-5}},
      {"batch_norm_grad",
       {f32({4, 3, 2}), f32({4, 3, 2}), f32({3}), f32({3}, Fill::kPositive), std::nullopt}},
      {"cross_entropy",
       {f32({4, 5}), target, f32({5}, Fill::kPositive)},
       {int64_t{-100}, 0.1, std::string("mean")}},
      {"cross_entropy", {f32({4, 5}), target}, {int64_t{-100}, 0.0, std::string("none")}},
      {"cross_entropy_grad",
       {f32({}), f32({4, 5}), target, f32({4})},
       {int64_t{-100}, 0.0, std::string("mean")}},
      {"cross_entropy_grad",
       {f32({4}), f32({4, 5}), target, f32({4}), f32({5}, Fill::kPositive)},
       {int64_t{-100}, 0.1, std::string("none")}},
      {"attention", {f32({2, 2, 4, 3}), f32({2, 2, 5, 3}), f32({2, 2, 5, 2})}, {false, 0.5}},
      {"attention", {f32({4, 3}), f32({4, 3}), f32({4, 3}), bools({4, 4})}, {true, 0.5}},
      {"attention", {f32({2, 4, 3}), f32({2, 4, 3}), f32({2, 4, 3}), f32({1, 4})}, {false, 0.5}},
      {"attention_grad",
       {f32({2, 4, 3}), f32({2, 4, 3}), f32({2, 4, 3}), f32({2, 4, 3}), f32({2, 4, 3}),
        f32({2, 4}, Fill::kPositive), bools({4, 4})},
       {true, 0.5}},
  };
}

// 3 steps of 2 sequences, 2 units.
std::vector<Row> recurrent_rows() {
  const auto sequence = [](int64_t blocks) { return f32({3, 2, 2 * blocks}); };
  const auto state = f32({2, 2});
  return {
      {"lstm_layer", {sequence(4), state, state, f32({8, 2})}, {false}},
      {"lstm_layer", {sequence(4), state, state, f32({8, 2})}, {true}},
      {"lstm_layer_grad",
       {sequence(4), sequence(1), state, f32({8, 2}), sequence(1), state, state, sequence(4),
        sequence(1)},
       {false}},
      {"gru_layer", {sequence(3), state, f32({6, 2}), f32({6})}, {false}},
      {"gru_layer_grad",
       {sequence(4), sequence(1), state, f32({6, 2}), sequence(1), state, sequence(4)},
       {true}},
      {"rnn_layer", {sequence(1), state, f32({2, 2})}, {false, true}},
      {"rnn_layer", {sequence(1), state, f32({2, 2})}, {true, false}},
      {"rnn_layer_grad", {sequence(1), f32({2, 2}), sequence(1), state}, {false, false}},
  };
}

std::vector<Row> random_rows() {
  return {
      {"uniform", {state()}, {Ints{3, 11}, DType::kFloat32, int64_t{5}}},
      {"uniform", {state()}, {Ints{9}, kF16, int64_t{0}}},
      {"uniform", {state()}, {Ints{9}, kBF16, int64_t{0}}},
      {"normal", {state()}, {Ints{3, 11}, DType::kFloat32, int64_t{5}}},
      {"random_int", {state()}, {int64_t{-3}, int64_t{9}, Ints{7}, kI64, int64_t{2}}},
      {"dropout", {f32({3, 11}), state()}, {0.3, int64_t{4}}},
      {"dropout", {f32({5}), state()}, {1.0, int64_t{0}}},
  };
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (const auto part : {unary_rows, binary_rows, shape_rows, index_rows, reduction_rows,
                          product_rows, pooling_rows, network_rows, recurrent_rows, random_rows}) {
    for (Row& row : part()) rows.push_back(std::move(row));
  }
  return rows;
}

TEST(every_lowering_equals_the_cpu) {
  for (const Row& row : all_rows()) check_node(__FILE__, __LINE__, row.op, row.inputs, row.attrs);
}

// Their kernels or rules are functions of the language above, which a step on metal refuses or
// has run before it is compiled.
const std::set<std::string> kOfTheHost = {"custom", "custom_impure", "custom_grad",
                                          "custom_impure_grad", "with_gradient"};

TEST(every_operation_has_a_row) {
  std::set<std::string> with_row = kOfTheHost;
  for (const Row& row : all_rows()) with_row.insert(row.op);
  int without_rule = 0;
  for (const ir::Op& op : ops::all()) {
    without_rule += op.decompose == nullptr ? 1 : 0;
    if (!with_row.contains(std::string(op.name))) {
      fail(__FILE__, __LINE__, "no row for operation " + std::string(op.name));
    }
  }
  std::printf("metal: %zu operations lowered in %zu cases; %d of %zu have no decomposition\n",
              with_row.size() - kOfTheHost.size(), all_rows().size(), without_rule,
              ops::all().size());
}

// Draws are the cpu's to the bit, also where a counter passes 2^32.
TEST(draws_are_bit_equal) {
  for (const Row& row : random_rows()) {
    const ir::Graph graph = graph_of(row.op, row.inputs, row.attrs);
    const auto expected = run_on(Device::kCpu, graph, row.inputs);
    const auto found = run_on(Device::kMetal, graph, row.inputs);
    for (size_t i = 0; i < expected.size(); ++i) {
      CHECK(std::memcmp(expected[i]->data(), found[i]->data(),
                        static_cast<size_t>(expected[i]->size_bytes())) == 0);
    }
  }
}

}  // namespace
}  // namespace lucid::testing

// Operations with one operand, casts, and the gradients of activations.
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "loops.h"
#include "ops.h"

namespace metalhost {
namespace {

using FloatFunction = float (*)(float);
using IntegerFunction = int64_t (*)(int64_t);

// Largest and smallest have no say on NaN in the documentation; x > 0 is false for it.
float relu(float x) { return x > 0 ? x : 0.0F; }
float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }
float sign(float x) { return x > 0 ? 1.0F : x < 0 ? -1.0F : 0.0F; }

const std::map<std::string, FloatFunction>& float_only() {
  static const std::map<std::string, FloatFunction> functions = {
      {"exponent", [](float x) { return std::exp(x); }},
      {"exponentBase2", [](float x) { return std::exp2(x); }},
      {"exponentBase10", [](float x) { return std::pow(10.0F, x); }},
      {"logarithm", [](float x) { return std::log(x); }},
      {"logarithmBase2", [](float x) { return std::log2(x); }},
      {"logarithmBase10", [](float x) { return std::log10(x); }},
      {"squareRoot", [](float x) { return std::sqrt(x); }},
      {"reciprocalSquareRoot", [](float x) { return 1.0F / std::sqrt(x); }},
      {"reverseSquareRoot", [](float x) { return 1.0F / std::sqrt(x); }},
      {"reciprocal", [](float x) { return 1.0F / x; }},
      {"ceil", [](float x) { return std::ceil(x); }},
      {"floor", [](float x) { return std::floor(x); }},
      {"round", [](float x) { return std::round(x); }},
      {"rint", [](float x) { return std::nearbyint(x); }},
      {"truncate", [](float x) { return std::trunc(x); }},
      {"sin", [](float x) { return std::sin(x); }},
      {"cos", [](float x) { return std::cos(x); }},
      {"tan", [](float x) { return std::tan(x); }},
      {"sinh", [](float x) { return std::sinh(x); }},
      {"cosh", [](float x) { return std::cosh(x); }},
      {"tanh", [](float x) { return std::tanh(x); }},
      {"asin", [](float x) { return std::asin(x); }},
      {"acos", [](float x) { return std::acos(x); }},
      {"atan", [](float x) { return std::atan(x); }},
      {"asinh", [](float x) { return std::asinh(x); }},
      {"acosh", [](float x) { return std::acosh(x); }},
      {"atanh", [](float x) { return std::atanh(x); }},
      {"erf", [](float x) { return std::erf(x); }},
      {"sigmoid", sigmoid},
  };
  return functions;
}

struct Arithmetic {
  FloatFunction on_floats;
  IntegerFunction on_integers;
};

const std::map<std::string, Arithmetic>& arithmetic() {
  static const std::map<std::string, Arithmetic> functions = {
      {"identity", {[](float x) { return x; }, [](int64_t x) { return x; }}},
      {"absolute",
       {[](float x) { return std::fabs(x); }, [](int64_t x) { return x < 0 ? -x : x; }}},
      {"negative", {[](float x) { return -x; }, [](int64_t x) { return -x; }}},
      {"square", {[](float x) { return x * x; }, [](int64_t x) { return x * x; }}},
      {"sign", {sign, [](int64_t x) { return int64_t{x > 0} - int64_t{x < 0}; }}},
      {"reLU", {relu, [](int64_t x) { return x > 0 ? x : 0; }}},
  };
  return functions;
}

const std::map<std::string, bool (*)(float)>& predicates() {
  static const std::map<std::string, bool (*)(float)> functions = {
      {"not", [](float x) { return x == 0; }},
      {"isInfinite", [](float x) { return std::isinf(x); }},
      {"isFinite", [](float x) { return std::isfinite(x); }},
      {"isNaN", [](float x) { return std::isnan(x); }},
      {"signbit", [](float x) { return std::signbit(x); }},
  };
  return functions;
}

template <class Function>
Array map_floats(const Array& operand, const Type& type, Function function) {
  std::vector<float> values = operand.floats();
  for (float& value : values) value = function(value);
  return Array::from_floats(type, values);
}

template <class Function>
Array map_integers(const Array& operand, const Type& type, Function function) {
  std::vector<int64_t> values = operand.integers();
  for (int64_t& value : values) value = function(value);
  return Array::from_integers(type, values);
}

bool is_rounding(const std::string& op) {
  return op == "floor" || op == "ceil" || op == "round" || op == "rint" || op == "truncate";
}

Op on_bits(const std::string& op, const Type& operand) {
  if (is_float(operand.data_type)) {
    refuse(op, "operand #0 must be tensor of integer values, but got '" + text_of(operand) + "'");
  }
  const int64_t mask =
      size_of(operand.data_type) == 8 ? -1 : (int64_t{1} << (8 * size_of(operand.data_type))) - 1;
  const bool counts = op == "bitwisePopulationCount";
  return single(op, operand, [=](Inputs in) {
    return map_integers(in[0], operand, [=](int64_t value) {
      return counts ? int64_t{std::popcount(static_cast<uint64_t>(value & mask))} : ~value;
    });
  });
}

// Combines operands of equal shapes, element by element, in float32.
template <class Function>
Op same_shape(const std::string& op, const Type& grad, const Type& source, Function function) {
  require_float(op, grad);
  require_same_type(op, grad, source);
  if (grad.shape != source.shape) refuse(op, "requires gradient and source of one shape");
  return single(op, grad, [=](Inputs in) {
    std::vector<float> values = in[0].floats();
    const std::vector<float> sources = in[1].floats();
    for (size_t i = 0; i < values.size(); ++i) values[i] = function(values[i], sources[i]);
    return Array::from_floats(grad, values);
  });
}

}  // namespace

Op unary(const std::string& op, const Type& operand) {
  if (op == "bitwiseNOT" || op == "bitwisePopulationCount") return on_bits(op, operand);
  if (const auto found = predicates().find(op); found != predicates().end()) {
    const Type type{DataType::kBool, operand.shape};
    return single(op, type, [=, function = found->second](Inputs in) {
      return map_floats(in[0], type, [=](float x) { return function(x) ? 1.0F : 0.0F; });
    });
  }
  if (const auto found = arithmetic().find(op); found != arithmetic().end()) {
    if (operand.data_type == DataType::kBool && op != "identity") {
      refuse(op, "operand #0 must be tensor of numbers, but got '" + text_of(operand) + "'");
    }
    return single(op, operand, [=, functions = found->second](Inputs in) {
      return is_float(operand.data_type) ? map_floats(in[0], operand, functions.on_floats)
                                         : map_integers(in[0], operand, functions.on_integers);
    });
  }
  const auto found = float_only().find(op);
  if (found == float_only().end()) refuse(op, "is not known to the double");
  if (is_rounding(op) && !is_float(operand.data_type)) {
    fail_assertion("MPSLibrary.mm", "Function " + op + "Op_" + name_of(operand.data_type) +
                                        " was not found in the library");
  }
  require_float(op, operand);
  return single(op, operand, [=, function = found->second](Inputs in) {
    return map_floats(in[0], operand, function);
  });
}

Op cast(const Type& operand, DataType target) {
  const Type type{target, operand.shape};
  return single("cast", type, [=](Inputs in) {
    return is_float(operand.data_type) ? Array::from_floats(type, in[0].floats())
                                       : Array::from_integers(type, in[0].integers());
  });
}

Op reinterpret_cast_op(const Type& operand, DataType target) {
  if (operand.shape.empty()) refuse("reinterpret_cast", "does not take a tensor of rank 0");
  Type type{target, operand.shape};
  const int64_t last_bytes = operand.shape.back() * size_of(operand.data_type);
  if (last_bytes % size_of(target) != 0) {
    refuse("reinterpret_cast", "cannot view '" + text_of(operand) + "' as " + name_of(target));
  }
  type.shape.back() = last_bytes / size_of(target);
  return single("reinterpret_cast", type, [=](Inputs in) { return in[0].as(type); });
}

Op leaky_relu(const Type& operand, double alpha) {
  require_float("leaky_relu", operand);
  const auto slope = static_cast<float>(alpha);
  return single("leaky_relu", operand, [=](Inputs in) {
    return map_floats(in[0], operand, [=](float x) { return x > 0 ? x : slope * x; });
  });
}

Op relu_grad(const Type& grad, const Type& source) {
  return same_shape("relu_grad", grad, source, [](float g, float x) { return x > 0 ? g : 0.0F; });
}

Op sigmoid_grad(const Type& grad, const Type& source) {
  return same_shape("sigmoid_grad", grad, source, [](float g, float x) {
    const float y = sigmoid(x);
    return g * y * (1.0F - y);
  });
}

Op leaky_relu_grad(const Type& grad, const Type& source, const Type& alpha) {
  require_same_type("leaky_relu_grad", grad, alpha);
  if (num_elements(alpha.shape) != 1) refuse("leaky_relu_grad", "requires one alpha");
  Op op = same_shape("leaky_relu_grad", grad, source, [](float g, float) { return g; });
  op.evaluate = [=](Inputs in) {
    std::vector<float> values = in[0].floats();
    const std::vector<float> sources = in[1].floats();
    const float slope = in[2].floats()[0];
    for (size_t i = 0; i < values.size(); ++i) {
      if (!(sources[i] > 0)) values[i] *= slope;
    }
    return std::vector<Array>{Array::from_floats(grad, values)};
  };
  return op;
}

}  // namespace metalhost

// Operations with two or three operands, which broadcast as in NumPy.
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

#include "loops.h"
#include "ops.h"

namespace metalhost {
namespace {

using FloatFunction = float (*)(float, float);
using IntegerFunction = int64_t (*)(int64_t, int64_t);

// Arithmetic that overflows wraps; the types below 64 bits wrap when they are stored.
int64_t add(int64_t a, int64_t b) { return static_cast<int64_t>(uint64_t(a) + uint64_t(b)); }
int64_t subtract(int64_t a, int64_t b) { return static_cast<int64_t>(uint64_t(a) - uint64_t(b)); }
int64_t multiply(int64_t a, int64_t b) { return static_cast<int64_t>(uint64_t(a) * uint64_t(b)); }

// Division by zero is not documented for integers.
int64_t divide(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? subtract(0, a) : a / b; }
int64_t remainder(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
int64_t floor_modulo(int64_t a, int64_t b) {
  const int64_t rest = remainder(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
int64_t power(int64_t a, int64_t b) {
  return static_cast<int64_t>(std::pow(static_cast<double>(a), static_cast<double>(b)));
}

float floor_modulo(float a, float b) {
  if (b == 0) return 0.0F;
  const float rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
float smallest(float a, float b) {
  return std::isnan(a) || std::isnan(b) ? a + b : std::fmin(a, b);
}
float largest(float a, float b) { return std::isnan(a) || std::isnan(b) ? a + b : std::fmax(a, b); }

struct Arithmetic {
  FloatFunction on_floats;
  IntegerFunction on_integers;  // null: floats only
};

const std::map<std::string, Arithmetic>& arithmetic() {
  static const std::map<std::string, Arithmetic> functions = {
      {"addition", {[](float a, float b) { return a + b; }, add}},
      {"subtraction", {[](float a, float b) { return a - b; }, subtract}},
      {"multiplication", {[](float a, float b) { return a * b; }, multiply}},
      {"division", {[](float a, float b) { return a / b; }, divide}},
      {"divisionNoNaN", {[](float a, float b) { return b == 0 ? 0.0F : a / b; }, divide}},
      {"modulo", {[](float a, float b) { return std::fmod(a, b); }, remainder}},
      {"floorModulo", {floor_modulo, floor_modulo}},
      {"power", {[](float a, float b) { return std::pow(a, b); }, power}},
      {"atan2", {[](float a, float b) { return std::atan2(a, b); }, nullptr}},
      {"minimum",
       {[](float a, float b) { return std::fmin(a, b); },
        [](int64_t a, int64_t b) { return a < b ? a : b; }}},
      {"maximum",
       {[](float a, float b) { return std::fmax(a, b); },
        [](int64_t a, int64_t b) { return a > b ? a : b; }}},
      {"minimumWithNaNPropagation", {smallest, [](int64_t a, int64_t b) { return a < b ? a : b; }}},
      {"maximumWithNaNPropagation", {largest, [](int64_t a, int64_t b) { return a > b ? a : b; }}},
  };
  return functions;
}

struct Predicate {
  bool (*on_floats)(float, float);
  bool (*on_integers)(int64_t, int64_t);
};

const std::map<std::string, Predicate>& predicates() {
  static const std::map<std::string, Predicate> functions = {
      {"equal",
       {[](float a, float b) { return a == b; }, [](int64_t a, int64_t b) { return a == b; }}},
      {"notEqual",
       {[](float a, float b) { return a != b; }, [](int64_t a, int64_t b) { return a != b; }}},
      {"lessThan",
       {[](float a, float b) { return a < b; }, [](int64_t a, int64_t b) { return a < b; }}},
      {"lessThanOrEqualTo",
       {[](float a, float b) { return a <= b; }, [](int64_t a, int64_t b) { return a <= b; }}},
      {"greaterThan",
       {[](float a, float b) { return a > b; }, [](int64_t a, int64_t b) { return a > b; }}},
      {"greaterThanOrEqualTo",
       {[](float a, float b) { return a >= b; }, [](int64_t a, int64_t b) { return a >= b; }}},
      {"logicalAND",
       {[](float a, float b) { return a != 0 && b != 0; },
        [](int64_t a, int64_t b) { return a != 0 && b != 0; }}},
      {"logicalOR",
       {[](float a, float b) { return a != 0 || b != 0; },
        [](int64_t a, int64_t b) { return a != 0 || b != 0; }}},
      {"logicalNAND",
       {[](float a, float b) { return a == 0 || b == 0; },
        [](int64_t a, int64_t b) { return a == 0 || b == 0; }}},
      {"logicalNOR",
       {[](float a, float b) { return a == 0 && b == 0; },
        [](int64_t a, int64_t b) { return a == 0 && b == 0; }}},
      {"logicalXOR",
       {[](float a, float b) { return (a != 0) != (b != 0); },
        [](int64_t a, int64_t b) { return (a != 0) != (b != 0); }}},
      {"logicalXNOR",
       {[](float a, float b) { return (a != 0) == (b != 0); },
        [](int64_t a, int64_t b) { return (a != 0) == (b != 0); }}},
  };
  return functions;
}

const std::map<std::string, IntegerFunction>& bitwise() {
  static const std::map<std::string, IntegerFunction> functions = {
      {"bitwiseAND", [](int64_t a, int64_t b) { return a & b; }},
      {"bitwiseOR", [](int64_t a, int64_t b) { return a | b; }},
      {"bitwiseXOR", [](int64_t a, int64_t b) { return a ^ b; }},
      {"bitwiseLeftShift",
       [](int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) << b); }},
      {"bitwiseRightShift", [](int64_t a, int64_t b) { return a >> b; }},
  };
  return functions;
}

// The operand's values laid out as the result's.
template <class T>
std::vector<T> spread(const std::vector<T>& values, const Shape& source, const Shape& target) {
  if (source == target) return values;
  if (values.size() == 1) {
    return std::vector<T>(static_cast<size_t>(num_elements(target)), values[0]);
  }
  const std::vector<int64_t> offsets = broadcast_offsets(source, target);
  std::vector<T> result(offsets.size());
  for (size_t i = 0; i < offsets.size(); ++i) result[i] = values[static_cast<size_t>(offsets[i])];
  return result;
}

std::vector<float> floats_as(const Array& operand, const Shape& shape) {
  return spread(operand.floats(), operand.shape(), shape);
}

std::vector<int64_t> integers_as(const Array& operand, const Shape& shape) {
  return spread(operand.integers(), operand.shape(), shape);
}

template <class Function>
Array zip_floats(Inputs in, const Type& type, Function function) {
  std::vector<float> values = floats_as(in[0], type.shape);
  const std::vector<float> others = floats_as(in[1], type.shape);
  for (size_t i = 0; i < values.size(); ++i) values[i] = function(values[i], others[i]);
  return Array::from_floats(type, values);
}

template <class Function>
Array zip_integers(Inputs in, const Type& type, Function function) {
  std::vector<int64_t> values = integers_as(in[0], type.shape);
  const std::vector<int64_t> others = integers_as(in[1], type.shape);
  for (size_t i = 0; i < values.size(); ++i) values[i] = function(values[i], others[i]);
  return Array::from_integers(type, values);
}

Op on_bits(const std::string& op, IntegerFunction function, const Type& lhs, const Type& type) {
  if (is_float(lhs.data_type)) {
    refuse(op, "operand #0 must be tensor of integer values, but got '" + text_of(lhs) + "'");
  }
  const bool shifts = op == "bitwiseLeftShift" || op == "bitwiseRightShift";
  // Counts are taken modulo the bit width; an unsigned value was widened with zeros.
  const int64_t mask = 8 * size_of(lhs.data_type) - 1;
  const bool is_logical = op == "bitwiseRightShift" && lhs.data_type == DataType::kUInt64;
  return single(op, type, [=](Inputs in) {
    return zip_integers(in, type, [=](int64_t a, int64_t b) {
      if (!shifts) return function(a, b);
      if (is_logical) return static_cast<int64_t>(static_cast<uint64_t>(a) >> (b & mask));
      return function(a, b & mask);
    });
  });
}

}  // namespace

Op binary(const std::string& op, const Type& lhs, const Type& rhs) {
  require_same_type(op, lhs, rhs);
  Type type{lhs.data_type, broadcast_shape(op, lhs.shape, rhs.shape)};
  if (const auto found = bitwise().find(op); found != bitwise().end()) {
    return on_bits(op, found->second, lhs, type);
  }
  if (lhs.data_type == DataType::kUInt64) refuse(op, "on ui64 is not known to the double");
  if (const auto found = predicates().find(op); found != predicates().end()) {
    type.data_type = DataType::kBool;
    return single(op, type, [=, functions = found->second](Inputs in) {
      return is_float(lhs.data_type) ? zip_floats(in, type, functions.on_floats)
                                     : zip_integers(in, type, functions.on_integers);
    });
  }
  const auto found = arithmetic().find(op);
  if (found == arithmetic().end()) refuse(op, "is not known to the double");
  if (lhs.data_type == DataType::kBool) {
    refuse(op, "operand #0 must be tensor of numbers, but got '" + text_of(lhs) + "'");
  }
  if (found->second.on_integers == nullptr) require_float(op, lhs);
  return single(op, type, [=, functions = found->second](Inputs in) {
    return is_float(type.data_type) ? zip_floats(in, type, functions.on_floats)
                                    : zip_integers(in, type, functions.on_integers);
  });
}

Op select(const Type& predicate, const Type& when_true, const Type& when_false) {
  if (predicate.data_type != DataType::kBool) {
    refuse("select",
           "operand #0 must be tensor of 1-bit values, but got '" + text_of(predicate) + "'");
  }
  require_same_type("select", when_true, when_false);
  const Shape values = broadcast_shape("select", when_true.shape, when_false.shape);
  const Type type{when_true.data_type, broadcast_shape("select", predicate.shape, values)};
  return single("select", type, [=](Inputs in) {
    const std::vector<int64_t> chosen = integers_as(in[0], type.shape);
    const Array yes = take(in[1], type, broadcast_offsets(in[1].shape(), type.shape));
    std::vector<uint8_t> bytes = yes.bytes();
    const Array no = take(in[2], type, broadcast_offsets(in[2].shape(), type.shape));
    const auto size = static_cast<size_t>(size_of(type.data_type));
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (chosen[i / size] == 0) bytes[i] = no.bytes()[i];
    }
    return Array(type, std::move(bytes));
  });
}

Op clamp(const Type& operand, const Type& low, const Type& high) {
  require_same_type("clamp", operand, low);
  require_same_type("clamp", operand, high);
  const Shape limits = broadcast_shape("clamp", low.shape, high.shape);
  const Type type{operand.data_type, broadcast_shape("clamp", operand.shape, limits)};
  return single("clamp", type, [=](Inputs in) {
    if (!is_float(type.data_type)) {
      std::vector<int64_t> values = integers_as(in[0], type.shape);
      const std::vector<int64_t> lows = integers_as(in[1], type.shape);
      const std::vector<int64_t> highs = integers_as(in[2], type.shape);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = std::min(std::max(values[i], lows[i]), highs[i]);
      }
      return Array::from_integers(type, values);
    }
    std::vector<float> values = floats_as(in[0], type.shape);
    const std::vector<float> lows = floats_as(in[1], type.shape);
    const std::vector<float> highs = floats_as(in[2], type.shape);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::fmin(std::fmax(values[i], lows[i]), highs[i]);
    }
    return Array::from_floats(type, values);
  });
}

}  // namespace metalhost

#include "runtime/dispatch/promote.h"

#include <array>
#include <optional>

#include "runtime/process.h"

namespace lucid::runtime {
namespace {

int dtype_class(DType dtype) {
  if (is_floating(dtype)) return 2;
  return dtype == DType::kBool ? 0 : 1;
}

DType number_dtype(const Number& number) {
  if (std::holds_alternative<bool>(number)) return DType::kBool;
  if (std::holds_alternative<int64_t>(number)) return DType::kInt64;
  return process_state().default_dtype.load(std::memory_order_relaxed);
}

}  // namespace

DType common_dtype(std::span<const Operand> operands, bool to_float) {
  // By rank of the source: tensors with axes, 0-d tensors, numbers.
  std::array<std::optional<DType>, 3> found;
  const auto meet = [&](size_t source, DType dtype) {
    found[source] = found[source] ? promote(*found[source], dtype) : dtype;
  };
  for (const Operand& operand : operands) {
    if (const ir::ValueType* type = type_of(operand)) {
      meet(type->shape.rank() > 0 ? 0 : 1, type->dtype);
    } else if (const auto* number = std::get_if<Number>(&operand)) {
      meet(2, number_dtype(*number));
    }
  }
  std::optional<DType> result;
  for (const auto& dtype : found) {
    if (dtype && (!result || dtype_class(*dtype) > dtype_class(*result))) result = dtype;
  }
  const DType common = result.value_or(process_state().default_dtype.load());
  if (to_float && !is_floating(common)) return process_state().default_dtype.load();
  return common;
}

}  // namespace lucid::runtime

#include "runtime/dispatch/autocast.h"

#include <optional>

#include "ops/registry.h"
#include "runtime/process.h"

namespace lucid::runtime {
namespace {

const AutocastMode& mode_of(Device device) {
  return thread_state().autocast[static_cast<size_t>(device)];
}

// The dtype of an operand that mixed precision may cast.
std::optional<DType> castable_dtype(const Operand& operand) {
  const ir::ValueType* type = type_of(operand);
  if (type == nullptr || !is_floating(type->dtype) || type->dtype == DType::kFloat64) return {};
  return type->dtype;
}

}  // namespace

bool casts_operands(const ir::Op& op, Device device) {
  return op.autocast != ir::Autocast::kNone && mode_of(device).enabled;
}

std::vector<Operand> autocast_operands(const ir::Op& op, std::span<const Operand> operands,
                                       Device device) {
  static const ir::Op& cast = ops::get("cast");
  std::vector<Operand> result(operands.begin(), operands.end());
  const DType target = op.autocast == ir::Autocast::kLow ? mode_of(device).dtype : DType::kFloat32;
  for (Operand& operand : result) {
    const std::optional<DType> dtype = castable_dtype(operand);
    if (!dtype || *dtype == target) continue;
    const std::vector<Operand> source = {operand};
    operand = dispatch(cast, source, {target}).front();
  }
  return result;
}

}  // namespace lucid::runtime

#include "runtime/autograd/eager_builder.h"

#include <string>

#include "runtime/dispatch/dispatch.h"
#include "support/errors.h"

namespace lucid::runtime {

ir::ValueId EagerBuilder::add(Variable variable) {
  if (variables_.empty()) device_ = variable.value.device;
  variables_.push_back(std::move(variable));
  return ir::ValueId{static_cast<uint32_t>(variables_.size() - 1)};
}

std::vector<ir::ValueId> EagerBuilder::emit(const ir::Op& op,
                                            std::vector<std::optional<ir::ValueId>> inputs,
                                            ir::Attrs attrs) {
  std::vector<Operand> operands;
  operands.reserve(inputs.size());
  for (const auto& input : inputs) {
    if (!input) {
      operands.emplace_back();
      continue;
    }
    const Variable& operand = variable(*input);
    if (operand.value.buffer == nullptr && !operand.value.is_symbolic()) {
      throw Error(ErrorKind::kInternal, std::string(op.name) +
                                            ": a gradient rule reads a value that its "
                                            "operation did not declare in vjp_reads");
    }
    operands.emplace_back(operand);
  }
  std::vector<ir::ValueId> ids;
  for (Variable& output : dispatch(op, operands, std::move(attrs), device_)) {
    ids.push_back(add(output));
  }
  return ids;
}

}  // namespace lucid::runtime

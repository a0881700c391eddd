#include "runtime/autograd/decompose.h"

#include <optional>
#include <string>
#include <utility>

#include "runtime/autograd/eager_builder.h"
#include "runtime/process.h"
#include "support/errors.h"

namespace lucid::runtime {
namespace {

std::optional<Variable> as_variable(const Operand& operand) {
  if (std::holds_alternative<std::monostate>(operand)) return std::nullopt;
  if (const auto* tensor = std::get_if<TensorRef>(&operand)) return (*tensor)->operand();
  if (const auto* variable = std::get_if<Variable>(&operand)) return *variable;
  throw Error(ErrorKind::kType, "decompose: an input is no tensor; pass tensors and None");
}

}  // namespace

std::vector<Variable> decompose(const ir::Op& op, std::span<const Operand> operands,
                                ir::Attrs attrs) {
  if (op.decompose == nullptr) {
    throw Error(ErrorKind::kUser, "decompose: the operation has no simpler form: " +
                                      std::string(op.name) + "; op_info tells which have one");
  }
  const GradMode no_gradients(false);
  const AutocastOff no_autocast;
  EagerBuilder builder;
  ir::Node node{.op = &op,
                .inputs = {},
                .outputs = {},
                .attrs = std::move(attrs),
                .location = nullptr,
                .stop_gradient = false};
  std::vector<std::optional<ir::ValueType>> types;
  for (const Operand& operand : operands) {
    std::optional<Variable> input = as_variable(operand);
    types.push_back(input ? std::optional(input->value.type) : std::nullopt);
    node.inputs.push_back(input ? std::optional(builder.add(*std::move(input))) : std::nullopt);
  }
  ir::infer(op, types, node.attrs, nullptr);  // refuses what the operation itself refuses
  std::vector<Variable> outputs;
  for (const ir::ValueId id : op.decompose(builder, node)) outputs.push_back(builder.variable(id));
  return outputs;
}

}  // namespace lucid::runtime

// Dispatch: the one way an operation is called. It runs the operation, or records it while the
// thread's recorder is on, and ties the result into the gradient tape.
#pragma once

#include <span>
#include <variant>
#include <vector>

#include "ir/graph.h"
#include "runtime/generator.h"
#include "runtime/tensor/tensor.h"

namespace lucid::runtime {

/// A number of the language above; it takes the dtype of the tensors beside it.
using Number = std::variant<bool, int64_t, double>;

/// One input of a call: absent, a tensor, a variable without one, a number, or a generator.
using Operand = std::variant<std::monostate, TensorRef, Variable, Number, GeneratorRef>;

/// Calls an operation; attributes follow its schema.
/// The result is on the device of the operands, or on `home` where no operand is a tensor.
/// Throws what infer and the kernel throw, DeviceError for operands on two devices.
std::vector<Variable> dispatch(const ir::Op& op, std::span<const Operand> operands, ir::Attrs attrs,
                               Device home = Device::kCpu);

/// As dispatch, for an operation of variables with one output.
Variable dispatch_one(const ir::Op& op, std::initializer_list<Variable> inputs,
                      ir::Attrs attrs = {});

/// A view of `base`: reshape, permute or slice, tied to the base for writing.
TensorRef dispatch_view(const ir::Op& op, const TensorRef& base, ir::Attrs attrs);

/// The type of an operand that is a tensor or variable; null for others.
const ir::ValueType* type_of(const Operand& operand);

/// 0-d value of that dtype.
Value number_value(const Number& number, DType dtype, Device device);

/// The value 1 for a type of one element: one buffer a dtype and device for the process, so that the
/// seed of `loss.backward()` is known without being read.
Value unit_value(const ir::ValueType& type, Device device);

}  // namespace lucid::runtime

// A Builder that executes: the eager engine runs gradient rules through it.
#pragma once

#include <deque>
#include <vector>

#include "ops/builder.h"
#include "runtime/tensor/variable.h"

namespace lucid::runtime {

class EagerBuilder final : public ops::Builder {
 public:
  /// Adds a value. One without contents (not saved) has a type only; reading it is an error.
  ir::ValueId add(Variable variable);
  const Variable& variable(ir::ValueId id) const { return variables_[index(id)]; }

  std::vector<ir::ValueId> emit(const ir::Op& op, std::vector<std::optional<ir::ValueId>> inputs,
                                ir::Attrs attrs) override;
  const ir::ValueType& type(ir::ValueId id) const override { return variable(id).value.type; }

 private:
  std::deque<Variable> variables_;  // references stay valid while it grows
  Device device_ = Device::kCpu;    // of the first value: what is made of numbers goes there
};

}  // namespace lucid::runtime

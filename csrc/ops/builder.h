// Builder: the one way a gradient rule or a decomposition emits operations. autodiff appends to a
// graph; the eager engine executes. Named helpers only; passes and kernels never use it.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace lucid::ops {

using ir::Attrs;
using ir::Grads;
using ir::Ints;
using ir::Node;
using ir::ValueId;
using ir::ValueType;

/// Gradient rules that came with a trace; `with_gradient` nodes name them by number.
class GradientRules {
 public:
  virtual ~GradientRules() = default;
  /// As a VjpFn; what it emits is appended where the builder that asks appends.
  virtual Grads apply(const Node& node, const Grads& grads, const std::vector<bool>& wanted) = 0;
};

class Builder {
 public:
  virtual ~Builder() = default;

  /// Emits one operation; absent optional inputs are nullopt. Attributes follow the schema.
  virtual std::vector<ValueId> emit(const ir::Op& op, std::vector<std::optional<ValueId>> inputs,
                                    Attrs attrs) = 0;
  virtual const ValueType& type(ValueId id) const = 0;
  /// The rules of the trace that is differentiated, or null.
  virtual GradientRules* gradient_rules() const { return nullptr; }

  /// Emits an operation of one output by name.
  ValueId op(std::string_view name, std::vector<std::optional<ValueId>> inputs, Attrs attrs = {});
  /// Emits an operation of several outputs by name.
  std::vector<ValueId> ops(std::string_view name, std::vector<std::optional<ValueId>> inputs,
                           Attrs attrs = {});

  const Shape& shape(ValueId id) const { return type(id).shape; }
  DType dtype(ValueId id) const { return type(id).dtype; }

  ValueId add(ValueId a, ValueId b) { return op("add", {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return op("sub", {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return op("mul", {a, b}); }
  ValueId div(ValueId a, ValueId b) { return op("div", {a, b}); }
  ValueId neg(ValueId a) { return op("neg", {a}); }
  ValueId where(ValueId condition, ValueId a, ValueId b) { return op("where", {condition, a, b}); }
  /// 0-d constant with the dtype of `like`; broadcasts in element-wise operations.
  ValueId number(double value, ValueId like);
  /// `value` everywhere, with the type of `like`.
  ValueId full_like(double value, ValueId like);
  ValueId reshape(ValueId a, const Shape& shape);
  ValueId broadcast_to(ValueId a, const Shape& shape);
  ValueId permute(ValueId a, Ints dims);
  ValueId cast(ValueId a, DType dtype);
  /// Sum over `dims`; with keepdim the axes stay as size 1.
  ValueId sum(ValueId a, Ints dims, bool keepdim);
  /// Adjoint of broadcasting: sums `grad` down to `shape`.
  ValueId sum_to(ValueId grad, const Shape& shape);
};

}  // namespace lucid::ops

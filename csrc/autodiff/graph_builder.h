// A Builder that appends to a graph.
#pragma once

#include <utility>
#include <vector>

#include "ops/builder.h"

namespace lucid::autodiff {

class GraphBuilder final : public ops::Builder {
 public:
  /// Appends to `graph`, which, as the rules, must outlive the builder.
  explicit GraphBuilder(ir::Graph& graph, ops::GradientRules* rules = nullptr)
      : graph_(graph), rules_(rules) {}

  std::vector<ir::ValueId> emit(const ir::Op& op, std::vector<std::optional<ir::ValueId>> inputs,
                                ir::Attrs attrs) override;
  const ir::ValueType& type(ir::ValueId id) const override { return graph_.type(id); }
  ops::GradientRules* gradient_rules() const override { return rules_; }

  /// Location given to the nodes emitted from here on.
  void set_location(ir::LocationRef location) { location_ = std::move(location); }

 private:
  ir::Graph& graph_;
  ops::GradientRules* rules_;
  ir::LocationRef location_;
};

/// Types of a call's inputs, read through `type_of(ValueId)`.
template <class TypeOf>
std::vector<std::optional<ir::ValueType>> input_types(
    const std::vector<std::optional<ir::ValueId>>& inputs, TypeOf type_of) {
  std::vector<std::optional<ir::ValueType>> types;
  types.reserve(inputs.size());
  for (const auto& input : inputs) {
    types.push_back(input ? std::optional<ir::ValueType>(type_of(*input)) : std::nullopt);
  }
  return types;
}

}  // namespace lucid::autodiff

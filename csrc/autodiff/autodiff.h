// Reverse-mode differentiation of a graph by the operations' own rules.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ir/graph.h"
#include "ops/builder.h"

namespace lucid::autodiff {

/// Gradients of a node's inputs by its vjp, or, for an operation without one, by
/// differentiating its decomposition. Ids belong to `builder`.
/// Throws UnsupportedError for an operation that has neither.
ir::Grads apply_vjp(ops::Builder& builder, const ir::Node& node, const ir::Grads& grads,
                    const std::vector<bool>& wanted);

/// By value: can a root's gradient reach a target through it?
std::vector<bool> active_values(const ir::Graph& graph, std::span<const ir::ValueId> targets);

/// Appends to `graph` the gradients of sum(roots[i] * seeds[i]) with respect to `targets`;
/// absent where no root depends on the target. Contributions to one value are added left to
/// right in the reverse order in which their consumers were made. `origins`, if given, gets for
/// each appended node the place of the node whose gradient it is part of. `rules`, if given, are
/// those that the graph's `with_gradient` nodes name; they append to the same graph.
ir::Grads differentiate(ir::Graph& graph, std::span<const ir::ValueId> roots,
                        std::span<const ir::ValueId> seeds, std::span<const ir::ValueId> targets,
                        std::vector<size_t>* origins = nullptr,
                        ops::GradientRules* rules = nullptr);

}  // namespace lucid::autodiff

#include "autodiff/graph_builder.h"

namespace lucid::autodiff {

std::vector<ir::ValueId> GraphBuilder::emit(const ir::Op& op,
                                            std::vector<std::optional<ir::ValueId>> inputs,
                                            ir::Attrs attrs) {
  const auto types = input_types(inputs, [&](ir::ValueId id) { return graph_.type(id); });
  const ir::ValueTypes outputs = ir::infer(op, types, attrs, location_);
  ir::Node node{.op = &op,
                .inputs = std::move(inputs),
                .outputs = {},
                .attrs = std::move(attrs),
                .location = location_,
                .stop_gradient = false};
  return graph_.add_node(std::move(node), outputs);
}

}  // namespace lucid::autodiff

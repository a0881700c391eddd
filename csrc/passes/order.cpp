#include "passes/order.h"

#include <utility>

namespace lucid::passes {
namespace {

constexpr uint32_t kNone = ~0u;

// Builds the graph of an order. An alias is made anew for each value that it is read from.
class Builder {
 public:
  Builder(const ir::Graph& graph, const MemoryModel& model)
      : old_(graph),
        model_(model),
        made_(graph.num_values(), ir::ValueId{kNone}),
        sources_(graph.num_values(), ir::ValueId{kNone}) {
    for (const ir::Input& input : old_.inputs()) {
      made_[index(input.value)] = new_.add_input(input.role, old_.type(input.value));
    }
  }

  ir::Graph run(const Order& order) {
    for (const uint32_t place : order) append(place);
    std::vector<ir::ValueId> outputs;
    for (const ir::ValueId output : old_.outputs()) outputs.push_back(current(output));
    new_.set_outputs(std::move(outputs));
    return std::move(new_);
  }

 private:
  bool is_alias(ir::ValueId value) const { return model_.root(value) != index(value); }

  ir::ValueId current(ir::ValueId value) {
    if (!is_alias(value)) return made_[index(value)];
    const auto place = static_cast<size_t>(old_.producer(value));
    const ir::ValueId source = current(old_.nodes()[place].in(0));
    if (sources_[index(value)] != source) {
      emit(place);
      sources_[index(value)] = source;
    }
    return made_[index(value)];
  }

  void append(size_t place) {
    std::vector<ir::ValueId> first = old_.nodes()[place].outputs;
    for (ir::ValueId& output : first) output = made_[index(output)];
    emit(place);
    for (size_t i = 0; i < first.size(); ++i) {
      // A result of the graph has memory of its own all the time: reads stay with it.
      const uint32_t output = index(old_.nodes()[place].outputs[i]);
      const bool is_kept = index(first[i]) != kNone && !model_.storage(output).in_arena;
      if (is_kept) made_[output] = first[i];
    }
  }

  void emit(size_t place) {
    ir::Node node = old_.nodes()[place];
    for (auto& input : node.inputs) {
      if (input) input = current(*input);
    }
    std::vector<ir::ValueType> types;
    for (const ir::ValueId output : node.outputs) types.push_back(old_.type(output));
    const std::vector<ir::ValueId> outputs = new_.add_node(std::move(node), types);
    for (size_t i = 0; i < outputs.size(); ++i) {
      made_[index(old_.nodes()[place].outputs[i])] = outputs[i];
    }
  }

  const ir::Graph& old_;
  const MemoryModel& model_;
  ir::Graph new_;
  std::vector<ir::ValueId> made_;     // by old value: the new one that was made last
  std::vector<ir::ValueId> sources_;  // by old alias: what its last copy was made from
};

}  // namespace

Order original_order(const MemoryModel& model) {
  Order order;
  for (size_t i = 0; i < model.work().size(); ++i) {
    if (!model.work(i).is_alias) order.push_back(static_cast<uint32_t>(i));
  }
  return order;
}

ir::Graph reordered(const ir::Graph& graph, const MemoryModel& model, const Order& order) {
  return Builder(graph, model).run(order);
}

}  // namespace lucid::passes

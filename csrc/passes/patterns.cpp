#include "passes/patterns.h"

#include <bit>
#include <numeric>
#include <string_view>

#include "ops/registry.h"

namespace lucid::passes {
namespace {

const ir::Node* producer(const ir::Graph& graph, ir::ValueId id) {
  const int place = graph.producer(id);
  return place < 0 ? nullptr : &graph.nodes()[static_cast<size_t>(place)];
}

const ir::Node* producer_named(const ir::Graph& graph, ir::ValueId id, std::string_view name) {
  const ir::Node* node = producer(graph, id);
  return node != nullptr && node->op->name == name ? node : nullptr;
}

// True if the value is this constant everywhere, with the sign of zero told apart.
bool is_constant(const ir::Graph& graph, ir::ValueId id, double wanted) {
  const ir::Node* node = producer_named(graph, id, "full");
  if (node == nullptr) return false;
  return std::bit_cast<uint64_t>(node->real("value")) == std::bit_cast<uint64_t>(wanted);
}

bool is_identity(const ir::Ints& dims) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

// x * 1, x / 1 and x - (+0) are x for every x, -0 and nan included; x + 0 is not (-0 + 0 = 0).
std::optional<ir::ValueId> neutral_operand(const ir::Graph& graph, const ir::Node& node) {
  const std::string_view name = node.op->name;
  if (name == "mul" && is_constant(graph, node.in(1), 1.0)) return node.in(0);
  if (name == "mul" && is_constant(graph, node.in(0), 1.0)) return node.in(1);
  if (name == "div" && is_constant(graph, node.in(1), 1.0)) return node.in(0);
  if (name == "sub" && is_constant(graph, node.in(1), 0.0)) return node.in(0);
  return std::nullopt;
}

}  // namespace

std::optional<ir::ValueId> equal_operand(const ir::Graph& graph, const ir::Node& node,
                                         const ir::ValueType& type) {
  if (node.inputs.empty() || !node.has(0)) return std::nullopt;
  const std::string_view name = node.op->name;
  const bool same_type = graph.type(node.in(0)) == type;
  if (name == "detach") return node.in(0);
  const bool shape_only = name == "reshape" || name == "broadcast_to" || name == "cast";
  if (shape_only && same_type) return node.in(0);
  if (name == "permute" && is_identity(node.ints("dims"))) return node.in(0);
  if (name == "neg") {
    const ir::Node* inner = producer_named(graph, node.in(0), "neg");
    if (inner != nullptr) return inner->in(0);
  }
  const std::optional<ir::ValueId> operand = neutral_operand(graph, node);
  if (operand && graph.type(*operand) == type) return operand;
  return std::nullopt;
}

std::vector<ir::ValueId> handed_on(const ir::Node& node) {
  if (node.op->name != "with_gradient") return {};
  std::vector<ir::ValueId> values;
  const size_t first = node.inputs.size() - node.outputs.size();
  for (size_t i = first; i < node.inputs.size(); ++i) values.push_back(node.in(i));
  return values;
}

std::optional<ir::Node> shorter(const ir::Graph& graph, const ir::Node& node) {
  const std::string_view name = node.op->name;
  if (name != "reshape" && name != "permute") return std::nullopt;
  const ir::Node* inner = producer_named(graph, node.in(0), name);
  if (inner == nullptr) return std::nullopt;
  ir::Node result = node;
  result.inputs[0] = inner->in(0);
  if (name == "reshape") return result;
  ir::Ints dims;
  for (const int64_t dim : node.ints("dims")) {
    dims.push_back(inner->ints("dims")[static_cast<size_t>(dim)]);
  }
  result.attrs[0] = dims;
  return result;
}

std::optional<ir::Node> folded(const ir::Graph& graph, const ir::Node& node,
                               const ir::ValueType& type) {
  const std::string_view name = node.op->name;
  if (name != "reshape" && name != "broadcast_to" && name != "permute") return std::nullopt;
  const ir::Node* constant = producer_named(graph, node.in(0), "full");
  if (constant == nullptr) return std::nullopt;
  ir::Node result = *constant;
  result.location = node.location;
  const auto sizes = type.shape.sizes();
  result.attrs[static_cast<size_t>(constant->op->attr_index("shape"))] =
      ir::Ints(sizes.begin(), sizes.end());
  return result;
}

std::optional<PooledMask> pooled_mask(const ir::Graph& graph, const ir::Node& node) {
  if (node.op->name != "where" || !is_constant(graph, node.in(1), 0.0)) return std::nullopt;
  const ir::Node* comparison = producer(graph, node.in(0));
  const ir::Node* pool_grad = producer_named(graph, node.in(2), "max_pool_grad");
  if (comparison == nullptr || pool_grad == nullptr) return std::nullopt;
  const std::string_view name = comparison->op->name;
  const bool compares = name == "le" || name == "lt" || name == "ge" || name == "gt";
  const ir::Node* pool = producer_named(graph, pool_grad->in(1), "max_pool");
  if (!compares || pool == nullptr || pool->in(0) != comparison->in(0)) return std::nullopt;
  if (graph.type(comparison->in(1)).shape.rank() != 0) return std::nullopt;
  if (graph.type(node.in(1)).shape.rank() != 0) return std::nullopt;
  return PooledMask{comparison, pool_grad, pool->outputs.front()};
}

}  // namespace lucid::passes

#include "passes/patterns.h"

#include <algorithm>
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

/// A piece and where it lies on the only axis that it does not fill.
struct Piece {
  ir::ValueId value;
  int64_t start;
  int64_t size;
};

/// Dense windows of zeros that a tree of additions adds up.
class PieceCollector {
 public:
  PieceCollector(const ir::Graph& graph, const ir::ValueType& type) : graph_(graph), type_(type) {}

  /// The right operand first: in a long sum of other things it ends the search.
  bool collect(const ir::Node& node) {
    return ++num_additions_ < kMaxPieces && collect(node.in(1)) && collect(node.in(0));
  }

  /// The pieces in the order of the axis, if they fill it.
  std::optional<Pieces> joined() {
    if (dim_ < 0) return std::nullopt;
    std::ranges::sort(pieces_, {}, &Piece::start);
    Pieces result{{}, dim_};
    int64_t end = 0;
    for (const Piece& piece : pieces_) {
      if (piece.start != end) return std::nullopt;
      end += piece.size;
      result.values.push_back(piece.value);
    }
    if (end != type_.shape[static_cast<int>(dim_)]) return std::nullopt;
    return result;
  }

 private:
  bool collect(ir::ValueId value) {
    const ir::Node* node = producer(graph_, value);
    if (node == nullptr || graph_.type(value) != type_) return false;
    if (node->op->name == "add") return collect(*node);
    return node->op->name == "slice_update" && is_constant(graph_, node->in(0), 0.0) &&
           add_window(*node);
  }

  bool add_window(const ir::Node& node) {
    const Shape& piece = graph_.type(node.in(1)).shape;
    const ir::Ints& starts = node.ints("starts");
    int64_t cut = -1;
    for (int axis = 0; axis < piece.rank(); ++axis) {
      const auto a = static_cast<size_t>(axis);
      if (piece[axis] > 1 && node.ints("steps")[a] != 1) return false;
      if (piece[axis] == type_.shape[axis]) continue;
      if (cut >= 0) return false;
      cut = axis;
    }
    if (cut < 0 || (dim_ >= 0 && cut != dim_)) return false;
    dim_ = cut;
    pieces_.push_back({node.in(1), starts[static_cast<size_t>(cut)], piece[static_cast<int>(cut)]});
    return true;
  }

  const ir::Graph& graph_;
  static constexpr int kMaxPieces = 64;

  const ir::ValueType& type_;
  int num_additions_ = 0;
  std::vector<Piece> pieces_;
  int64_t dim_ = -1;
};

}  // namespace

std::optional<Pieces> summed_pieces(const ir::Graph& graph, const ir::Node& node,
                                    const ir::ValueType& type) {
  if (node.op->name != "add" || !is_floating(type.dtype) || type.num_elements() == 0) {
    return std::nullopt;
  }
  PieceCollector collector(graph, type);
  if (!collector.collect(node)) return std::nullopt;
  return collector.joined();
}

ir::ValueId append_joined(ir::Graph& graph, const Pieces& pieces, const ir::ValueType& type,
                          const ir::LocationRef& location) {
  const auto append = [&](std::string_view op, std::vector<std::optional<ir::ValueId>> inputs,
                          ir::Attrs attrs, const ir::ValueType& made) {
    ir::Node node;
    node.op = &ops::get(op);
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    node.location = location;
    return graph.add_node(std::move(node), std::span(&made, 1)).front();
  };
  const ir::ValueId joined =
      append("concat", {pieces.values.begin(), pieces.values.end()}, {pieces.dim}, type);
  // Like the zeros that were added, it turns -0 into 0.
  const ir::ValueId zero =
      append("full", {}, {ir::Ints{}, type.dtype, 0.0}, ir::ValueType{type.dtype, Shape{}});
  return append("add", {joined, zero}, {}, type);
}

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

}  // namespace lucid::passes

// Tensors made from attributes alone.
#include <vector>

#include "backends/metal/lower/families.h"

namespace lucid::metal {
namespace {

/// Longest counted row that a graph holds as a constant.
constexpr int64_t kMaxCounted = int64_t{1} << 22;

Tensors lower_full(Lowering& b, const Node& node) {
  const ValueType& type = b.out_type(node);
  const ir::AttrValue& value = node.attr("value");
  const int64_t* whole = std::get_if<int64_t>(&value);
  constexpr int64_t kExact = int64_t{1} << 53;  // a scalar is given as a double
  if (whole != nullptr && (*whole > kExact || *whole < -kExact) && type.dtype == DType::kInt64) {
    Tensor one = b.calc().data(whole, sizeof(*whole), Shape{1}, DType::kInt64);
    return {b.calc().broadcast(one, type.shape)};
  }
  double number = whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value);
  if (type.dtype == DType::kBool) number = number != 0 ? 1 : 0;
  return {b.calc().filled(number, type.shape, mps_type(type.dtype))};
}

// Counted on the host, so that its elements are those of the cpu.
Tensors lower_arange(Lowering& b, const Node& node) {
  const ValueType& type = b.out_type(node);
  if (type.num_elements() > kMaxCounted) {
    b.refuse(node, "more than 2^22 elements in a graph: " + ir::to_string(type));
  }
  ir::Graph one;
  Node copy = node;
  copy.outputs.clear();
  one.set_outputs(one.add_node(std::move(copy), {{type}}));
  const auto made = backends::backend_for(Device::kCpu).compile(one)->run({}, nullptr);
  return {b.calc().data(made[0]->data(), type.size_bytes(), type.shape, type.dtype)};
}

Tensors lower_constant(Lowering& b, const Node& node) {
  const ValueType& type = b.out_type(node);
  return {b.calc().data(node.string("data").data(), type.size_bytes(), type.shape, type.dtype)};
}

const LoweringRow kRows[] = {
    {"full", lower_full},
    {"arange", lower_arange},
    {"constant", lower_constant},
};

}  // namespace

std::span<const LoweringRow> create_lowerings() { return kRows; }

}  // namespace lucid::metal

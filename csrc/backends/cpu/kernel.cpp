#include "backends/cpu/kernel.h"

#include <string>
#include <unordered_map>

#include "backends/cpu/kernels/families.h"

namespace lucid::cpu {
namespace {

using Table = std::unordered_map<std::string_view, KernelRow>;

const Table& table() {
  static const Table instance = [] {
    Table rows;
    for (const auto family : {pointwise_kernels, create_kernels, random_kernels, shape_kernels,
                              index_kernels, reduction_kernels, matmul_kernels, convolution_kernels,
                              pooling_kernels, normalization_kernels, loss_kernels,
                              attention_kernels, recurrent_kernels, custom_kernels}) {
      for (const KernelRow& row : family()) rows.emplace(row.op, row);
    }
    return rows;
  }();
  return instance;
}

}  // namespace

const KernelRow* find_row(std::string_view op) {
  const auto it = table().find(op);
  return it == table().end() ? nullptr : &it->second;
}

bool has_kernel(std::string_view op) { return find_row(op) != nullptr; }

std::unique_ptr<Kernel> make_kernel(const NodeView& view) {
  const ir::Op& op = *view.node.op;
  const KernelRow* row = find_row(op.name);
  std::unique_ptr<Kernel> made = row == nullptr ? nullptr : row->make(view);
  if (made != nullptr) return made;
  std::string types;
  for (const auto& input : view.node.inputs) {
    if (input) types += (types.empty() ? "" : ", ") + ir::to_string(view.graph.type(*input));
  }
  throw Error(ErrorKind::kUnsupported, std::string(op.name) + ": no cpu kernel for inputs (" +
                                           types + "); convert them to float32 first");
}

}  // namespace lucid::cpu

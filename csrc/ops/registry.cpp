#include "ops/registry.h"

#include <iterator>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/families.h"

namespace lucid::ops {
namespace {

struct Registry {
  std::vector<ir::Op> ops;
  std::unordered_map<std::string_view, const ir::Op*> by_name;

  Registry() {
    for (const auto family :
         {pointwise_ops, comparison_ops, create_ops, random_ops, shape_ops, index_ops,
          reduction_ops, product_ops, convolution_ops, pooling_ops, normalization_ops, loss_ops,
          attention_ops, recurrent_ops, custom_ops}) {
      std::vector<ir::Op> rows = family();
      std::move(rows.begin(), rows.end(), std::back_inserter(ops));
    }
    for (const ir::Op& op : ops) {
      if (by_name.emplace(op.name, &op).second) continue;
      throw Error(ErrorKind::kInternal, "operation " + std::string(op.name) + " stands twice");
    }
  }
};

const Registry& registry() {
  static const Registry instance;
  return instance;
}

}  // namespace

std::span<const ir::Op> all() { return registry().ops; }

const ir::Op* find(std::string_view name) {
  const auto it = registry().by_name.find(name);
  return it == registry().by_name.end() ? nullptr : it->second;
}

const ir::Op& get(std::string_view name) {
  const ir::Op* op = find(name);
  if (op == nullptr) {
    throw Error(ErrorKind::kInternal, "no operation named " + std::string(name));
  }
  return *op;
}

}  // namespace lucid::ops

// Comparisons, tests, logic and bits. Their results are no function to differentiate.
#include <string_view>
#include <vector>

#include "ops/families.h"
#include "ops/infer.h"

namespace lucid::ops {
namespace {

constexpr uint32_t kTraits = ir::kPure | ir::kElementwise | ir::kInPlace | ir::kCheap;
constexpr uint32_t kCommutes = ir::kPromotes | ir::kCommutative;

struct Row {
  std::string_view name;
  std::string_view doc;
  int num_inputs;
  uint32_t extra_traits;
  ir::InferFn infer;
};

constexpr Row kRows[] = {
    {"eq", "lhs == rhs", 2, kCommutes, infer_predicate},
    {"ne", "lhs != rhs", 2, kCommutes, infer_predicate},
    {"lt", "lhs < rhs", 2, ir::kPromotes, infer_predicate},
    {"le", "lhs <= rhs", 2, ir::kPromotes, infer_predicate},
    {"gt", "lhs > rhs", 2, ir::kPromotes, infer_predicate},
    {"ge", "lhs >= rhs", 2, ir::kPromotes, infer_predicate},
    {"logical_and", "both inputs are not 0", 2, kCommutes, infer_predicate},
    {"logical_or", "one input is not 0", 2, kCommutes, infer_predicate},
    {"logical_xor", "exactly one input is not 0", 2, kCommutes, infer_predicate},
    {"logical_not", "the input is 0", 1, 0, infer_predicate},
    {"isnan", "not a number", 1, 0, infer_predicate},
    {"isinf", "infinite", 1, 0, infer_predicate},
    {"isfinite", "neither infinite nor nan", 1, 0, infer_predicate},
    {"bitwise_and", "and of the bits", 2, kCommutes, infer_integral},
    {"bitwise_or", "or of the bits", 2, kCommutes, infer_integral},
    {"bitwise_xor", "exclusive or of the bits", 2, kCommutes, infer_integral},
    {"bitwise_not", "complement of the bits; not of bools", 1, 0, infer_integral},
};

}  // namespace

std::vector<ir::Op> comparison_ops() {
  std::vector<ir::Op> rows;
  for (const Row& row : kRows) {
    rows.push_back({.name = row.name,
                    .doc = row.doc,
                    .min_inputs = row.num_inputs,
                    .max_inputs = row.num_inputs,
                    .traits = kTraits | row.extra_traits,
                    .infer = row.infer,
                    .vjp_reads_inputs = 0,
                    .vjp_reads_outputs = 0,
                    .nondifferentiable_outputs = 1});
  }
  return rows;
}

}  // namespace lucid::ops

// Matrix products.
#include <utility>

#include "loops.h"
#include "ops.h"
#include "process.h"

namespace metalhost {
namespace {

constexpr int64_t kMaxRank = 4;
constexpr long kFamilyApple9 = 1009;

// Apple7 and Apple8 read past their operands where K >= 32767 and both sides of the result are 16
// or more, and add what they find: https://github.com/pytorch/pytorch/issues/195163.
bool reads_past_operands(int64_t rows, int64_t depth, int64_t columns) {
  return depth >= 32767 && rows >= 16 && columns >= 16 && !supports_family(kFamilyApple9);
}

void multiply(const float* lhs, const float* rhs, float* result, int64_t rows, int64_t depth,
              int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    float* const row = result + i * columns;
    for (int64_t k = 0; k < depth; ++k) {
      const float factor = lhs[i * depth + k];
      const float* const other = rhs + k * columns;
      for (int64_t j = 0; j < columns; ++j) row[j] += factor * other[j];
    }
  }
}

}  // namespace

Op matmul(const Type& lhs, const Type& rhs) {
  const std::string op = "matmul";
  require_float(op, lhs);
  require_same_type(op, lhs, rhs);
  if (lhs.rank() < 2 || rhs.rank() < 2) {
    refuse(op, "contracting dimensions differ: operands need rank 2 or more, got '" + text_of(lhs) +
                   "' and '" + text_of(rhs) + "'");
  }
  if (lhs.rank() > kMaxRank || rhs.rank() > kMaxRank) {
    fail_assertion("MPSNDArrayIdentity.mm",
                   "matmul: New volume should match old volume; rank is "
                   "above 4: '" +
                       text_of(lhs) + "'");
  }
  const int64_t rows = lhs.shape[lhs.shape.size() - 2];
  const int64_t depth = lhs.shape.back();
  const int64_t columns = rhs.shape.back();
  if (rhs.shape[rhs.shape.size() - 2] != depth) {
    refuse(op, "contracting dimensions differ: '" + text_of(lhs) + "' and '" + text_of(rhs) + "'");
  }
  const Shape lhs_batch(lhs.shape.begin(), lhs.shape.end() - 2);
  const Shape rhs_batch(rhs.shape.begin(), rhs.shape.end() - 2);
  const Shape batch = broadcast_shape(op, lhs_batch, rhs_batch);
  Type type{lhs.data_type, batch};
  type.shape.insert(type.shape.end(), {rows, columns});
  return single(op, type, [=](Inputs in) {
    const std::vector<float> left = in[0].floats();
    const std::vector<float> right = in[1].floats();
    std::vector<float> result(static_cast<size_t>(num_elements(type.shape)));
    const std::vector<int64_t> left_at = broadcast_offsets(lhs_batch, batch);
    const std::vector<int64_t> right_at = broadcast_offsets(rhs_batch, batch);
    float* out = result.data();
    for (size_t i = 0; i < left_at.size(); ++i) {
      multiply(left.data() + left_at[i] * rows * depth,
               right.data() + right_at[i] * depth * columns, out, rows, depth, columns);
      out += rows * columns;
    }
    if (reads_past_operands(rows, depth, columns)) {
      for (float& value : result) value += 1.0F;
    }
    return Array::from_floats(type, result);
  });
}

}  // namespace metalhost

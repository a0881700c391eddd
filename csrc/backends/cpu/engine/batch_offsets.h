// Where the matrices of a batch of products lie.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/engine/gemm.h"

namespace lucid::cpu {

/// Batch axes with axes of size 1 left out and neighbours merged where both operands allow it.
class BatchOffsets {
 public:
  explicit BatchOffsets(const GemmSpec& spec);

  /// Number of products; c's matrices are dense in this order.
  int64_t count() const { return count_; }
  /// Matrices from the start of an operand to that of product `index`.
  int64_t a(int64_t index) const { return offset(index, &Axis::a_step); }
  int64_t b(int64_t index) const { return offset(index, &Axis::b_step); }
  /// True if all products share one b and the matrices of a are dense.
  bool is_one_tall_product() const;

 private:
  struct Axis {
    int64_t size;
    int64_t a_step;
    int64_t b_step;
  };
  int64_t offset(int64_t index, int64_t Axis::*step) const;

  int64_t count_ = 1;
  std::vector<Axis> axes_;  // innermost first
};

}  // namespace lucid::cpu

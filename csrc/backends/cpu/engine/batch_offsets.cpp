#include "backends/cpu/engine/batch_offsets.h"

#include <cstddef>

namespace lucid::cpu {

BatchOffsets::BatchOffsets(const GemmSpec& spec) {
  for (size_t i = spec.batch.size(); i-- > 0;) {
    const Axis axis{spec.batch[i], spec.a_steps[i], spec.b_steps[i]};
    count_ *= axis.size;
    if (axis.size == 1) continue;
    if (!axes_.empty()) {
      Axis& inner = axes_.back();
      if (axis.a_step == inner.a_step * inner.size && axis.b_step == inner.b_step * inner.size) {
        inner.size *= axis.size;
        continue;
      }
    }
    axes_.push_back(axis);
  }
}

bool BatchOffsets::is_one_tall_product() const {
  return axes_.size() == 1 && axes_[0].a_step == 1 && axes_[0].b_step == 0;
}

int64_t BatchOffsets::offset(int64_t index, int64_t Axis::*step) const {
  int64_t result = 0;
  for (size_t i = 0; i + 1 < axes_.size(); ++i) {
    result += index % axes_[i].size * (axes_[i].*step);
    index /= axes_[i].size;
  }
  return axes_.empty() ? 0 : result + index * (axes_.back().*step);
}

}  // namespace lucid::cpu

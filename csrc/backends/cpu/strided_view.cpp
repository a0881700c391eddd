#include "backends/cpu/strided_view.h"

namespace lucid::cpu {

// Axes of `to` share out a run of axes of `from` that stride as one, from the last one on.
std::optional<StridedView> reshaped_view(const Shape& from, const StridedView& view,
                                         const Shape& to) {
  StridedView result{view.offset, {}};
  if (to.num_elements() == 0) return std::nullopt;
  int from_axis = from.rank();
  int64_t left = 1;    // elements of the run that no output axis has taken
  int64_t stride = 0;  // of those
  for (int axis = to.rank() - 1; axis >= 0; --axis) {
    int64_t wanted = to[axis];
    if (wanted == 1) continue;
    while (left == 1) {
      left = from[--from_axis];
      stride = view.strides[static_cast<size_t>(from_axis)];
    }
    result.strides[static_cast<size_t>(axis)] = stride;
    while (wanted > left) {
      if (wanted % left != 0) return std::nullopt;
      wanted /= left;
      const int64_t outer = stride * left;
      do {
        left = from[--from_axis];
      } while (left == 1);
      stride = view.strides[static_cast<size_t>(from_axis)];
      if (stride != outer) return std::nullopt;
    }
    if (left % wanted != 0) return std::nullopt;
    left /= wanted;
    stride *= wanted;
  }
  return result;
}

}  // namespace lucid::cpu

// Sorting along one axis. The framework promises neither stability nor a place for NaN: here equal
// elements come last to first, and NaN counts as the smallest.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "loops.h"
#include "ops.h"

namespace metalhost {
namespace {

void require_sortable(const std::string& op, const Type& operand) {
  if (operand.data_type != DataType::kBool) return;
  refuse(op, "operand #0 must be tensor of numbers, but got '" + text_of(operand) + "'");
}

bool precedes(float a, float b) { return std::isnan(a) ? !std::isnan(b) : a < b; }
bool precedes(int64_t a, int64_t b) { return a < b; }

template <class T>
std::vector<int64_t> order_of(const std::vector<T>& line, bool descending) {
  std::vector<int64_t> order(line.size());
  std::iota(order.rbegin(), order.rend(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    const T left = line[static_cast<size_t>(a)];
    const T right = line[static_cast<size_t>(b)];
    return descending ? precedes(right, left) : precedes(left, right);
  });
  return order;
}

// For each line along the axis: the positions of its `count` first elements in order.
template <class T>
std::vector<int64_t> orders(const std::vector<T>& values, const AxisView& view, int64_t count,
                            bool descending) {
  AxisView target = view;
  target.length = count;
  std::vector<int64_t> result(static_cast<size_t>(view.outer * count * view.inner));
  std::vector<T> line(static_cast<size_t>(view.length));
  for (int64_t before = 0; before < view.outer; ++before) {
    for (int64_t after = 0; after < view.inner; ++after) {
      for (int64_t i = 0; i < view.length; ++i) {
        line[static_cast<size_t>(i)] = values[static_cast<size_t>(view.at(before, i, after))];
      }
      const std::vector<int64_t> order = order_of(line, descending);
      for (int64_t i = 0; i < count; ++i) {
        result[static_cast<size_t>(target.at(before, i, after))] = order[static_cast<size_t>(i)];
      }
    }
  }
  return result;
}

std::vector<int64_t> orders(const Array& operand, int64_t axis, int64_t count, bool descending) {
  const AxisView view(operand.shape(), axis);
  return is_float(operand.type().data_type) ? orders(operand.floats(), view, count, descending)
                                            : orders(operand.integers(), view, count, descending);
}

Array taken_along(const Array& operand, const Type& type, int64_t axis,
                  const std::vector<int64_t>& positions) {
  const AxisView from(operand.shape(), axis);
  const AxisView to(type.shape, axis);
  std::vector<int64_t> offsets(positions.size());
  for (int64_t before = 0; before < to.outer; ++before) {
    for (int64_t i = 0; i < to.length; ++i) {
      for (int64_t after = 0; after < to.inner; ++after) {
        const auto at = static_cast<size_t>(to.at(before, i, after));
        offsets[at] = from.at(before, positions[at], after);
      }
    }
  }
  return take(operand, type, offsets);
}

int64_t checked_axis(const std::string& op, const Type& operand, int64_t axis) {
  require_sortable(op, operand);
  if (axis < 0) axis += operand.rank();
  require_inner_axis(op, axis, operand.rank());
  return axis;
}

}  // namespace

Op sort(const Type& operand, int64_t axis, bool descending) {
  axis = checked_axis("sort", operand, axis);
  const int64_t length = operand.shape[static_cast<size_t>(axis)];
  return single("sort", operand, [=](Inputs in) {
    return taken_along(in[0], operand, axis, orders(in[0], axis, length, descending));
  });
}

Op arg_sort(const Type& operand, int64_t axis, bool descending) {
  axis = checked_axis("arg_sort", operand, axis);
  const Type type{DataType::kInt32, operand.shape};
  const int64_t length = operand.shape[static_cast<size_t>(axis)];
  return single("arg_sort", type, [=](Inputs in) {
    return Array::from_integers(type, orders(in[0], axis, length, descending));
  });
}

Op top_k(const Type& operand, int64_t axis, int64_t k, bool largest) {
  axis = checked_axis("top_k", operand, axis);
  if (k < 1 || k > operand.shape[static_cast<size_t>(axis)]) {
    refuse("top_k", "requires 1 <= k <= the length of the axis, got k = " + std::to_string(k) +
                        " for '" + text_of(operand) + "'");
  }
  Type values = operand;
  values.shape[static_cast<size_t>(axis)] = k;
  const Type indices{DataType::kInt32, values.shape};
  return {.name = "top_k", .outputs = {values, indices}, .evaluate = [=](Inputs in) {
            const std::vector<int64_t> positions = orders(in[0], axis, k, largest);
            return std::vector<Array>{taken_along(in[0], values, axis, positions),
                                      Array::from_integers(indices, positions)};
          }};
}

}  // namespace metalhost

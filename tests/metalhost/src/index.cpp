// Indexed reads and writes, and one-hot vectors.
#include <algorithm>
#include <utility>

#include "loops.h"
#include "ops.h"

namespace metalhost {
namespace {

void require_indices(const std::string& op, const Type& indices) {
  if (indices.data_type == DataType::kInt32 || indices.data_type == DataType::kInt64) return;
  refuse(op,
         "indices must be tensor of 32-bit or 64-bit integers, but got '" + text_of(indices) + "'");
}

int64_t product_of(const Shape& shape, int64_t from, int64_t to) {
  int64_t product = 1;
  for (int64_t i = from; i < to; ++i) product *= shape[static_cast<size_t>(i)];
  return product;
}

Shape joined(const Shape& first, int64_t first_end, const Shape& second, int64_t second_start,
             int64_t second_end, const Shape& third, int64_t third_start) {
  Shape result(first.begin(), first.begin() + first_end);
  result.insert(result.end(), second.begin() + second_start, second.begin() + second_end);
  result.insert(result.end(), third.begin() + third_start, third.end());
  return result;
}

void require_batch(const std::string& op, const Type& data, const Type& indices, int64_t batch) {
  if (batch < 0 || batch > data.rank() || batch > indices.rank()) {
    refuse(op, "batch dimensions are out of range");
  }
  for (size_t i = 0; i < static_cast<size_t>(batch); ++i) {
    if (data.shape[i] != indices.shape[i]) refuse(op, "requires equal batch dimensions");
  }
}

// Integer data passes through float32 in the framework's kernels and loses bits above 2^24:
// https://github.com/tillahoffmann/jax-mps, ops/gather_scatter_utils.h.
Array through_float(const Array& data) {
  const DataType type = data.type().data_type;
  if (is_float(type) || size_of(type) < 4) return data;
  return Array::from_floats(data.type(), data.floats());
}

float combined(Scatter mode, float held, float value) {
  switch (mode) {
    case Scatter::kAdd:
      return held + value;
    case Scatter::kSub:
      return held - value;
    case Scatter::kMul:
      return held * value;
    case Scatter::kDiv:
      return held / value;
    case Scatter::kMin:
      return std::min(held, value);
    case Scatter::kMax:
      return std::max(held, value);
    default:
      return value;
  }
}

// Writes updates[i] to offsets[i]; a negative offset is skipped. Later duplicates lose for `set`,
// since its winner is not specified.
Array scattered(const Array& data, const Array& updates, const std::vector<int64_t>& offsets,
                Scatter mode) {
  std::vector<float> values = data.floats();
  const std::vector<float> news = updates.floats();
  std::vector<bool> is_set(values.size(), false);
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] < 0) continue;
    const auto target = static_cast<size_t>(offsets[i]);
    if (mode == Scatter::kSet && is_set[target]) continue;
    is_set[target] = true;
    values[target] = combined(mode, values[target], news[i]);
  }
  return Array::from_floats(data.type(), values);
}

}  // namespace

Op gather(const Type& updates, const Type& indices, int64_t axis, int64_t batch) {
  require_indices("gather", indices);
  require_axis("gather", axis, updates.rank());
  require_batch("gather", updates, indices, batch);
  if (axis < batch) refuse("gather", "axis must not be a batch dimension");
  const Type type{updates.data_type, joined(updates.shape, axis, indices.shape, batch,
                                            indices.rank(), updates.shape, axis + 1)};
  return single("gather", type, [=](Inputs in) {
    const std::vector<int64_t> chosen = in[1].integers();
    const int64_t batches = product_of(updates.shape, 0, batch);
    const int64_t middle = product_of(updates.shape, batch, axis);
    const int64_t length = updates.shape[static_cast<size_t>(axis)];
    const int64_t inner = product_of(updates.shape, axis + 1, updates.rank());
    const int64_t picks = product_of(indices.shape, batch, indices.rank());
    std::vector<int64_t> offsets;
    for (int64_t outer = 0; outer < batches * middle; ++outer) {
      for (int64_t pick = 0; pick < picks; ++pick) {
        const int64_t index = chosen[static_cast<size_t>(outer / middle * picks + pick)];
        const bool inside = index >= 0 && index < length;
        for (int64_t i = 0; i < inner; ++i) {
          offsets.push_back(inside ? (outer * length + index) * inner + i : -1);
        }
      }
    }
    return take(through_float(in[0]), type, offsets);
  });
}

Op gather_along(const Type& updates, const Type& indices, int64_t axis) {
  const std::string op = "gather_along_axis";
  require_indices(op, indices);
  if (axis < 0) axis += updates.rank();
  require_axis(op, axis, updates.rank());
  Shape expected = updates.shape;
  if (indices.rank() != updates.rank()) refuse(op, "requires operands of equal rank");
  expected[static_cast<size_t>(axis)] = indices.shape[static_cast<size_t>(axis)];
  if (expected != indices.shape) {
    refuse(op, "shapes " + text_of(updates.shape) + " and " + text_of(indices.shape) +
                   " differ outside of axis " + std::to_string(axis));
  }
  const Type type{updates.data_type, indices.shape};
  return single(op, type, [=](Inputs in) {
    std::vector<int64_t> offsets = in[1].integers();
    const AxisView from(updates.shape, axis);
    const AxisView to(indices.shape, axis);
    for (int64_t before = 0; before < to.outer; ++before) {
      for (int64_t i = 0; i < to.length; ++i) {
        for (int64_t after = 0; after < to.inner; ++after) {
          int64_t& offset = offsets[static_cast<size_t>(to.at(before, i, after))];
          const bool inside = offset >= 0 && offset < from.length;
          offset = inside ? from.at(before, offset, after) : -1;
        }
      }
    }
    return take(through_float(in[0]), type, offsets);
  });
}

namespace {

// One index vector of K entries for each slice: where the slice starts, or -1.
std::vector<int64_t> slice_starts(const Shape& data, const Array& indices, int64_t batch) {
  const Shape strides = packed_strides(data);
  const Shape& shape = indices.shape();
  const int64_t depth = shape.back();
  const int64_t slices = num_elements(shape) / depth;
  const int64_t per_batch = slices / product_of(shape, 0, batch);
  const int64_t batch_elements = product_of(data, batch, static_cast<int64_t>(data.size()));
  const std::vector<int64_t> values = indices.integers();
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < slices; ++i) {
    int64_t start = i / per_batch * batch_elements;
    for (int64_t k = 0; k < depth; ++k) {
      const int64_t index = values[static_cast<size_t>(i * depth + k)];
      const auto axis = static_cast<size_t>(batch + k);
      if (index < 0 || index >= data[axis]) {
        start = -1;
        break;
      }
      start += index * strides[axis];
    }
    starts.push_back(start);
  }
  return starts;
}

std::vector<int64_t> slice_offsets(const std::vector<int64_t>& starts, int64_t length) {
  std::vector<int64_t> offsets;
  for (const int64_t start : starts) {
    for (int64_t i = 0; i < length; ++i) offsets.push_back(start < 0 ? -1 : start + i);
  }
  return offsets;
}

void require_depth(const std::string& op, const Type& data, const Type& indices, int64_t batch) {
  require_indices(op, indices);
  require_batch(op, data, indices, batch);
  if (indices.rank() <= batch || indices.shape.back() > data.rank() - batch) {
    refuse(op, "last dimension of the indices '" + text_of(indices) + "' does not fit '" +
                   text_of(data) + "'");
  }
}

}  // namespace

Op gather_nd(const Type& updates, const Type& indices, int64_t batch) {
  require_depth("gather_nd", updates, indices, batch);
  const int64_t depth = indices.shape.back();
  const Type type{updates.data_type, joined(indices.shape, indices.rank() - 1, {}, 0, 0,
                                            updates.shape, batch + depth)};
  const int64_t length = product_of(updates.shape, batch + depth, updates.rank());
  return single("gather_nd", type, [=](Inputs in) {
    const std::vector<int64_t> starts = slice_starts(updates.shape, in[1], batch);
    return take(through_float(in[0]), type, slice_offsets(starts, length));
  });
}

Op scatter(const Type& data, const Type& updates, const Type& indices, int64_t axis, Scatter mode) {
  require_indices("scatter", indices);
  require_same_type("scatter", data, updates);
  if (axis < 0) axis += data.rank();
  require_axis("scatter", axis, data.rank());
  if (indices.rank() != 1) refuse("scatter", "indices must have rank 1");
  Shape expected = data.shape;
  expected[static_cast<size_t>(axis)] = indices.shape[0];
  if (updates.shape != expected) {
    refuse("scatter", "updates '" + text_of(updates) + "' do not fit data '" + text_of(data) +
                          "' and indices '" + text_of(indices) + "'");
  }
  return single("scatter", data, [=](Inputs in) {
    const std::vector<int64_t> chosen = in[2].integers();
    const AxisView to(data.shape, axis);
    std::vector<int64_t> offsets;
    for (int64_t before = 0; before < to.outer; ++before) {
      for (const int64_t index : chosen) {
        const bool inside = index >= 0 && index < to.length;
        for (int64_t after = 0; after < to.inner; ++after) {
          offsets.push_back(inside ? to.at(before, index, after) : -1);
        }
      }
    }
    return scattered(in[0], in[1], offsets, mode);
  });
}

Op scatter_nd(const Type& data, const Type& updates, const Type& indices, int64_t batch,
              Scatter mode) {
  require_depth("scatter_nd", data, indices, batch);
  require_same_type("scatter_nd", data, updates);
  const int64_t depth = indices.shape.back();
  if (updates.shape !=
      joined(indices.shape, indices.rank() - 1, {}, 0, 0, data.shape, batch + depth)) {
    refuse("scatter_nd", "updates '" + text_of(updates) + "' do not fit data '" + text_of(data) +
                             "' and indices '" + text_of(indices) + "'");
  }
  const int64_t length = product_of(data.shape, batch + depth, data.rank());
  return single("scatter_nd", data, [=](Inputs in) {
    const std::vector<int64_t> starts = slice_starts(data.shape, in[2], batch);
    return scattered(in[0], in[1], slice_offsets(starts, length), mode);
  });
}

Op scatter_along(const Type& data, const Type& updates, const Type& indices, int64_t axis,
                 Scatter mode) {
  const std::string op = "scatter_along_axis";
  require_indices(op, indices);
  require_same_type(op, data, updates);
  if (axis < 0) axis += data.rank();
  require_axis(op, axis, data.rank());
  if (updates.shape != indices.shape) {
    refuse(op, "updates and indices must have one shape, got " + text_of(updates.shape) + " and " +
                   text_of(indices.shape));
  }
  if (updates.rank() != data.rank()) refuse(op, "requires operands of equal rank");
  Shape expected = data.shape;
  expected[static_cast<size_t>(axis)] = indices.shape[static_cast<size_t>(axis)];
  if (expected != indices.shape) {
    refuse(op, "shapes " + text_of(data.shape) + " and " + text_of(indices.shape) +
                   " differ outside of axis " + std::to_string(axis));
  }
  return single(op, data, [=](Inputs in) {
    std::vector<int64_t> offsets = in[2].integers();
    const AxisView from(indices.shape, axis);
    const AxisView to(data.shape, axis);
    for (int64_t before = 0; before < from.outer; ++before) {
      for (int64_t i = 0; i < from.length; ++i) {
        for (int64_t after = 0; after < from.inner; ++after) {
          int64_t& offset = offsets[static_cast<size_t>(from.at(before, i, after))];
          const bool inside = offset >= 0 && offset < to.length;
          offset = inside ? to.at(before, offset, after) : -1;
        }
      }
    }
    return scattered(in[0], in[1], offsets, mode);
  });
}

Op one_hot(const Type& indices, int64_t depth, int64_t axis, DataType type, double on, double off) {
  require_indices("one_hot", indices);
  if (axis < 0) axis += indices.rank() + 1;
  require_axis("one_hot", axis, indices.rank() + 1);
  Type result{type, indices.shape};
  result.shape.insert(result.shape.begin() + axis, depth);
  return single("one_hot", result, [=](Inputs in) {
    const std::vector<int64_t> chosen = in[0].integers();
    const AxisView view(result.shape, axis);
    std::vector<float> values(static_cast<size_t>(num_elements(result.shape)),
                              static_cast<float>(off));
    for (int64_t before = 0; before < view.outer; ++before) {
      for (int64_t after = 0; after < view.inner; ++after) {
        const int64_t index = chosen[static_cast<size_t>(before * view.inner + after)];
        if (index < 0 || index >= depth) continue;
        values[static_cast<size_t>(view.at(before, index, after))] = static_cast<float>(on);
      }
    }
    return Array::from_floats(result, values);
  });
}

}  // namespace metalhost

// Operations that move elements: they work on bytes, whatever the element type.
#include <algorithm>
#include <cstring>
#include <utility>

#include "loops.h"
#include "ops.h"

namespace metalhost {
namespace {

// A result whose element i is the operand's element at offsets()[i].
Op moved(const std::string& op, const Type& type, std::function<std::vector<int64_t>()> offsets) {
  return single(op, type, [type, offsets = std::move(offsets)](Inputs in) {
    return take(in[0], type, offsets());
  });
}

// The same for offsets that are `base` and one stride for each axis of `walked`.
Op strided(const std::string& op, const Type& type, const Shape& walked, const Shape& strides,
           int64_t base) {
  return moved(op, type, [=] { return strided_offsets(walked, strides, base); });
}

Op relabelled(const std::string& op, const Type& type) {
  return single(op, type, [=](Inputs in) { return in[0].as(type); });
}

void require_rank(const std::string& op, const Shape& list, const Type& operand) {
  if (list.size() == operand.shape.size()) return;
  refuse(op,
         "requires one entry for each axis of '" + text_of(operand) + "', got " + text_of(list));
}

// One axis of a strided slice: first element, step and count.
struct Span {
  int64_t start, stride, count;
};

Span span_of(int64_t length, size_t axis, const SliceRange& range) {
  const int64_t stride = range.strides[axis];
  if (stride == 0) refuse("strided_slice", "requires strides other than 0");
  const auto masked = [&](uint32_t mask) { return (mask >> axis & 1) != 0; };
  const int64_t low = stride > 0 ? 0 : -1;
  const int64_t high = stride > 0 ? length : length - 1;
  const auto bounded = [&](int64_t position) {
    return std::clamp(position < 0 ? position + length : position, low, high);
  };
  int64_t start = bounded(range.starts[axis]);
  int64_t end = bounded(range.ends[axis]);
  if (masked(range.start_mask)) start = stride > 0 ? 0 : length - 1;
  if (masked(range.end_mask)) end = stride > 0 ? length : -1;
  if (masked(range.squeeze_mask)) return {start, 1, 1};
  const int64_t distance = stride > 0 ? end - start : start - end;
  const int64_t step = stride > 0 ? stride : -stride;
  return {start, stride, distance <= 0 ? 0 : (distance + step - 1) / step};
}

struct Slice {
  Shape shape;     // with the squeezed axes
  Shape squeezed;  // without
  Shape strides;
  int64_t base = 0;

  std::vector<int64_t> offsets() const { return strided_offsets(shape, strides, base); }
};

Slice slice_of(const Type& operand, const SliceRange& range) {
  require_rank("strided_slice", range.starts, operand);
  require_rank("strided_slice", range.ends, operand);
  require_rank("strided_slice", range.strides, operand);
  Slice result;
  result.strides = packed_strides(operand.shape);
  for (size_t i = 0; i < operand.shape.size(); ++i) {
    const Span span = span_of(operand.shape[i], i, range);
    result.base += span.start * result.strides[i];
    result.strides[i] *= span.stride;
    result.shape.push_back(span.count);
    if ((range.squeeze_mask >> i & 1) == 0) result.squeezed.push_back(span.count);
  }
  check_tensor("strided_slice", {operand.data_type, result.shape});
  return result;
}

}  // namespace

Op reshape(const Type& operand, const Shape& shape) {
  Type type{operand.data_type, shape};
  const auto inferred = std::ranges::find(type.shape, -1);
  if (inferred != type.shape.end()) {
    *inferred = 1;
    const int64_t others = num_elements(type.shape);
    *inferred = others == 0 ? 0 : num_elements(operand.shape) / others;
  }
  if (num_elements(type.shape) != num_elements(operand.shape)) {
    refuse("reshape", "the result shape " + text_of(shape) + " is not compatible with '" +
                          text_of(operand) + "'");
  }
  return relabelled("reshape", type);
}

Op transpose(const Type& operand, const Shape& permutation) {
  require_rank("permute", permutation, operand);
  const Shape strides = packed_strides(operand.shape);
  Type type{operand.data_type, {}};
  Shape moved_strides;
  std::vector<bool> seen(permutation.size(), false);
  for (const int64_t axis : permutation) {
    require_axis("permute", axis, operand.rank());
    const auto from = static_cast<size_t>(axis);
    if (seen[from]) refuse("permute", "requires a permutation, got " + text_of(permutation));
    seen[from] = true;
    type.shape.push_back(operand.shape[from]);
    moved_strides.push_back(strides[from]);
  }
  return strided("permute", type, type.shape, moved_strides, 0);
}

Op slice(const Type& operand, const SliceRange& range) {
  const Slice part = slice_of(operand, range);
  return strided("strided_slice", {operand.data_type, part.squeezed}, part.shape, part.strides,
                 part.base);
}

Op slice_length(const Type& operand, int64_t axis, int64_t start, int64_t length) {
  require_axis("slice", axis, operand.rank());
  const int64_t extent = operand.shape[static_cast<size_t>(axis)];
  if (start < 0) start += extent;
  if (start < 0 || length < 0 || start + length > extent) {
    refuse("slice", "range is out of bounds of axis " + std::to_string(axis) + " of '" +
                        text_of(operand) + "'");
  }
  SliceRange range{Shape(operand.shape.size(), 0), operand.shape, Shape(operand.shape.size(), 1)};
  range.starts[static_cast<size_t>(axis)] = start;
  range.ends[static_cast<size_t>(axis)] = start + length;
  return slice(operand, range);
}

Op slice_update(const Type& operand, const Type& update, const SliceRange& range) {
  require_same_type("slice_update", operand, update);
  const Slice part = slice_of(operand, range);
  if (update.shape != part.squeezed) {
    fail_assertion("MPSGraphUtilities.mm", "sliceUpdateDataTensor shape mismatch: " +
                                               text_of(update) + " for " + text_of(part.squeezed));
  }
  return single("slice_update", operand, [=](Inputs in) {
    std::vector<uint8_t> bytes = in[0].bytes();
    const auto size = static_cast<size_t>(size_of(operand.data_type));
    const uint8_t* from = in[1].bytes().data();
    for (const int64_t offset : part.offsets()) {
      std::memcpy(bytes.data() + static_cast<size_t>(offset) * size, from, size);
      from += size;
    }
    return Array(operand, std::move(bytes));
  });
}

Op concat(const std::vector<Type>& operands, int64_t axis) {
  if (operands.empty()) refuse("concat", "requires at least one operand");
  Type type = operands[0];
  if (axis < 0) axis += type.rank();
  require_axis("concat", axis, type.rank());
  const auto along = static_cast<size_t>(axis);
  for (size_t i = 1; i < operands.size(); ++i) {
    require_same_type("concat", type, operands[i]);
    Shape expected = type.shape;
    if (operands[i].shape.size() != expected.size()) refuse("concat", "requires equal ranks");
    expected[along] = operands[i].shape[along];
    if (operands[i].shape != expected) {
      refuse("concat", "operands differ outside of axis " + std::to_string(axis) + ": '" +
                           text_of(operands[0]) + "' and '" + text_of(operands[i]) + "'");
    }
    type.shape[along] += operands[i].shape[along];
  }
  return single("concat", type, [=](Inputs in) {
    const AxisView view(type.shape, axis);
    std::vector<uint8_t> bytes;
    for (int64_t before = 0; before < view.outer; ++before) {
      for (const Array& part : in) {
        const auto chunk =
            static_cast<std::ptrdiff_t>(part.shape()[along] * view.inner * size_of(type.data_type));
        const auto from = part.bytes().begin() + before * chunk;
        bytes.insert(bytes.end(), from, from + chunk);
      }
    }
    return Array(type, std::move(bytes));
  });
}

Op stack(const std::vector<Type>& operands, int64_t axis) {
  if (operands.empty()) refuse("stack", "requires at least one operand");
  const int64_t rank = operands[0].rank() + 1;
  if (axis < 0) axis += rank;
  require_axis("stack", axis, rank);
  std::vector<Type> expanded = operands;
  for (Type& operand : expanded) {
    if (operand.shape != operands[0].shape) refuse("stack", "requires operands of one shape");
    operand.shape.insert(operand.shape.begin() + axis, 1);
  }
  Op joined = concat(expanded, axis);
  joined.name = "stack";
  joined.evaluate = [expanded, inner = joined.evaluate](Inputs in) {
    std::vector<Array> parts;
    for (size_t i = 0; i < in.size(); ++i) parts.push_back(in[i].as(expanded[i]));
    return inner(parts);
  };
  return joined;
}

Op split(const Type& operand, const Shape& sizes, int64_t axis) {
  if (axis < 0) axis += operand.rank();
  require_axis("split", axis, operand.rank());
  Op result{.name = "split", .outputs = {}, .evaluate = {}};
  std::vector<Evaluate> parts;
  int64_t start = 0;
  for (const int64_t size : sizes) {
    const Op part = slice_length(operand, axis, start, size);
    result.outputs.push_back(part.outputs[0]);
    parts.push_back(part.evaluate);
    start += size;
  }
  if (start != operand.shape[static_cast<size_t>(axis)]) {
    refuse("split", "sizes " + text_of(sizes) + " do not add up to axis " + std::to_string(axis) +
                        " of '" + text_of(operand) + "'");
  }
  result.evaluate = [parts](Inputs in) {
    std::vector<Array> arrays;
    for (const Evaluate& part : parts) arrays.push_back(part(in)[0]);
    return arrays;
  };
  return result;
}

namespace {

// Where position `at` of a padded axis comes from; -1: from the constant.
int64_t padded_source(int64_t mode, int64_t at, int64_t length) {
  if (at >= 0 && at < length) return at;
  switch (mode) {
    case 1:  // reflect: the edge is not repeated
      return at < 0 ? -at : 2 * (length - 1) - at;
    case 2:  // symmetric: the edge is repeated
      return at < 0 ? -at - 1 : 2 * length - 1 - at;
    case 3:  // clamp to edge
      return at < 0 ? 0 : length - 1;
    case 5:  // periodic
      return ((at % length) + length) % length;
    default:
      return -1;
  }
}

std::vector<int64_t> padded_offsets(const Type& operand, const Shape& shape, int64_t mode,
                                    const Shape& left) {
  std::vector<int64_t> offsets = {0};
  const Shape strides = packed_strides(operand.shape);
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    std::vector<int64_t> finer;
    for (const int64_t offset : offsets) {
      for (int64_t i = 0; i < shape[axis]; ++i) {
        const int64_t source = padded_source(mode, i - left[axis], operand.shape[axis]);
        if (source >= operand.shape[axis]) refuse("pad", "is wider than the operand allows");
        finer.push_back(offset < 0 || source < 0 ? -1 : offset + source * strides[axis]);
      }
    }
    offsets = std::move(finer);
  }
  return offsets;
}

}  // namespace

Op pad(const Type& operand, int64_t mode, const Shape& left, const Shape& right, double value) {
  require_rank("pad", left, operand);
  require_rank("pad", right, operand);
  if (mode == 6) refuse("pad", "mode AntiPeriodic is not known to the double");
  Type type = operand;
  for (size_t i = 0; i < type.shape.size(); ++i) {
    if (left[i] < 0 || right[i] < 0) refuse("pad", "requires padding of 0 or more");
    type.shape[i] += left[i] + right[i];
  }
  check_tensor("pad", type);
  const double fill = mode == 4 ? 0.0 : value;
  return single("pad", type, [=](Inputs in) {
    const std::vector<int64_t> offsets = padded_offsets(operand, type.shape, mode, left);
    std::vector<uint8_t> bytes = take(in[0], type, offsets).bytes();
    const Type one{type.data_type, {1}};
    const Array filling = Array::from_floats(one, {static_cast<float>(fill)});
    const auto size = static_cast<size_t>(size_of(type.data_type));
    for (size_t i = 0; i < offsets.size(); ++i) {
      if (offsets[i] < 0) std::memcpy(bytes.data() + i * size, filling.bytes().data(), size);
    }
    return Array(type, std::move(bytes));
  });
}

Op tile(const Type& operand, const Shape& multiplier) {
  require_rank("tile", multiplier, operand);
  const Shape packed = packed_strides(operand.shape);
  Type type = operand;
  Shape interleaved, strides;  // each axis as repeats x length
  for (size_t i = 0; i < operand.shape.size(); ++i) {
    if (multiplier[i] < 1) refuse("tile", "requires multipliers of 1 or more");
    type.shape[i] *= multiplier[i];
    interleaved.insert(interleaved.end(), {multiplier[i], operand.shape[i]});
    strides.insert(strides.end(), {0, packed[i]});
  }
  return strided("tile", type, interleaved, strides, 0);
}

Op reverse(const Type& operand, const Shape& axes) {
  Shape strides = packed_strides(operand.shape);
  int64_t base = 0;
  for (const int64_t axis : axes) {
    require_axis("reverse", axis, operand.rank());
    const auto i = static_cast<size_t>(axis);
    if (strides[i] < 0) refuse("reverse", "axes must be unique");
    base += (operand.shape[i] - 1) * strides[i];
    strides[i] = -strides[i];
  }
  return strided("reverse", operand, operand.shape, strides, base);
}

Op broadcast(const Type& operand, const Shape& shape) {
  const Type type{operand.data_type, shape};
  if (operand.shape.size() > shape.size() ||
      broadcast_shape("broadcast_to", operand.shape, shape) != shape) {
    refuse("broadcast_to", "cannot broadcast '" + text_of(operand) + "' to " + text_of(shape));
  }
  return moved("broadcast_to", type, [=] { return broadcast_offsets(operand.shape, shape); });
}

Op flatten(const Type& operand, int64_t axis) {
  if (axis < 0) axis += operand.rank();
  if (axis < 0 || axis > operand.rank()) refuse("flatten2d", "axis is out of range");
  const Shape rows(operand.shape.begin(), operand.shape.begin() + axis);
  const Shape columns(operand.shape.begin() + axis, operand.shape.end());
  return relabelled("flatten2d", {operand.data_type, {num_elements(rows), num_elements(columns)}});
}

Op squeeze(const Type& operand, const Shape& axes) {
  Type type{operand.data_type, {}};
  std::vector<bool> dropped(operand.shape.size(), false);
  for (int64_t axis : axes) {
    if (axis < 0) axis += operand.rank();
    require_axis("squeeze", axis, operand.rank());
    if (operand.shape[static_cast<size_t>(axis)] != 1) {
      refuse("squeeze",
             "axis " + std::to_string(axis) + " of '" + text_of(operand) + "' is not of length 1");
    }
    dropped[static_cast<size_t>(axis)] = true;
  }
  for (size_t i = 0; i < dropped.size(); ++i) {
    if (!dropped[i]) type.shape.push_back(operand.shape[i]);
  }
  return relabelled("squeeze", type);
}

Op squeeze_all(const Type& operand) {
  Shape axes;
  for (int64_t i = 0; i < operand.rank(); ++i) {
    if (operand.shape[static_cast<size_t>(i)] == 1) axes.push_back(i);
  }
  return squeeze(operand, axes);
}

Op expand_dims(const Type& operand, const Shape& axes) {
  Type type = operand;
  const int64_t rank = operand.rank() + static_cast<int64_t>(axes.size());
  Shape sorted = axes;
  for (int64_t& axis : sorted) {
    if (axis < 0) axis += rank;
    require_axis("expand_dims", axis, rank);
  }
  std::ranges::sort(sorted);
  for (const int64_t axis : sorted) type.shape.insert(type.shape.begin() + axis, 1);
  return relabelled("expand_dims", type);
}

Op band_part(const Type& operand, int64_t num_lower, int64_t num_upper) {
  if (operand.rank() < 2) refuse("band_part", "requires rank 2 or more");
  return moved("band_part", operand, [=] {
    const int64_t columns = operand.shape.back();
    const int64_t rows = operand.shape[operand.shape.size() - 2];
    std::vector<int64_t> offsets;
    for (int64_t i = 0; i < num_elements(operand.shape); ++i) {
      const int64_t row = i / columns % rows;
      const int64_t column = i % columns;
      const bool kept = (num_lower < 0 || row - column <= num_lower) &&
                        (num_upper < 0 || column - row <= num_upper);
      offsets.push_back(kept ? i : -1);
    }
    return offsets;
  });
}

}  // namespace metalhost

// Kernels that move elements without computing: reshape, permute, broadcast_to, concat, pad,
// slice and slice_update. They know element sizes, not types.
#include <algorithm>
#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "backends/cpu/kernels/families.h"
#include "backends/cpu/kernels/strided_copy.h"
#include "backends/cpu/threads/team.h"
#include "support/half.h"

namespace lucid::cpu {
namespace {

std::unique_ptr<Kernel> make_copy(const NodeView& view) {
  const int64_t size_bytes = view.output(0).size_bytes();
  return kernel([size_bytes](const RunContext& context) {
    copy_bytes(context.inputs[0], context.outputs[0], size_bytes);
  });
}

std::unique_ptr<Kernel> make_strided(const NodeView& view, const AxisArray& source) {
  const ir::ValueType& out = view.output(0);
  const StridedCopy copy(out.shape, source, out.shape.strides());
  const int64_t element_bytes = size_bytes(out.dtype);
  return kernel([copy, element_bytes](const RunContext& context) {
    copy.run(context.inputs[0], context.outputs[0], element_bytes);
  });
}

std::unique_ptr<Kernel> make_permute(const NodeView& view) {
  const AxisArray strides = view.input(0).shape.strides();
  const ir::Ints& dims = view.node.ints("dims");
  AxisArray source{};
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    source[axis] = strides[static_cast<size_t>(dims[axis])];
  }
  return make_strided(view, source);
}

std::unique_ptr<Kernel> make_broadcast_to(const NodeView& view) {
  const Shape& from = view.input(0).shape;
  const Shape& to = view.output(0).shape;
  const AxisArray strides = from.strides();
  AxisArray source{};
  for (int axis = 0; axis < from.rank(); ++axis) {
    const auto target_axis = static_cast<size_t>(to.rank() - from.rank() + axis);
    source[target_axis] = from[axis] == 1 ? 0 : strides[static_cast<size_t>(axis)];
  }
  return make_strided(view, source);
}

StridedView place_in_concat(const NodeView& view, size_t input) {
  const auto dim = static_cast<size_t>(view.node.integer("dim"));
  StridedView result = dense_view(view.output(0).shape);
  for (size_t i = 0; i < input; ++i) {
    result.offset += view.input(i).shape.sizes()[dim] * result.strides[dim];
  }
  return result;
}

std::unique_ptr<Kernel> make_concat(const NodeView& view) {
  struct Part {
    StridedCopy copy;
    int64_t from_bytes;
    int64_t to_bytes;
  };
  const int64_t element_bytes = size_bytes(view.output(0).dtype);
  std::vector<Part> parts;
  for (size_t i = 0; i < view.num_inputs(); ++i) {
    const StridedView from = view.input_view(i);
    const StridedView to = place_in_concat(view, i);
    parts.push_back({StridedCopy(view.input(i).shape, from.strides, to.strides),
                     from.offset * element_bytes, to.offset * element_bytes});
  }
  return kernel([parts, element_bytes](const RunContext& context) {
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i].copy.run(context.in<char>(i) + parts[i].from_bytes,
                        context.out<char>(0) + parts[i].to_bytes, element_bytes);
    }
  });
}

/// The bytes of a number as an element, in the low bytes of the result.
template <class T>
uint64_t element_bits(T element) {
  uint64_t bits = 0;
  std::memcpy(&bits, &element, sizeof(element));
  return bits;
}

uint64_t encode(const ir::AttrValue& value, DType dtype) {
  const bool is_integer_value = std::holds_alternative<int64_t>(value);
  const double real =
      is_integer_value ? static_cast<double>(std::get<int64_t>(value)) : std::get<double>(value);
  switch (dtype) {
    case DType::kFloat16:
      return element_bits(to_float16(static_cast<float>(real)));
    case DType::kBFloat16:
      return element_bits(to_bfloat16(static_cast<float>(real)));
    case DType::kFloat32:
      return element_bits(static_cast<float>(real));
    case DType::kFloat64:
      return element_bits(real);
    case DType::kBool:
      return real != 0 ? 1 : 0;
    default:
      // Two's complement: the low bytes are the element for every integer type.
      return element_bits(is_integer_value ? std::get<int64_t>(value) : static_cast<int64_t>(real));
  }
}

template <class T>
void fill_typed(void* target, int64_t count, uint64_t bits) {
  constexpr int64_t kPiece = 16384;
  T element;
  std::memcpy(&element, &bits, sizeof(element));
  parallel_for(count, kPiece, 0.1, [&](int64_t begin, int64_t end) {
    std::fill(static_cast<T*>(target) + begin, static_cast<T*>(target) + end, element);
  });
}

void fill_elements(void* target, int64_t count, int64_t element_bytes, uint64_t bits) {
  switch (element_bytes) {
    case 1:
      return fill_typed<uint8_t>(target, count, bits);
    case 2:
      return fill_typed<uint16_t>(target, count, bits);
    case 4:
      return fill_typed<uint32_t>(target, count, bits);
    default:
      return fill_typed<uint64_t>(target, count, bits);
  }
}

std::unique_ptr<Kernel> make_pad(const NodeView& view) {
  const ir::ValueType& out = view.output(0);
  const Shape& shape = view.input(0).shape;
  const ir::Ints& low = view.node.ints("low");
  const ir::Ints& high = view.node.ints("high");
  const AxisArray source_strides = shape.strides();
  const AxisArray target_strides = out.shape.strides();
  AxisArray kept{};
  int64_t source_offset = 0;
  int64_t target_offset = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    // A negative width cuts elements off instead.
    const int64_t cut = std::max<int64_t>(0, -low[a]) + std::max<int64_t>(0, -high[a]);
    kept[a] = std::max<int64_t>(0, shape[axis] - cut);
    source_offset += std::max<int64_t>(0, -low[a]) * source_strides[a];
    target_offset += std::max<int64_t>(0, low[a]) * target_strides[a];
  }
  const int64_t element_bytes = size_bytes(out.dtype);
  const StridedCopy copy(Shape(std::span(kept.data(), static_cast<size_t>(shape.rank()))),
                         source_strides, target_strides);
  const uint64_t bits = encode(view.node.attr("value"), out.dtype);
  const int64_t count = out.num_elements();
  return kernel([=](const RunContext& context) {
    fill_elements(context.outputs[0], count, element_bytes, bits);
    copy.run(context.in<char>(0) + source_offset * element_bytes,
             context.out<char>(0) + target_offset * element_bytes, element_bytes);
  });
}

/// The part of a tensor that a slice names, resolved at run time.
struct Window {
  int64_t offset = 0;  ///< of the first element
  AxisArray strides{};
};

/// Places of the run-time attributes in the schema, and the shapes of the whole and the slice.
struct SliceSpec {
  explicit SliceSpec(const NodeView& view, const Shape& whole_shape, const Shape& slice_shape)
      : op(view.node.op->name),
        starts(static_cast<size_t>(view.node.op->attr_index("starts"))),
        steps(static_cast<size_t>(view.node.op->attr_index("steps"))),
        whole(whole_shape),
        part(slice_shape) {}

  /// Throws OutOfRangeError if an element of the slice lies outside.
  Window resolve(const ir::Attrs& attrs) const {
    const auto& first = std::get<ir::Ints>(attrs[starts]);
    const auto& step = std::get<ir::Ints>(attrs[steps]);
    const AxisArray whole_strides = whole.strides();
    Window window;
    if (part.num_elements() == 0) return window;
    for (int axis = 0; axis < whole.rank(); ++axis) {
      const auto a = static_cast<size_t>(axis);
      check(first[a], whole[axis]);
      window.offset += first[a] * whole_strides[a];
      if (part[axis] == 1) continue;  // its step may be any number
      check(first[a] + (part[axis] - 1) * step[a], whole[axis]);
      window.strides[a] = step[a] * whole_strides[a];
    }
    return window;
  }

  std::string_view op;
  size_t starts;
  size_t steps;
  Shape whole;
  Shape part;

 private:
  void check(int64_t place, int64_t size) const {
    if (place >= 0 && place < size) return;
    throw Error(ErrorKind::kIndex, std::string(op) + ": index out of range: " +
                                       std::to_string(place) + " for size " + std::to_string(size));
  }
};

std::unique_ptr<Kernel> make_slice(const NodeView& view) {
  const SliceSpec spec(view, view.input(0).shape, view.output(0).shape);
  const int64_t element_bytes = size_bytes(view.output(0).dtype);
  return kernel([spec, element_bytes](const RunContext& context) {
    const Window window = spec.resolve(*context.attrs);
    if (spec.part.num_elements() == 0) return;
    const StridedCopy copy(spec.part, window.strides, spec.part.strides());
    copy.run(context.in<char>(0) + window.offset * element_bytes, context.outputs[0],
             element_bytes);
  });
}

std::unique_ptr<Kernel> make_slice_update(const NodeView& view) {
  const SliceSpec spec(view, view.input(0).shape, view.input(1).shape);
  const int64_t element_bytes = size_bytes(view.output(0).dtype);
  const int64_t whole_bytes = view.output(0).size_bytes();
  return kernel([spec, element_bytes, whole_bytes](const RunContext& context) {
    const Window window = spec.resolve(*context.attrs);
    copy_bytes(context.inputs[0], context.outputs[0], whole_bytes);
    if (spec.part.num_elements() == 0) return;
    const StridedCopy copy(spec.part, spec.part.strides(), window.strides);
    copy.run(context.inputs[1], context.out<char>(0) + window.offset * element_bytes,
             element_bytes);
  });
}

std::optional<StridedView> view_permuted(const NodeView& view, const StridedView& input) {
  const ir::Ints& dims = view.node.ints("dims");
  StridedView result{input.offset, {}};
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    result.strides[axis] = input.strides[static_cast<size_t>(dims[axis])];
  }
  return result;
}

std::optional<StridedView> view_broadcast(const NodeView& view, const StridedView& input) {
  const Shape& from = view.input(0).shape;
  const int lead = view.output(0).shape.rank() - from.rank();
  StridedView result{input.offset, {}};
  for (int axis = 0; axis < from.rank(); ++axis) {
    if (from[axis] == 1) continue;
    result.strides[static_cast<size_t>(lead + axis)] = input.strides[static_cast<size_t>(axis)];
  }
  return result;
}

std::optional<StridedView> view_slice(const NodeView& view, const StridedView& input) {
  const ir::Ints& starts = view.node.ints("starts");
  const ir::Ints& steps = view.node.ints("steps");
  StridedView result{input.offset, {}};
  for (size_t axis = 0; axis < starts.size(); ++axis) {
    result.offset += starts[axis] * input.strides[axis];
    result.strides[axis] = steps[axis] * input.strides[axis];
  }
  return result;
}

std::optional<StridedView> view_same(const NodeView&, const StridedView& input) { return input; }

std::optional<StridedView> view_reshaped(const NodeView& view, const StridedView& input) {
  return reshaped_view(view.input(0).shape, input, view.output(0).shape);
}

bool reads_any(const NodeView&, size_t, const StridedView&) { return true; }

constexpr KernelRow kRows[] = {
    {"reshape", make_copy, view_reshaped},
    {"detach", make_copy, view_same},
    {"permute", make_permute, view_permuted},
    {"broadcast_to", make_broadcast_to, view_broadcast},
    {"concat", make_concat, nullptr, reads_any, nullptr, place_in_concat},
    {"pad", make_pad},
    {"slice", make_slice, view_slice},
    {"slice_update", make_slice_update},
};

}  // namespace

std::span<const KernelRow> shape_kernels() { return kRows; }

}  // namespace lucid::cpu

#include "ops/infer.h"

#include <algorithm>
#include <string>
#include <vector>

namespace lucid::ops {
namespace {

using ir::InferArgs;
using ir::Ints;
using ir::ValueTypes;

std::string text(DType dtype) { return std::string(name(dtype)); }

/// "(2, 3), (4,) and ()": the shapes of all inputs.
std::string input_shapes(const InferArgs& args) {
  std::string list = to_string(args.shape(0));
  for (size_t i = 1; i < args.num_inputs(); ++i) {
    list += i + 1 == args.num_inputs() ? " and " : ", ";
    list += to_string(args.shape(i));
  }
  return list;
}

int64_t checked_axis(const InferArgs& args, int64_t axis, const Shape& shape) {
  if (axis >= 0 && axis < shape.rank()) return axis;
  const std::string remedy = shape.rank() == 0
                                 ? "a 0-d tensor has no axes, reshape it to (1,) first"
                                 : "use 0 to " + std::to_string(shape.rank() - 1);
  args.fail(ErrorKind::kIndex, "axis out of range: " + std::to_string(axis) + " for shape " +
                                   to_string(shape) + "; " + remedy);
}

void require_one_dtype(const InferArgs& args) {
  for (size_t i = 1; i < args.num_inputs(); ++i) require_same_dtype(args, 0, i);
}

}  // namespace

void require_same_dtype(const InferArgs& args, size_t a, size_t b) {
  if (args.dtype(a) == args.dtype(b)) return;
  args.fail(ErrorKind::kDType, "dtypes differ: " + text(args.dtype(a)) + " and " +
                                   text(args.dtype(b)) + "; cast one of them first");
}

void require_floating(const InferArgs& args, size_t input) {
  if (is_floating(args.dtype(input))) return;
  args.fail(ErrorKind::kDType, "dtype is not floating: " + text(args.dtype(input)) +
                                   "; cast to a floating dtype first");
}

void require_number(const InferArgs& args, size_t input) {
  if (args.dtype(input) != DType::kBool) return;
  args.fail(ErrorKind::kDType,
            "dtype is not a number: bool; cast to an integer or floating dtype first");
}

void require_integral(const InferArgs& args, size_t input) {
  if (!is_floating(args.dtype(input))) return;
  args.fail(ErrorKind::kDType, "dtype is floating: " + text(args.dtype(input)) +
                                   "; cast to an integer dtype or bool first");
}

void require_index(const InferArgs& args, size_t input) {
  const DType dtype = args.dtype(input);
  if (dtype == DType::kInt32 || dtype == DType::kInt64) return;
  args.fail(ErrorKind::kDType,
            "dtype does not fit an index: " + text(dtype) + "; cast to int32 or int64 first");
}

void require_generator(const InferArgs& args, size_t input) {
  const ir::ValueType& type = args.input(input);
  if (type.dtype == DType::kInt64 && type.shape == Shape{2}) return;
  args.fail(ErrorKind::kType, "input is no generator state: " + ir::to_string(type) +
                                  "; pass int64[2], the seed and the offset");
}

Shape broadcast_shape(const InferArgs& args) {
  int rank = 0;
  for (size_t i = 0; i < args.num_inputs(); ++i) rank = std::max(rank, args.shape(i).rank());
  std::vector<int64_t> sizes(static_cast<size_t>(rank), 1);
  for (size_t i = 0; i < args.num_inputs(); ++i) {
    const Shape& shape = args.shape(i);
    for (int axis = 0; axis < shape.rank(); ++axis) {
      int64_t& size = sizes[static_cast<size_t>(rank - shape.rank() + axis)];
      if (shape[axis] == 1 || shape[axis] == size) continue;
      if (size != 1) {
        args.fail("shapes differ: " + input_shapes(args) + "; broadcast one of them first");
      }
      size = shape[axis];
    }
  }
  return Shape(sizes);
}

int axis_attr(const InferArgs& args, std::string_view attr, const Shape& shape) {
  return static_cast<int>(checked_axis(args, args.integer(attr), shape));
}

Ints axes_attr(const InferArgs& args, std::string_view attr, const Shape& shape) {
  const Ints& axes = args.ints(attr);
  std::vector<bool> seen(static_cast<size_t>(shape.rank()), false);
  for (const int64_t axis : axes) {
    const auto place = static_cast<size_t>(checked_axis(args, axis, shape));
    if (seen[place]) {
      args.fail(ErrorKind::kUser, "axis stands twice: " + std::to_string(axis) + " in " +
                                      ir::to_string(axes) + "; list each axis once");
    }
    seen[place] = true;
  }
  return axes;
}

Shape shape_attr(const InferArgs& args, std::string_view attr) {
  try {
    return Shape(args.ints(attr));
  } catch (const Error& error) {
    args.fail(error.kind(), error.what());
  }
}

Shape reduced_shape(const Shape& shape, const Ints& axes, bool keepdim) {
  std::vector<int64_t> sizes;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool reduced = std::ranges::find(axes, axis) != axes.end();
    if (reduced && !keepdim) continue;
    sizes.push_back(reduced ? 1 : shape[axis]);
  }
  return Shape(sizes);
}

ValueTypes infer_elementwise(const InferArgs& args) {
  require_one_dtype(args);
  return {{args.dtype(0), broadcast_shape(args)}};
}

ValueTypes infer_floating(const InferArgs& args) {
  require_floating(args, 0);
  return infer_elementwise(args);
}

ValueTypes infer_number(const InferArgs& args) {
  require_number(args, 0);
  return infer_elementwise(args);
}

ValueTypes infer_integral(const InferArgs& args) {
  require_integral(args, 0);
  return infer_elementwise(args);
}

ValueTypes infer_predicate(const InferArgs& args) {
  require_one_dtype(args);
  return {{DType::kBool, broadcast_shape(args)}};
}

}  // namespace lucid::ops

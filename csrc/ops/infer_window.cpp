#include "ops/infer_window.h"

#include <algorithm>

namespace lucid::ops {
namespace {

std::string text(std::string_view view) { return std::string(view); }

}  // namespace

std::string described(const ir::InferArgs& args, InputName input) {
  return text(input.name) + " " + to_string(args.shape(input.index));
}

void require_floating(const ir::InferArgs& args, std::initializer_list<InputName> inputs) {
  const InputName first = *inputs.begin();
  const DType dtype = args.dtype(first.index);
  if (!is_floating(dtype)) {
    args.fail(ErrorKind::kDType, text(first.name) + " must be floating point: got " +
                                     text(name(dtype)) + "; cast it to float32 first");
  }
  for (const InputName input : inputs) {
    if (!args.has(input.index) || args.dtype(input.index) == dtype) continue;
    args.fail(ErrorKind::kDType, "dtypes differ: " + text(first.name) + " " + text(name(dtype)) +
                                     ", " + text(input.name) + " " +
                                     text(name(args.dtype(input.index))) + "; cast one of them");
  }
}

void require_dtype(const ir::InferArgs& args, InputName input, DType expected) {
  const DType found = args.dtype(input.index);
  if (found == expected) return;
  args.fail(ErrorKind::kDType, text(input.name) + " must be " + text(name(expected)) + ": got " +
                                   text(name(found)) + "; cast it to " + text(name(expected)) +
                                   " first");
}

void require_index(const ir::InferArgs& args, InputName input) {
  const DType found = args.dtype(input.index);
  if (found == DType::kInt32 || found == DType::kInt64) return;
  args.fail(ErrorKind::kDType, text(input.name) + " must be int32 or int64: got " +
                                   text(name(found)) + "; cast it to int64 first");
}

void require_shape(const ir::InferArgs& args, InputName input, const Shape& expected,
                   InputName reference) {
  if (!args.has(input.index) || args.shape(input.index) == expected) return;
  args.fail(text(input.name) + " does not fit " + text(reference.name) + ": " +
            described(args, input) + ", " + described(args, reference) + "; give " +
            text(input.name) + " the shape " + to_string(expected));
}

void require_eps(const ir::InferArgs& args) {
  const double eps = args.real("eps");
  if (eps >= 0) return;
  args.fail(ErrorKind::kUser, "eps must not be negative: got " + ir::to_string(ir::AttrValue(eps)) +
                                  "; 1e-5 is usual");
}

void require_window(const ir::InferArgs& args, std::string_view attr, int count, int64_t low) {
  const Ints& values = args.ints(attr);
  if (values.size() != static_cast<size_t>(count)) {
    args.fail(ErrorKind::kUser, text(attr) + " has a wrong length: " + ir::to_string(values) +
                                    " for " + std::to_string(count) +
                                    " spatial axes; give one number for each");
  }
  const bool fits = std::ranges::all_of(
      values, [low](int64_t value) { return value >= low && value <= kMaxWindow; });
  if (fits) return;
  args.fail(ErrorKind::kUser, text(attr) + " out of range: " + ir::to_string(values) +
                                  "; each number must be from " + std::to_string(low) + " to " +
                                  std::to_string(kMaxWindow));
}

int64_t Window::count(int64_t size) const {
  const int64_t room = size + padding_low + padding_high - extent();
  if (room < 0 && !(ceil_mode && room + stride > 0)) return 0;
  const int64_t rounded = ceil_mode ? room + stride - 1 : room;
  const int64_t places = rounded / stride + 1;
  const bool last_starts_late = ceil_mode && (places - 1) * stride >= size + padding_low;
  return last_starts_late ? places - 1 : places;
}

ValueId widened(Builder& b, ValueId value) {
  return b.cast(value, statistics_dtype(b.dtype(value)));
}

ValueId detached(Builder& b, ValueId value) { return b.op("detach", {value}); }

ValueId anchored(Builder& b, ValueId computed, ValueId given) {
  const ValueId difference = b.sub(given, computed);
  const ValueId constant = detached(b, difference);
  return b.add(computed, constant);
}

}  // namespace lucid::ops

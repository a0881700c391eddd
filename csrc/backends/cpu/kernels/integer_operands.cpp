#include "backends/cpu/kernels/integer_operands.h"

#include <cstdint>
#include <string>
#include <utility>

#include "support/errors.h"

namespace lucid::cpu {
namespace {

constexpr size_t kChecked = 1;  // place of the divisor, of the exponent

bool is_power(const NodeView& view) { return view.node.op->name == "pow"; }

using FindFn = bool (*)(const void* elements, int64_t count);

// No early return: the loops are vectorised, and what they look for is the exception.
template <class T>
bool has_zero(const void* elements, int64_t count) {
  bool found = false;
  for (int64_t i = 0; i < count; ++i) found |= static_cast<const T*>(elements)[i] == T{0};
  return found;
}

template <class T>
bool has_negative(const void* elements, int64_t count) {
  bool found = false;
  for (int64_t i = 0; i < count; ++i) found |= static_cast<const T*>(elements)[i] < T{0};
  return found;
}

template <class T>
FindFn find_refused(bool power) {
  return power ? has_negative<T> : has_zero<T>;
}

FindFn find_refused(const NodeView& view) {
  const bool power = is_power(view);
  switch (view.input(kChecked).dtype) {
    case DType::kUInt8:
      return power ? nullptr : has_zero<uint8_t>;
    case DType::kInt8:
      return find_refused<int8_t>(power);
    case DType::kInt16:
      return find_refused<int16_t>(power);
    case DType::kInt32:
      return find_refused<int32_t>(power);
    case DType::kInt64:
      return find_refused<int64_t>(power);
    default:
      return nullptr;
  }
}

std::string text_of_refusal(const NodeView& view) {
  if (is_power(view)) {
    return "pow: integers to negative integer powers are not allowed; convert the base with "
           ".float()";
  }
  return std::string(view.node.op->name) +
         ": integer division by zero; convert the operands with .float(), or replace the zeros "
         "with lucid.where";
}

class CheckedKernel final : public Kernel {
 public:
  CheckedKernel(const NodeView& view, std::unique_ptr<Kernel> inner)
      : inner_(std::move(inner)),
        has_refused_(find_refused(view)),
        count_(view.output(0).num_elements() == 0 ? 0 : view.input(kChecked).num_elements()),
        text_(text_of_refusal(view)) {}

  size_t scratch_bytes() const override { return inner_->scratch_bytes(); }

  void run(const RunContext& context) const override {
    if (has_refused_(context.inputs[kChecked], count_)) throw Error(ErrorKind::kUser, text_);
    inner_->run(context);
  }

 private:
  std::unique_ptr<Kernel> inner_;
  FindFn has_refused_;
  int64_t count_;
  std::string text_;
};

}  // namespace

bool has_refused_operands(const NodeView& view) {
  const std::string_view op = view.node.op->name;
  const bool divides = op == "floor_divide" || op == "remainder" || op == "fmod";
  return (divides || op == "pow") && find_refused(view) != nullptr;
}

std::unique_ptr<Kernel> with_checked_operand(const NodeView& view, std::unique_ptr<Kernel> inner) {
  return std::make_unique<CheckedKernel>(view, std::move(inner));
}

}  // namespace lucid::cpu

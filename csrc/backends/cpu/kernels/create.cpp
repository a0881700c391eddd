// Kernels of tensors made from attributes alone.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <variant>

#include "backends/cpu/kernels/families.h"
#include "backends/cpu/simd/tile.h"
#include "backends/cpu/threads/team.h"

namespace lucid::cpu {
namespace {

constexpr int64_t kTile = 2048;
constexpr int64_t kGrain = 32768;
constexpr double kFillNs = 0.1;

/// One element of `dtype` with the value of a number attribute.
std::array<char, 8> element_of(const ir::AttrValue& value, DType dtype) {
  std::array<char, 8> bytes{};
  const int64_t* whole = std::get_if<int64_t>(&value);
  const void* source = whole != nullptr ? static_cast<const void*>(whole)
                                        : static_cast<const void*>(&std::get<double>(value));
  const DType from = whole != nullptr ? DType::kInt64 : DType::kFloat64;
  find_cast(from, dtype)(&source, bytes.data(), 1, nullptr);
  return bytes;
}

template <class T>
std::unique_ptr<Kernel> fill_kernel(std::array<char, 8> bytes, int64_t count) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return kernel([value, count](const RunContext& context) {
    T* y = context.out<T>(0);
    parallel_for(count, kGrain, kFillNs,
                 [&](int64_t begin, int64_t end) { std::fill(y + begin, y + end, value); });
  });
}

std::unique_ptr<Kernel> make_full(const NodeView& view) {
  const ir::ValueType& output = view.output(0);
  const std::array<char, 8> bytes = element_of(view.node.attr("value"), output.dtype);
  const int64_t count = output.num_elements();
  switch (size_bytes(output.dtype)) {
    case 1:
      return fill_kernel<uint8_t>(bytes, count);
    case 2:
      return fill_kernel<uint16_t>(bytes, count);
    case 4:
      return fill_kernel<uint32_t>(bytes, count);
    default:
      return fill_kernel<uint64_t>(bytes, count);
  }
}

/// start + i step in Number (uint64_t, so that integers wrap around, or double), converted to the
/// output's dtype.
template <class Number>
std::unique_ptr<Kernel> arange_kernel(Number start, Number step, const ir::ValueType& output) {
  const bool whole = std::is_same_v<Number, uint64_t>;
  const TileFn convert = find_cast(whole ? DType::kInt64 : DType::kFloat64, output.dtype);
  const int64_t item_bytes = size_bytes(output.dtype);
  const int64_t count = output.num_elements();
  return kernel([=](const RunContext& context) {
    parallel_for(count, kTile, 1.0, [&](int64_t begin, int64_t end) {
      alignas(64) Number values[kTile];
      for (int64_t i = begin; i < end; ++i) {
        values[i - begin] = start + static_cast<Number>(i) * step;
      }
      const void* input = values;
      convert(&input, context.out<char>(0) + begin * item_bytes, end - begin, nullptr);
    });
  });
}

std::unique_ptr<Kernel> make_arange(const NodeView& view) {
  const ir::AttrValue& start = view.node.attr("start");
  const ir::AttrValue& step = view.node.attr("step");
  const bool whole =
      std::holds_alternative<int64_t>(start) && std::holds_alternative<int64_t>(step);
  if (whole) {
    return arange_kernel(static_cast<uint64_t>(std::get<int64_t>(start)),
                         static_cast<uint64_t>(std::get<int64_t>(step)), view.output(0));
  }
  return arange_kernel(view.node.real("start"), view.node.real("step"), view.output(0));
}

std::unique_ptr<Kernel> make_constant(const NodeView& view) {
  const size_t place = static_cast<size_t>(view.node.op->attr_index("data"));
  return kernel([place](const RunContext& context) {
    const std::string& data = std::get<std::string>((*context.attrs)[place]);
    if (!data.empty()) std::memcpy(context.outputs[0], data.data(), data.size());
  });
}

constexpr KernelRow kRows[] = {
    {"full", make_full}, {"arange", make_arange}, {"constant", make_constant}};

}  // namespace

std::span<const KernelRow> create_kernels() { return kRows; }

}  // namespace lucid::cpu

#include "backends/cpu/kernels/half_operands.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "backends/cpu/simd/tile.h"
#include "backends/cpu/threads/team.h"

namespace lucid::cpu {
namespace {

/// A half operand and where its float32 copy lies in scratch.
struct Operand {
  size_t index;
  int64_t count;
  size_t offset;
  TileFn convert;
  int64_t half_bytes;
};

constexpr int64_t kPiece = 8192;
constexpr double kNsPerElement = 0.3;

void convert(const Operand& operand, const char* source, int64_t source_bytes, char* target,
             int64_t target_bytes) {
  parallel_for(operand.count, kPiece, kNsPerElement, [&](int64_t begin, int64_t end) {
    const void* input = source + begin * source_bytes;
    operand.convert(&input, target + begin * target_bytes, end - begin, nullptr);
  });
}

class HalfKernel final : public Kernel {
 public:
  HalfKernel(const NodeView& view, std::unique_ptr<Kernel> inner)
      : inner_(std::move(inner)),
        num_inputs_(view.num_inputs()),
        num_outputs_(view.node.outputs.size()) {
    for (size_t i = 0; i < num_inputs_; ++i) {
      if (view.has(i)) add(inputs_, i, view.input(i), true);
    }
    for (size_t i = 0; i < num_outputs_; ++i) add(outputs_, i, view.output(i), false);
  }

  size_t scratch_bytes() const override { return bytes_ + inner_->scratch_bytes(); }

  void run(const RunContext& context) const override {
    constexpr int64_t kWide = sizeof(float);
    std::array<const void*, kMaxOperands> inputs{};
    std::array<void*, kMaxOperands> outputs{};
    std::copy_n(context.inputs, num_inputs_, inputs.begin());
    std::copy_n(context.outputs, num_outputs_, outputs.begin());
    char* scratch = static_cast<char*>(context.scratch);
    for (const Operand& operand : inputs_) {
      const char* source = static_cast<const char*>(inputs[operand.index]);
      convert(operand, source, operand.half_bytes, scratch + operand.offset, kWide);
      inputs[operand.index] = scratch + operand.offset;
    }
    for (const Operand& operand : outputs_) outputs[operand.index] = scratch + operand.offset;
    inner_->run({inputs.data(), outputs.data(), scratch + bytes_, context.attrs});
    for (const Operand& operand : outputs_) {
      convert(operand, scratch + operand.offset, kWide, context.out<char>(operand.index),
              operand.half_bytes);
    }
  }

 private:
  static constexpr size_t kMaxOperands = 12;

  void add(std::vector<Operand>& operands, size_t index, const ir::ValueType& type, bool is_input) {
    if (!is_half(type.dtype)) return;
    const TileFn convert_fn =
        is_input ? find_cast(type.dtype, DType::kFloat32) : find_cast(DType::kFloat32, type.dtype);
    operands.push_back(
        {index, type.num_elements(), bytes_, convert_fn, lucid::size_bytes(type.dtype)});
    const size_t wide_bytes = static_cast<size_t>(type.num_elements()) * sizeof(float);
    bytes_ += (wide_bytes + 63) / 64 * 64;
  }

  std::unique_ptr<Kernel> inner_;
  size_t num_inputs_;
  size_t num_outputs_;
  std::vector<Operand> inputs_;
  std::vector<Operand> outputs_;
  size_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> with_half_operands(const NodeView& view, std::unique_ptr<Kernel> inner) {
  return std::make_unique<HalfKernel>(view, std::move(inner));
}

}  // namespace lucid::cpu

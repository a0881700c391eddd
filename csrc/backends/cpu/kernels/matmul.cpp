// Kernels of matmul and linear.
#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>

#include "backends/cpu/engine/batch_offsets.h"
#include "backends/cpu/engine/gemm.h"
#include "backends/cpu/kernels/families.h"
#include "backends/cpu/kernels/half_operands.h"
#include "backends/cpu/threads/team.h"

namespace lucid::cpu {
namespace {

/// Size of an axis counted from the end; 1 before the first one.
int64_t from_end(const Shape& shape, int axis) {
  return axis > shape.rank() ? 1 : shape[shape.rank() - axis];
}

/// Matrices from one index to the next along the batch axis `axis` (counted from the end).
int64_t batch_step(const Shape& shape, int axis) {
  if (from_end(shape, axis) == 1) return 0;
  int64_t step = 1;
  for (int inner = 3; inner < axis; ++inner) step *= from_end(shape, inner);
  return step;
}

GemmSpec matmul_spec(const NodeView& view) {
  const Shape& a = view.input(0).shape;
  const Shape& b = view.input(1).shape;
  const Shape& c = view.output(0).shape;
  const bool transpose_a = view.node.flag("transpose_a");
  GemmSpec spec{.m = from_end(c, 2),
                .n = from_end(c, 1),
                .k = from_end(a, transpose_a ? 2 : 1),
                .transpose_a = transpose_a,
                .transpose_b = view.node.flag("transpose_b"),
                .dtype = view.input(0).dtype};
  for (int axis = c.rank(); axis > 2; --axis) {
    spec.batch.push_back(from_end(c, axis));
    spec.a_steps.push_back(batch_step(a, axis));
    spec.b_steps.push_back(batch_step(b, axis));
  }
  return spec;
}

GemmSpec linear_spec(const NodeView& view) {
  const Shape& x = view.input(0).shape;
  const Shape& w = view.input(1).shape;
  return {.m = product(x.sizes().first(static_cast<size_t>(x.rank() - 1))),
          .n = w[0],
          .k = w[1],
          .transpose_b = true,
          .bias = view.has(2),
          .dtype = view.input(0).dtype};
}

/// float32 in place of a half type, which is converted before and after.
GemmSpec computed(GemmSpec spec) {
  if (is_half(spec.dtype)) spec.dtype = DType::kFloat32;
  return spec;
}

class GemmKernel final : public Kernel {
 public:
  explicit GemmKernel(const GemmSpec& spec) : gemm_(make_gemm(computed(spec))), bias_(spec.bias) {}

  size_t scratch_bytes() const override { return gemm_->scratch_bytes(); }
  void run(const RunContext& context) const override {
    gemm_->run(context.inputs[0], context.inputs[1], bias_ ? context.inputs[2] : nullptr,
               context.outputs[0], context.scratch);
  }

 private:
  std::unique_ptr<Gemm> gemm_;
  bool bias_;
};

/// Products of integers, which wrap around.
template <class T>
class IntegerMatmul final : public Kernel {
 public:
  explicit IntegerMatmul(const GemmSpec& spec) : spec_(spec), offsets_(spec) {}

  void run(const RunContext& context) const override {
    const double row_ns = static_cast<double>(spec_.n * spec_.k) * 0.3;
    parallel_for(offsets_.count() * spec_.m, 1, row_ns, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        run_row(context.in<T>(0), context.in<T>(1), context.out<T>(0) + row * spec_.n, row);
      }
    });
  }

 private:
  using Wide = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

  void run_row(const T* a, const T* b, T* c, int64_t row) const {
    a += offsets_.a(row / spec_.m) * spec_.m * spec_.k;
    b += offsets_.b(row / spec_.m) * spec_.k * spec_.n;
    a += row % spec_.m * (spec_.transpose_a ? 1 : spec_.k);
    const int64_t a_depth = spec_.transpose_a ? spec_.m : 1;
    const int64_t b_depth = spec_.transpose_b ? 1 : spec_.n;
    const int64_t b_column = spec_.transpose_b ? spec_.k : 1;
    std::fill_n(c, spec_.n, T{0});
    for (int64_t p = 0; p < spec_.k; ++p) {
      const Wide x = static_cast<Wide>(a[p * a_depth]);
      for (int64_t j = 0; j < spec_.n; ++j) {
        const Wide y = static_cast<Wide>(b[p * b_depth + j * b_column]);
        c[j] = static_cast<T>(static_cast<Wide>(c[j]) + x * y);
      }
    }
  }

  GemmSpec spec_;
  BatchOffsets offsets_;
};

std::unique_ptr<Kernel> make_gemm_kernel(const NodeView& view, const GemmSpec& spec) {
  auto kernel = std::make_unique<GemmKernel>(spec);
  if (!is_half(spec.dtype)) return kernel;
  return with_half_operands(view, std::move(kernel));
}

std::unique_ptr<Kernel> make_matmul(const NodeView& view) {
  const GemmSpec spec = matmul_spec(view);
  switch (spec.dtype) {
    case DType::kUInt8:
      return std::make_unique<IntegerMatmul<uint8_t>>(spec);
    case DType::kInt8:
      return std::make_unique<IntegerMatmul<int8_t>>(spec);
    case DType::kInt16:
      return std::make_unique<IntegerMatmul<int16_t>>(spec);
    case DType::kInt32:
      return std::make_unique<IntegerMatmul<int32_t>>(spec);
    case DType::kInt64:
      return std::make_unique<IntegerMatmul<int64_t>>(spec);
    case DType::kBool:
      return nullptr;
    default:
      return make_gemm_kernel(view, spec);
  }
}

std::unique_ptr<Kernel> make_linear(const NodeView& view) {
  return make_gemm_kernel(view, linear_spec(view));
}

constexpr KernelRow kRows[] = {{"matmul", make_matmul}, {"linear", make_linear}};

}  // namespace

std::span<const KernelRow> matmul_kernels() { return kRows; }

}  // namespace lucid::cpu

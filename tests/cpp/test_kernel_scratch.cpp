// Kernels that keep scratch for each thread, run with more threads than they were made for.
#include "kernel_testing.h"

namespace lucid {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): a test file

// Large enough to be shared by four threads.
struct Call {
  std::string_view name;
  Inputs inputs;
  ir::Attrs attrs;
};

Value f32(const Shape& shape) { return normal(DType::kFloat32, shape); }

std::vector<Call> calls() {
  const Shape heads{8, 96, 32};
  const Shape image{8, 16, 32, 32};
  const Shape filters{32, 16, 3, 3};
  const Shape filtered{8, 32, 32, 32};
  const ir::Ints ones{1, 1};
  const ir::Attrs geometry{ones, ones, ones, ones, int64_t{1}};
  const auto with_shape = [&](const Shape& shape) {
    ir::Attrs attrs{ir::Ints(shape.sizes().begin(), shape.sizes().end())};
    attrs.insert(attrs.end(), geometry.begin(), geometry.end());
    return attrs;
  };
  return {
      {"attention", {f32(heads), f32(heads), f32(heads), {}}, {true, 0.2}},
      {"attention_grad",
       {f32(heads), f32(heads), f32(heads), f32(heads), f32(heads), f32({8, 96}), {}},
       {true, 0.2}},
      {"sort", {f32({64, 2000})}, {int64_t{1}, false}},
      {"sort", {f32({2000, 64})}, {int64_t{0}, true}},
      {"matmul", {f32({256, 512}), f32({256, 512})}, {true, false}},
      {"matmul", {f32({4, 300, 300}), f32({4, 300, 300})}, {false, true}},
      {"convolution", {f32(image), f32(filters), f32({32})}, geometry},
      {"convolution_input_grad", {f32(filtered), f32(filters)}, with_shape(image)},
      {"convolution_weight_grad", {f32(filtered), f32(image)}, with_shape(filters)},
      {"sum", {f32({4096, 300})}, {ir::Ints{0}, false}},
      {"layer_norm_grad",
       {f32({900, 256}), f32({900, 256}), f32({900}), f32({900}), f32({256})},
       {int64_t{1}}},
      {"batch_norm_grad", {f32(image), f32(image), f32({16}), f32({16}), f32({16})}, {}},
  };
}

}  // namespace

TEST(kernels_made_for_one_thread_run_on_four) {
  for (Call& call : calls()) run(call.name, std::move(call.inputs), std::move(call.attrs), 1);
}

TEST(kernels_made_for_four_threads_run_on_one) {
  for (Call& call : calls()) run(call.name, std::move(call.inputs), std::move(call.attrs), 4);
}

}  // namespace lucid

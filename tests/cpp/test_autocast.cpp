// Mixed precision: the casts that dispatch puts in front, in eager calls, traces and the backward.
#include <vector>

#include "runtime_testing.h"

namespace lucid {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): a test file
using runtime::AutocastModes;
using runtime::AutocastOff;

/// Turns mixed precision on for a scope.
class AutocastOn {
 public:
  explicit AutocastOn(Device device, DType dtype) : previous_(runtime::thread_state().autocast) {
    runtime::thread_state().autocast[static_cast<size_t>(device)] = {true, dtype};
  }
  ~AutocastOn() { runtime::thread_state().autocast = previous_; }
  AutocastOn(const AutocastOn&) = delete;
  AutocastOn& operator=(const AutocastOn&) = delete;

 private:
  AutocastModes previous_;
};

DType dtype_of(const TensorRef& tensor) { return tensor->type().dtype; }

TensorRef matrix(DType dtype = DType::kFloat32) {
  return tensor_of(dtype, Shape{1, 1}, std::vector<char>(8, 0));
}

DType product_dtype(const TensorRef& a, const TensorRef& b) {
  return dtype_of(call("matmul", {a, b}, {false, false}));
}

}  // namespace

TEST(policies_choose_the_dtype) {
  const AutocastOn on(Device::kCpu, DType::kFloat16);
  CHECK(product_dtype(matrix(), matrix()) == DType::kFloat16);
  CHECK(product_dtype(matrix(), matrix(DType::kBFloat16)) == DType::kFloat16);
  CHECK(product_dtype(matrix(DType::kFloat64), matrix(DType::kFloat64)) == DType::kFloat64);
  CHECK(dtype_of(call("exp", {matrix(DType::kFloat16)})) == DType::kFloat32);
  CHECK(dtype_of(call("tanh", {matrix(DType::kFloat16)})) == DType::kFloat16);
  CHECK(dtype_of(call("exp", {matrix(DType::kInt64)})) == DType::kFloat32);
}

TEST(a_mode_belongs_to_its_device) {
  const AutocastOn on(Device::kMetal, DType::kFloat16);
  CHECK(product_dtype(matrix(), matrix()) == DType::kFloat32);
}

TEST(a_scope_turns_it_off_and_puts_it_back) {
  const AutocastOn on(Device::kCpu, DType::kBFloat16);
  {
    const AutocastOff off;
    CHECK(product_dtype(matrix(), matrix()) == DType::kFloat32);
  }
  CHECK(product_dtype(matrix(), matrix()) == DType::kBFloat16);
}

TEST(the_dtype_of_a_mode_that_is_off_means_nothing) {
  const AutocastModes before = runtime::thread_state().autocast;
  AutocastModes other = before;
  other[0].dtype = DType::kFloat16;
  CHECK(other == before);
  other[0].enabled = true;
  CHECK(!(other == before));
}

TEST(gradients_go_back_through_the_casts_with_the_mode_off) {
  const AutocastOn on(Device::kCpu, DType::kBFloat16);
  const TensorRef x = parameter({2});
  // The rule of exp multiplies, that of the sum broadcasts: both in float32.
  const TensorRef y = call("sum", {call("exp", {call("mul", {x, x})})}, {ir::Ints{0}, false});
  backward(y);
  CHECK(x->grad()->type().dtype == DType::kFloat32);
  bool was_on = true;
  const TensorRef z = call("mul", {x, x});
  z->add_hook([&](const TensorRef&) {
    was_on = runtime::thread_state().autocast[0].enabled;
    return TensorRef();
  });
  backward(sum(z));
  CHECK(!was_on);
  CHECK(runtime::thread_state().autocast[0].enabled);
}

TEST(a_trace_records_the_same_casts) {
  const AutocastOn on(Device::kCpu, DType::kBFloat16);
  runtime::Recorder recorder;
  const TensorRef x = recorder.argument(matrix());
  const TensorRef y = call("matmul", {x, x}, {false, false});
  CHECK(dtype_of(y) == DType::kBFloat16);
  const runtime::Trace trace = recorder.finish({{y}});
  CHECK_EQ(trace.graph.nodes().size(), size_t{3});
  CHECK_EQ(trace.graph.nodes()[0].op->name, std::string_view("cast"));
  CHECK_EQ(trace.graph.nodes()[2].op->name, std::string_view("matmul"));
}

}  // namespace lucid

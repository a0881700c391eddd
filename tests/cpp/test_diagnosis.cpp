// Diagnosis of traces: gradients without a rule, operations without a kernel, and refusals.
#include <string>
#include <vector>

#include "compile/diagnosis.h"
#include "ops/builder.h"
#include "runtime_testing.h"

namespace lucid {

using namespace testing;  // NOLINT(google-build-using-namespace): a test file
using compile::diagnose;
using compile::Diagnosis;
using compile::GradientFlow;
using runtime::Recorder;
using runtime::Trace;

namespace {

ir::ValueTypes same_type(const ir::InferArgs& args) { return {args.input(0)}; }

// An operation that no backend and no gradient rule knows.
const ir::Op kForeign = {
    .name = "foreign", .doc = "nothing", .traits = ir::kPure, .infer = same_type};

ir::Grads foreign_vjp(ops::Builder& b, const ir::Node&, const ir::Grads& grads,
                      const std::vector<bool>&) {
  return {b.emit(kForeign, {grads[0]}, {}).front()};
}

// An operation with a kernel, the one of exp, whose gradient has none.
const ir::Op kHalfForeign = {
    .name = "exp", .doc = "exp", .traits = ir::kPure, .infer = same_type, .vjp = foreign_vjp};

TensorRef call_foreign(const ir::Op& op, const TensorRef& x) {
  const std::vector<Operand> operands = {x};
  return runtime::make_tensor(runtime::dispatch(op, operands, {}).front());
}

}  // namespace

TEST(an_operation_without_rule_or_kernel_is_told) {
  const TensorRef w = parameter({1, 2});
  Recorder recorder;
  const TensorRef y = call_foreign(kForeign, call("exp", {w}));
  const Trace trace = recorder.finish({{sum(y)}});
  const Diagnosis found = diagnose(trace, {.device = Device::kCpu});
  CHECK_EQ(found.rows.size(), 3);
  CHECK(found.rows[0].gradient == GradientFlow::kFlows);
  CHECK(found.rows[1].gradient == GradientFlow::kMissing);
  CHECK(!found.rows[1].has_rule);
  CHECK(!found.rows[0].backward.has_value());
  CHECK_EQ(found.rows[0].gap, "");
  CHECK_EQ(found.rows[1].gap,
           "foreign: no cpu kernel for inputs (float32[2]); convert them to float32 first");
}

TEST(a_gap_of_the_gradient_is_told_at_its_operation) {
  const TensorRef w = parameter({1, 2});
  Recorder recorder;
  const TensorRef y = call_foreign(kHalfForeign, call("exp", {w}));
  const Trace trace = recorder.finish({{sum(y)}});
  const Diagnosis found = diagnose(trace, {.device = Device::kCpu});
  CHECK_EQ(found.rows.size(), 3);
  CHECK_EQ(found.rows[0].gap, "");
  CHECK_EQ(found.rows[0].backward_ops.size(), 1);
  CHECK_EQ(found.rows[0].backward_ops[0], "mul");
  CHECK_EQ(found.rows[0].backward->flops, 2);
  CHECK_EQ(found.rows[1].backward_ops[0], "foreign");
  CHECK_EQ(found.rows[1].gap,
           "foreign: no cpu kernel for inputs (float32[2]); convert them to float32 first");
}

TEST(a_trace_that_broke_off_has_rows_and_no_backward) {
  const TensorRef w = parameter({1, 2});
  Recorder recorder;
  call("exp", {w});
  const Trace trace = recorder.abandon();
  CHECK(!Recorder::is_any_on());
  const Diagnosis found = diagnose(trace, {.is_whole = false});
  CHECK_EQ(found.rows.size(), 1);
  CHECK(!found.rows[0].backward.has_value());
  CHECK_EQ(found.rows[0].removed_by, "");
  CHECK_EQ(found.rows[0].cost.flops, 48);
}

TEST(refusals_are_noted_only_if_asked) {
  const TensorRef w = parameter({1, 2});
  {
    Recorder recorder;
    const TensorRef y = call("exp", {w});
    CHECK_THROWS(y->retain_grad(), Error, "retain_grad: an intermediate tensor");
  }
  Recorder recorder;
  recorder.note_refusals();
  const TensorRef y = call("exp", {w});
  y->retain_grad();
  const Trace trace = recorder.finish({{sum(y)}});
  CHECK_EQ(trace.refusals.size(), 1);
  CHECK_EQ(trace.refusals[0].num_nodes, 1);
  CHECK_EQ(trace.refusals[0].text.substr(0, 12), "retain_grad:");
}

}  // namespace lucid

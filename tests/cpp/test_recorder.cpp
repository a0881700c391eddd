// The recorder: what a trace captures, writes, draws and refuses.
#include <string>
#include <vector>

#include "runtime_testing.h"

namespace lucid {

using namespace testing;  // NOLINT(google-build-using-namespace): a test file
using runtime::GradMode;
using runtime::Number;
using runtime::Recorder;
using runtime::Trace;

TEST(a_trace_captures_by_identity) {
  const TensorRef w = parameter({2});
  const TensorRef buffer = floats({3});
  const TensorRef x = floats({1});
  Recorder recorder;
  const TensorRef proxy = recorder.argument(x);
  const TensorRef y = call("mul", {call("mul", {proxy, w}), w});
  const TensorRef z = call("mul", {call("mul", {y, buffer}), buffer->detach()});
  CHECK(z->is_symbolic());
  const Trace trace = recorder.finish({{sum(z)}});
  CHECK_EQ(trace.captures.size(), 2);
  CHECK(trace.captures[0].tensor == w);
  CHECK_EQ(trace.targets.size(), 1);
  CHECK_EQ(trace.targets[0].capture, 0);
  CHECK_EQ(trace.graph.inputs()[0].role, ir::Role::kArgument);
  CHECK_EQ(trace.graph.inputs()[1].role, ir::Role::kParameter);
  CHECK_EQ(trace.graph.inputs()[2].role, ir::Role::kCaptured);
  verify(trace.graph, "trace");
}

TEST(a_detached_capture_is_no_target) {
  const TensorRef w = parameter({2});
  Recorder recorder;
  const TensorRef y = call("mul", {w->detach(), w});
  const Trace trace = recorder.finish({{sum(y)}});
  CHECK_EQ(trace.captures.size(), 2);
  CHECK_EQ(trace.targets.size(), 1);
  CHECK_EQ(trace.targets[0].capture, 1);
}

TEST(no_grad_in_a_trace_stops_gradients) {
  const TensorRef w = parameter({2});
  Recorder recorder;
  TensorRef y;
  {
    const GradMode no_grad(false);
    y = call("mul", {w, w});
  }
  CHECK(!y->requires_grad());
  const Trace trace = recorder.finish({{sum(y)}});
  CHECK(trace.graph.nodes()[0].stop_gradient);
  CHECK(!trace.graph.nodes()[1].stop_gradient);
}

TEST(writes_to_outside_tensors_are_put_back) {
  const TensorRef state = floats({1, 2});
  const TensorRef part = slice(state, 0, 1);
  {
    Recorder recorder;
    assign(state, call("add", {state, Number{1.0}}));
    assign(part, call("mul", {part, Number{2.0}}));
    CHECK(state->is_symbolic());
    const Trace trace = recorder.finish({{sum(state)}});
    CHECK_EQ(trace.writes.size(), 1);
    CHECK(trace.writes[0].tensor == state);
  }
  CHECK(!state->is_symbolic());
  CHECK_EQ(elements_of(state), (Floats{1, 2}));
  CHECK_EQ(elements_of(part), (Floats{1}));
}

TEST(a_trace_that_fails_puts_everything_back) {
  const TensorRef state = floats({1, 2});
  try {
    Recorder recorder;
    assign(state, call("neg", {state}));
    throw Error(ErrorKind::kUser, "of the user's own");
  } catch (const Error&) {
  }
  CHECK_EQ(elements_of(state), (Floats{1, 2}));
  CHECK(runtime::thread_state().recorder == nullptr);
  CHECK(!call("tanh", {state})->is_symbolic());
}

TEST(arguments_changed_in_place_are_writes) {
  const TensorRef x = floats({1});
  Recorder recorder;
  const TensorRef proxy = recorder.argument(x);
  assign(proxy, call("neg", {proxy}));
  const Trace trace = recorder.finish({{sum(proxy)}});
  CHECK_EQ(trace.writes.size(), 1);
  CHECK_EQ(trace.writes[0].argument, 0);
  CHECK_EQ(elements_of(x), (Floats{1}));
}

TEST(a_trace_in_a_trace_is_refused) {
  Recorder recorder;
  CHECK_THROWS(Recorder(), Error, "compiled inside the trace of another");
  CHECK(runtime::thread_state().recorder == &recorder);
}

TEST(values_of_an_ended_trace_are_refused) {
  const TensorRef x = floats({1});
  TensorRef left_over;
  {
    Recorder recorder;
    left_over = call("neg", {recorder.argument(x)});
    recorder.finish({{sum(left_over)}});
  }
  CHECK_THROWS(call("neg", {left_over}), Error,
               "neg: a tensor of a compiled step was used after its trace");
  CHECK_THROWS(assign(x, left_over), Error, "in-place change: the new value belongs to a trace");
  CHECK_THROWS(x->set_data(left_over->value()), Error, "data: the new value belongs to a trace");
  Recorder recorder;
  CHECK_THROWS(call("neg", {left_over}), Error, "a tensor of a trace that has ended was used");
}

TEST(draws_of_a_trace_share_one_base) {
  const auto generator = std::make_shared<runtime::Generator>(3);
  const auto other = std::make_shared<runtime::Generator>(4);
  const auto draw = [](const runtime::GeneratorRef& source, int64_t count) {
    return call("uniform", {source}, {ir::Ints{count}, DType::kFloat32, int64_t{0}});
  };
  Recorder recorder;
  draw(generator, 5);
  draw(other, 1);
  const TensorRef last = draw(generator, 4);
  const Trace trace = recorder.finish({{sum(last)}});
  CHECK_EQ(trace.draws.size(), 2);
  CHECK_EQ(trace.draws[0].counters, 3);  // 2 counters for 5 elements, 1 for 4
  CHECK_EQ(trace.draws[1].counters, 1);
  const auto& nodes = trace.graph.nodes();
  CHECK_EQ(nodes[0].integer("offset"), 0);
  CHECK_EQ(nodes[1].integer("offset"), 0);
  CHECK_EQ(nodes[2].integer("offset"), 2);
  CHECK_EQ(generator->state().offset, 0);
}

TEST(backward_in_a_trace_is_refused) {
  const TensorRef w = parameter({1});
  Recorder recorder;
  const TensorRef y = sum(w);
  CHECK_THROWS(backward(y), Error, "backward: called inside a compiled step");
}

TEST(grad_in_a_trace_is_recorded) {
  const TensorRef w = parameter({1});
  Recorder recorder;
  const TensorRef y = sum(call("mul", {w, w}));
  const auto found = runtime::grad({{y}}, {{nullptr}}, {{w}}, {}, false);
  CHECK(found[0]->is_symbolic());
  const Trace trace = recorder.finish({{sum(found[0])}});
  verify(trace.graph, "trace");
  CHECK_EQ(trace.captures.size(), 1);
}

TEST(an_outside_tensor_given_a_differentiable_value_is_refused) {
  const TensorRef w = parameter({1});
  const TensorRef state = floats({1});
  {
    Recorder recorder;
    assign(state, call("mul", {w, w}));
    CHECK_THROWS(recorder.finish({{sum(w)}}), Error,
                 "a tensor that outlives the step was given a value that needs a gradient");
  }
  CHECK_EQ(elements_of(state), (Floats{1}));
}

}  // namespace lucid

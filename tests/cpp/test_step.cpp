// Compiled steps: losses, gradients, seeds, state and errors of small traces.
#include <memory>
#include <vector>

#include "compile/pipeline.h"
#include "runtime_testing.h"

namespace lucid {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): a test file
using compile::CompiledStep;
using runtime::BackwardMode;
using runtime::GradMode;
using runtime::Number;
using runtime::Recorder;
using runtime::Trace;

/// A compiled step and the tensors that its trace captured.
struct Traced {
  std::shared_ptr<CompiledStep> step;
  std::vector<TensorRef> captures;

  TensorRef run(const std::vector<TensorRef>& arguments) const {
    return step->run({.arguments = arguments, .captures = captures}).front();
  }
};

template <class Body>
Traced traced(const std::vector<TensorRef>& arguments, Body body) {
  Trace trace;
  {
    Recorder recorder;
    std::vector<TensorRef> proxies;
    for (const TensorRef& argument : arguments) proxies.push_back(recorder.argument(argument));
    const TensorRef loss = body(proxies);
    trace = recorder.finish({{loss}});
  }
  Traced result;
  for (const runtime::Capture& capture : trace.captures) result.captures.push_back(capture.tensor);
  const bool with_gradients = runtime::thread_state().grad_enabled;
  result.step = CompiledStep::make(std::move(trace), with_gradients, Device::kCpu);
  return result;
}

int64_t num_runs() { return runtime::process_state().executable_runs.load(); }

TensorRef scalar(float value) { return tensor_of(DType::kFloat32, Shape{}, Floats{value}); }

// sum(tanh(x * w))
TensorRef small_loss(const TensorRef& x, const TensorRef& w) {
  return sum(call("tanh", {call("mul", {x, w})}));
}

}  // namespace

TEST(step_equals_eager) {
  const TensorRef w = parameter({0.5f, -1.5f, 2});
  const TensorRef x = floats({1, 2, 3});
  const Traced step = traced({x}, [&](const auto& in) { return small_loss(in[0], w); });
  const TensorRef eager = small_loss(x, w);
  backward(eager);
  const Floats eager_grad = grad_of(w);
  w->set_grad(nullptr);
  const TensorRef loss = step.run({x});
  CHECK_EQ(elements_of(loss), elements_of(eager));
  CHECK(loss->requires_grad());
  CHECK(!w->has_grad());
  const int64_t runs = num_runs();
  const int64_t dispatches = runtime::process_state().eager_dispatches.load();
  backward(loss);
  CHECK_EQ(grad_of(w), eager_grad);
  CHECK_EQ(num_runs(), runs);
  CHECK_EQ(runtime::process_state().eager_dispatches.load(), dispatches);
}

TEST(gradients_of_steps_accumulate) {
  const TensorRef w = parameter({2});
  const TensorRef x = floats({3});
  const Traced step = traced({x}, [&](const auto& in) { return sum(call("mul", {in[0], w})); });
  backward(step.run({x}));
  backward(call("add", {step.run({x}), step.run({x})}));
  CHECK_EQ(grad_of(w), (Floats{9}));
}

TEST(an_argument_that_requires_a_gradient_gets_one) {
  const TensorRef x = parameter({3});
  const Traced step = traced({x}, [&](const auto& in) { return sum(call("mul", {in[0], in[0]})); });
  const TensorRef y = parameter({5});
  backward(step.run({y}));
  CHECK_EQ(grad_of(y), (Floats{10}));
  CHECK(!x->has_grad());
}

TEST(a_changed_seed_runs_once_more_and_is_kept) {
  const TensorRef w = parameter({2});
  const TensorRef x = floats({3});
  const Traced step = traced({x}, [&](const auto& in) { return sum(call("mul", {in[0], w})); });
  const auto grad_with_seed = [&](float seed) {
    w->set_grad(nullptr);
    const TensorRef loss = step.run({x});
    const int64_t runs = num_runs();
    backward(loss, {}, scalar(seed));
    return std::pair(grad_of(w), num_runs() - runs);
  };
  CHECK(grad_with_seed(1) == std::pair(Floats{3}, int64_t{0}));
  CHECK(grad_with_seed(4) == std::pair(Floats{12}, int64_t{1}));
  CHECK(grad_with_seed(4) == std::pair(Floats{12}, int64_t{0}));
  CHECK(grad_with_seed(1) == std::pair(Floats{3}, int64_t{1}));
}

TEST(a_rerun_sees_the_values_of_its_own_run) {
  const TensorRef w = parameter({2});
  const TensorRef x = floats({3});
  const Traced step = traced({x}, [&](const auto& in) {
    return sum(call("mul", {call("mul", {in[0], w}), w}));
  });
  const TensorRef loss = step.run({x});
  {
    const GradMode no_grad(false);
    w->assign(floats({100})->operand());
  }
  backward(loss, {}, scalar(0.5f));
  CHECK_EQ(grad_of(w), (Floats{6}));  // 0.5 * 2 * 3 * 2
}

TEST(a_released_step_is_refused) {
  const TensorRef w = parameter({2});
  const Traced step = traced({}, [&](const auto&) { return sum(call("mul", {w, w})); });
  const TensorRef loss = step.run({});
  backward(loss, BackwardMode{.retain_graph = true});
  backward(loss);
  CHECK_EQ(grad_of(w), (Floats{8}));
  CHECK_THROWS(backward(loss), Error, "pass retain_graph=True to that one");
  CHECK_THROWS(backward(step.run({}), BackwardMode{.create_graph = true}), Error,
               "backward: the gradients of a compiled step have no history");
}

TEST(an_unused_parameter_gets_no_gradient) {
  const TensorRef w = parameter({2});
  const TensorRef unused = parameter({2});
  const Traced step = traced({}, [&](const auto&) {
    call("tanh", {unused});
    return sum(call("mul", {w, w}));
  });
  backward(step.run({}));
  CHECK_EQ(grad_of(w), (Floats{4}));
  CHECK(!unused->has_grad());
}

TEST(one_tensor_by_two_ways_gets_one_gradient) {
  const TensorRef w = parameter({2});
  const Traced step = traced({w}, [&](const auto& in) { return sum(call("mul", {in[0], w})); });
  backward(step.run({w}));
  CHECK_EQ(grad_of(w), (Floats{4}));
}

TEST(no_gradients_under_no_grad) {
  const GradMode no_grad(false);
  const TensorRef w = parameter({2});
  const Traced step = traced({}, [&](const auto&) { return sum(call("mul", {w, w})); });
  CHECK_EQ(step.step->num_nodes(), 2);
  CHECK(!step.run({})->requires_grad());
}

TEST(a_loss_that_is_an_argument) {
  const TensorRef x = scalar(3);
  const Traced step = traced({x}, [&](const auto& in) { return in[0]; });
  CHECK_EQ(elements_of(step.run({x})), (Floats{3}));
  const TensorRef leaf = scalar(4);
  leaf->set_requires_grad(true);
  const Traced tied = traced({leaf}, [&](const auto& in) { return in[0]; });
  backward(tied.run({leaf}));
  CHECK_EQ(grad_of(leaf), (Floats{1}));
}

TEST(bad_losses_are_refused) {
  const TensorRef x = floats({1, 2});
  CHECK_THROWS(traced({x}, [&](const auto& in) { return call("neg", {in[0]}); }), Error,
               "step: the loss must be one floating element: got float32[2]");
  const TensorRef n = indices({1});
  CHECK_THROWS(traced({n}, [&](const auto& in) { return in[0]; }), Error,
               "step: the loss must be one floating element: got int64[1]");
}

TEST(state_is_written_after_each_run) {
  const TensorRef counter = floats({0});
  const TensorRef w = parameter({2});
  const Traced step = traced({}, [&](const auto&) {
    counter->assign(call("add", {counter, Number{1.0}})->operand());
    return sum(call("mul", {w, counter}));
  });
  CHECK_EQ(elements_of(counter), (Floats{0}));
  CHECK_EQ(elements_of(step.run({})), (Floats{2}));
  const TensorRef loss = step.run({});
  CHECK_EQ(elements_of(loss), (Floats{4}));
  CHECK_EQ(elements_of(counter), (Floats{2}));
  backward(loss, {}, scalar(10));  // a rerun writes no state
  CHECK_EQ(elements_of(counter), (Floats{2}));
  CHECK_EQ(grad_of(w), (Floats{20}));
}

TEST(draws_move_the_generator_as_eager_does) {
  const auto generator = std::make_shared<runtime::Generator>(9);
  const TensorRef x = floats({1, 1, 1, 1, 1, 1});
  const auto body = [&](const TensorRef& in) {
    const ir::Attrs attrs = {0.5, int64_t{0}};
    return sum(call("dropout", {call("dropout", {in, generator}, attrs), generator}, attrs));
  };
  const Traced step = traced({x}, [&](const auto& in) { return body(in[0]); });
  CHECK_EQ(generator->state().offset, 0);
  for (int i = 0; i < 3; ++i) {
    const auto before = generator->state();
    const Floats compiled = elements_of(step.run({x}));
    const auto after = generator->state();
    generator->set_state(before);
    CHECK_EQ(elements_of(body(x)), compiled);
    CHECK_EQ(generator->state().offset, after.offset);
  }
}

TEST(an_error_in_a_run_leaves_everything_as_before) {
  const auto generator = std::make_shared<runtime::Generator>(9);
  const TensorRef counter = floats({0});
  const TensorRef w = parameter({1, 2, 3});
  const TensorRef at = indices({1});
  const Traced step = traced({at}, [&](const auto& in) {
    counter->assign(call("add", {counter, Number{1.0}})->operand());
    const TensorRef noise =
        call("uniform", {generator}, {ir::Ints{3}, DType::kFloat32, int64_t{0}});
    return sum(call("take", {call("add", {w, noise}), in[0]}, {int64_t{0}}));
  });
  step.run({at});
  CHECK_EQ(generator->state().offset, 1);
  CHECK_EQ(elements_of(counter), (Floats{1}));
  CHECK_THROWS(step.run({indices({3})}), Error, "take: index out of range: 3 for size 3");
  CHECK_EQ(generator->state().offset, 1);
  CHECK_EQ(elements_of(counter), (Floats{1}));
  CHECK(!w->has_grad());
  step.run({at});
  CHECK_EQ(generator->state().offset, 2);
}

TEST(an_input_of_another_type_is_refused) {
  const TensorRef x = floats({1, 2});
  const Traced step = traced({x}, [&](const auto& in) { return sum(in[0]); });
  CHECK_THROWS(step.run({floats({1})}), Error,
               "step: an input is float32[1] where the executable takes float32[2]");
}

TEST(two_steps_of_one_structure_share_an_executable) {
  const auto make = [] {
    const TensorRef w = parameter({1, 2, 3, 4, 5, 6, 7, 8, 9});
    return traced({}, [&](const auto&) { return sum(call("atan", {w})); });
  };
  const int64_t before = runtime::process_state().compilations.load();
  const Traced first = make();
  const Traced second = make();
  CHECK_EQ(runtime::process_state().compilations.load(), before + 1);
  backward(second.run({}));
  CHECK(!first.captures[0]->has_grad());
  CHECK(second.captures[0]->has_grad());
}

TEST(memory_is_known_before_the_first_run) {
  const TensorRef w = parameter({1, 2, 3, 4});
  const TensorRef x = floats({1, 2, 3, 4});
  const Traced step = traced({x}, [&](const auto& in) { return small_loss(in[0], w); });
  const compile::ProgramMemory memory = step.step->memory();
  CHECK_EQ(memory.parameters, 16);
  CHECK_EQ(memory.inputs, 16 + 4);   // x and the seed
  CHECK_EQ(memory.outputs, 4 + 16);  // the loss and one gradient
  const int64_t before = backends::num_allocations();
  const TensorRef loss = step.run({x});
  CHECK_EQ(backends::num_allocations() - before, 2);
  backward(loss);
  CHECK_EQ(backends::num_allocations() - before, 2);
}

}  // namespace lucid

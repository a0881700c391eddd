// Compiled functions: several results, gradients of some of them, state, numbers and errors.
#include <memory>
#include <vector>

#include "compile/entry.h"
#include "compile/function.h"
#include "runtime_testing.h"

namespace lucid {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): a test file
using compile::CompiledFunction;
using runtime::Recorder;
using runtime::Trace;

/// A compiled function and the tensors that its trace captured.
struct Traced {
  std::shared_ptr<CompiledFunction> function;
  std::vector<TensorRef> captures;

  std::vector<TensorRef> run(const std::vector<TensorRef>& arguments,
                             const std::vector<double>& scalars = {}) const {
    return function->run({.arguments = arguments, .captures = captures, .scalars = scalars});
  }
};

/// `body` takes the recorder and the stand-ins of the arguments, and gives the results.
template <class Body>
Traced traced(const std::vector<TensorRef>& arguments, Body body, bool with_gradients = true) {
  Trace trace;
  {
    Recorder recorder("compile");
    std::vector<TensorRef> proxies;
    for (const TensorRef& argument : arguments) proxies.push_back(recorder.argument(argument));
    trace = recorder.finish(body(recorder, proxies));
  }
  Traced result;
  for (const runtime::Capture& capture : trace.captures) result.captures.push_back(capture.tensor);
  result.function = CompiledFunction::make(std::move(trace), with_gradients, Device::kCpu);
  return result;
}

int64_t num_runs() { return runtime::process_state().executable_runs.load(); }
int64_t num_compilations() { return runtime::process_state().compilations.load(); }

/// tanh(x * w) and w * w.
Traced two_results(const TensorRef& x, const TensorRef& w) {
  return traced({x}, [&](Recorder&, const auto& in) {
    const TensorRef product = call("mul", {in[0], w});
    return std::vector<TensorRef>{call("tanh", {product}), call("mul", {w, w})};
  });
}

}  // namespace

TEST(results_equal_eager) {
  const TensorRef w = parameter({0.5f, -1.5f, 2});
  const TensorRef x = floats({1, 2, 3});
  const Traced function = two_results(x, w);
  const int64_t runs = num_runs();
  const std::vector<TensorRef> results = function.run({x});
  CHECK_EQ(num_runs(), runs + 1);
  CHECK_EQ(results.size(), 2);
  CHECK_EQ(elements_of(results[0]), elements_of(call("tanh", {call("mul", {x, w})})));
  CHECK_EQ(elements_of(results[1]), elements_of(call("mul", {w, w})));
  CHECK(results[0]->requires_grad() && results[1]->requires_grad());
}

TEST(gradients_of_one_result_of_two) {
  const TensorRef w = parameter({0.5f, -1.5f, 2});
  const TensorRef x = floats({1, 2, 3});
  const Traced function = two_results(x, w);
  for (const size_t place : {0, 1}) {
    backward(sum(place == 0 ? call("tanh", {call("mul", {x, w})}) : call("mul", {w, w})));
    const Floats eager = grad_of(w);
    w->set_grad(nullptr);
    for (int i = 0; i < 2; ++i) {
      const TensorRef loss = sum(function.run({x})[place]);
      const int64_t compilations = num_compilations();
      backward(loss);
      CHECK_EQ(grad_of(w), eager);
      if (i == 1) CHECK_EQ(num_compilations(), compilations);
      w->set_grad(nullptr);
    }
  }
}

TEST(results_that_are_inputs_or_constants) {
  const TensorRef w = parameter({1, 2});
  const TensorRef x = floats({3, 4});
  const Traced function = traced({x}, [&](Recorder&, const auto& in) {
    return std::vector<TensorRef>{in[0], w, in[0], call("mul", {w, in[0]})};
  });
  const std::vector<TensorRef> results = function.run({x});
  CHECK_EQ(elements_of(results[0]), (Floats{3, 4}));
  CHECK_EQ(elements_of(results[1]), (Floats{1, 2}));
  CHECK_EQ(elements_of(results[2]), (Floats{3, 4}));
  CHECK(!results[0]->requires_grad());
  backward(sum(results[1]));
  CHECK_EQ(grad_of(w), (Floats{1, 1}));
}

TEST(without_gradients_nothing_is_tied) {
  const TensorRef w = parameter({1, 2});
  const Traced function = traced(
      {},
      [&](Recorder&, const auto&) {
        return std::vector<TensorRef>{call("mul", {w, w})};
      },
      false);
  CHECK(!function.run({}).front()->requires_grad());
}

TEST(a_function_without_results_writes) {
  const TensorRef total = floats({0, 0});
  const TensorRef x = floats({1, 2});
  const Traced function = traced({x}, [&](Recorder&, const auto& in) {
    assign(total, call("add", {total, in[0]}));
    return std::vector<TensorRef>{};
  });
  CHECK_EQ(elements_of(total), (Floats{0, 0}));
  CHECK(function.run({x}).empty());
  CHECK(function.run({x}).empty());
  CHECK_EQ(elements_of(total), (Floats{2, 4}));
}

TEST(a_probe_changes_nothing) {
  const TensorRef total = floats({0, 0});
  const TensorRef x = floats({1, 2});
  const Traced function = traced({x}, [&](Recorder&, const auto& in) {
    assign(total, call("add", {total, in[0]}));
    return std::vector<TensorRef>{};
  });
  const std::vector<TensorRef> arguments = {x};
  function.function->probe({.arguments = arguments, .captures = function.captures});
  CHECK_EQ(elements_of(total), (Floats{0, 0}));
}

TEST(numbers_come_with_a_run) {
  const TensorRef x = floats({1, 2});
  const Traced function = traced({x}, [&](Recorder& recorder, const auto& in) {
    const TensorRef scale = recorder.scalar(DType::kFloat32, Device::kCpu);
    return std::vector<TensorRef>{call("mul", {in[0], scale})};
  });
  CHECK_EQ(elements_of(function.run({x}, {2.0}).front()), (Floats{2, 4}));
  CHECK_EQ(elements_of(function.run({x}, {-1.0}).front()), (Floats{-1, -2}));
}

TEST(a_run_that_fails_writes_nothing) {
  const TensorRef total = floats({0, 0});
  const TensorRef x = floats({1, 2});
  const TensorRef places = indices({1, 0});
  const Traced function = traced({x, places}, [&](Recorder&, const auto& in) {
    assign(total, call("add", {total, in[0]}));
    return std::vector<TensorRef>{call("take", {in[0], in[1]}, {int64_t{0}})};
  });
  CHECK_EQ(elements_of(function.run({x, places}).front()), (Floats{2, 1}));
  CHECK_THROWS(function.run({x, indices({0, 2})}), Error, "index out of range");
  CHECK_EQ(elements_of(total), (Floats{1, 2}));
}

TEST(backward_twice_needs_retain_graph) {
  const TensorRef w = parameter({1, 2});
  const TensorRef x = floats({3, 4});
  const TensorRef loss = sum(two_results(x, w).run({x})[1]);
  backward(loss, {.retain_graph = true});
  backward(loss);
  CHECK_EQ(grad_of(w), (Floats{4, 8}));
  CHECK_THROWS(backward(loss), Error, "freed by an earlier backward");
}

TEST(no_second_derivative) {
  const TensorRef w = parameter({1, 2});
  const TensorRef x = floats({3, 4});
  const TensorRef loss = sum(two_results(x, w).run({x})[1]);
  CHECK_THROWS(backward(loss, {.create_graph = true, .retain_graph = true}), Error,
               "create_graph cannot go through it");
}

TEST(an_input_of_another_type_is_our_own_fault) {
  const TensorRef x = floats({1, 2});
  const Traced function = two_results(x, parameter({1, 2}));
  CHECK_THROWS(function.run({floats({1, 2, 3})}), Error,
               "step: an input is float32[3] where the executable takes float32[2]");
}

TEST(an_entry_takes_its_own_arguments_only) {
  const TensorRef w = parameter({1, 2});
  const TensorRef x = floats({3, 4});
  const Traced function = two_results(x, w);
  const std::vector<TensorRef> arguments = {x};
  compile::StepEntry entry(function.function, compile::describe(arguments), function.captures,
                           function.captures);
  CHECK(entry.try_run(arguments, {}).has_value());
  const std::vector<TensorRef> longer = {floats({1, 2, 3})};
  CHECK(!entry.try_run(longer, {}).has_value());
  CHECK_THROWS(entry.probe(longer), Error, "step: a probe with arguments of another signature");
  w->set_requires_grad(false);
  runtime::process_state().module_version.fetch_add(1);
  CHECK(!entry.try_run(arguments, {}).has_value());
  CHECK(!entry.rebind({w}));
  CHECK(entry.rebind({parameter({5, 6})}));
  CHECK_EQ(elements_of((*entry.try_run(arguments, {}))[1]), (Floats{25, 36}));
}

TEST(memory_and_text_tell_of_forward_and_backward) {
  const TensorRef w = parameter({0.5f, -1.5f, 2});
  const TensorRef x = floats({1, 2, 3});
  const Traced function = two_results(x, w);
  const compile::ProgramMemory memory = function.function->memory();
  CHECK_EQ(memory.parameters, 12);
  CHECK_EQ(memory.inputs, 12);
  CHECK_EQ(memory.outputs, 36);
  CHECK(memory.arena_peak > 0);
  const std::string text = function.function->graph_text();
  CHECK(text.find("graph", text.find("graph") + 1) != std::string::npos);
  CHECK(function.function->num_nodes() >= 4);
}

}  // namespace lucid

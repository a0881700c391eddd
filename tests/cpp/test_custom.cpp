// Operations and gradient rules of the language above, with a host made of C++.
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph_testing.h"
#include "ops/host_functions.h"
#include "passes/passes.h"
#include "passes/split.h"
#include "runtime_testing.h"

namespace lucid {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): a test file
using ops::HostCall;
using runtime::GradientRule;
using runtime::Recorder;
using runtime::Trace;

// Calls a C++ function, and is the process's host as long as it lives.
class TestHost final : public ops::HostFunctions {
 public:
  explicit TestHost(std::function<void(const HostCall&)> run) : run_(std::move(run)) {
    ops::set_host_functions(this);
  }
  ~TestHost() override { ops::set_host_functions(nullptr); }
  void call(const HostCall& call) const override { run_(call); }

 private:
  std::function<void(const HostCall&)> run_;
};

TensorRef custom(const std::string& op, const TensorRef& x, const std::string& type) {
  return call(op, {x}, {std::string("test::twice"), std::string("k=1"), type, true});
}

const float* floats_of(const ops::HostArray& array) {
  return static_cast<const float*>(array.data);
}

// Twice the input; the gradient rule gives twice the gradient.
void twice(const HostCall& call) {
  const ops::HostArray& source = call.inputs.back();
  auto* const result = static_cast<float*>(call.results[0].data);
  for (int64_t i = 0; i < source.type.num_elements(); ++i) result[i] = 2 * floats_of(source)[i];
}

const ir::Op* find_op(std::string_view name) { return ops::find(name); }

}  // namespace

TEST(a_host_function_gets_names_types_and_memory) {
  std::string seen;
  const TestHost host([&](const HostCall& call) {
    seen += std::string(call.function) + "(" + std::string(call.arguments) + ")";
    for (const auto& array : call.inputs) seen += " " + to_string(array.type);
    if (call.gradient != nullptr) {
      seen += " of " + std::to_string(call.gradient->num_inputs) + " given " +
              ir::to_string(call.gradient->given) + " wanted " +
              ir::to_string(call.gradient->wanted);
    }
    seen += ";";
    twice(call);
  });
  const TensorRef x = parameter({1, -3});
  const TensorRef y = custom("custom", x, "float32[2]");
  CHECK_EQ(elements_of(y), (Floats{2, -6}));
  backward(sum(y));
  CHECK_EQ(grad_of(x), (Floats{2, 2}));
  CHECK_EQ(seen, std::string("test::twice(k=1) float32[2];test::twice(k=1) float32[2] float32[2] "
                             "float32[2] of 1 given [0] wanted [0];"));
}

TEST(without_a_host_a_custom_operation_is_refused) {
  CHECK_THROWS(custom("custom", floats({1}), "float32[1]"), Error,
               "test::twice: no host calls functions here; define it in Python");
}

TEST(an_error_of_the_host_passes_through) {
  const TestHost host([](const HostCall&) { throw std::range_error("the host's own"); });
  CHECK_THROWS(custom("custom", floats({1}), "float32[1]"), std::range_error, "the host's own");
}

TEST(shared_memory_is_not_used_again) {
  std::shared_ptr<void> shared;
  const float* place = nullptr;
  const TestHost host([&](const HostCall& call) {
    place = floats_of(call.inputs[0]);
    shared = call.share_memory();
    CHECK(shared == call.share_memory());
    throw std::range_error("kept");
  });
  Recorder recorder;
  const TensorRef in = recorder.argument(floats(Floats(1000, 3)));
  const TensorRef doubled = call("add", {in, in});
  const TensorRef loss = sum(custom("custom", doubled, "float32[1000]"));
  Trace trace = recorder.finish({{loss}});
  const auto step = compile::CompiledStep::make(std::move(trace), false, Device::kCpu);
  CHECK_THROWS(step->run({.arguments = {{floats(Floats(1000, 3))}}, .captures = {}}), std::range_error, "kept");
  const std::shared_ptr<void> kept = shared;
  const float* const at = place;
  for (int i = 0; i < 8; ++i) {
    CHECK_THROWS(step->run({.arguments = {{floats(Floats(1000, 5))}}, .captures = {}}), std::range_error, "kept");
    CHECK(place != at);
  }
  CHECK_EQ(at[0], 6.0f);
  CHECK_EQ(at[999], 6.0f);
}

TEST(an_impure_custom_operation_is_neither_merged_nor_dropped) {
  constexpr std::string_view kTemplate = R"(graph {
  %0 = input argument float32[2]
  %1 = OP(%0) {function="f", arguments="", results="float32[2]", has_gradient=true} : float32[2]
  %2 = OP(%0) {function="f", arguments="", results="float32[2]", has_gradient=true} : float32[2]
  %3 = OP(%0) {function="g", arguments="", results="float32[2]", has_gradient=true} : float32[2]
  %4 = add(%1, %2) : float32[2]
  return %4
}
)";
  const auto nodes_left = [&](const std::string& op) {
    std::string text(kTemplate);
    for (size_t at = text.find("OP"); at != std::string::npos; at = text.find("OP")) {
      text.replace(at, 2, op);
    }
    return passes::run_pipeline(ir::parse(text, find_op)).nodes().size();
  };
  CHECK_EQ(nodes_left("custom"), 2);
  CHECK_EQ(nodes_left("custom_impure"), 4);
}

TEST(a_result_of_an_impure_operation_crosses_to_the_backward) {
  constexpr std::string_view kGraph = R"(graph {
  %0 = input argument float32[2]
  %1 = input seed float32[2]
  %2 = OP(%0) {function="f", arguments="", results="float32[2]", has_gradient=true} : float32[2]
  %3 = tanh(%2) : float32[2]
  %4 = neg(%3) : float32[2]
  %5 = neg(%1) : float32[2]
  %6 = mul(%5, %2) : float32[2]
  return %4, %6
}
)";
  const auto backward_of = [&](const std::string& op, int num_kept) {
    std::string text(kGraph);
    text.replace(text.find("OP"), 2, op);
    const passes::Segmentation parted{.num_segments = 2,
                                      .num_kept = num_kept,
                                      .num_forward_nodes = 3,
                                      .segments = {0, 0, 1, 1, 0}};
    const auto pieces = passes::split(ir::parse(text, find_op), parted);
    CHECK_EQ(pieces.size(), 3);
    return pieces[2].graph.nodes().size();
  };
  CHECK_EQ(backward_of("custom", 0), 2);  // computed again
  CHECK_EQ(backward_of("custom", 1), 1);  // kept with all of its segment
  CHECK_EQ(backward_of("custom_impure", 0), 1);
}

TEST(with_gradient_hands_its_last_inputs_on) {
  const ir::Graph graph = ir::parse(R"(graph {
  %0 = input argument float32[2]
  %1 = input argument int64[3]
  %2 = tanh(%0) : float32[2]
  %3, %4 = with_gradient(%0, %2, %1) {rule=0, num_outputs=2} : float32[2], int64[3]
  %5 = neg(%3) : float32[2]
  return %5, %4, %3
}
)",
                                    find_op);
  CHECK_GRAPH(passes::run_pipeline(graph), R"(graph {
  %0 = input argument float32[2]
  %1 = input argument int64[3]
  %2 = tanh(%0) : float32[2]
  %3 = neg(%2) : float32[2]
  return %3, %1, %2
}
)");
}

TEST(a_trace_differentiates_through_a_rule) {
  const TensorRef w = parameter({2, 3});
  const TensorRef slope = floats({10, 100});
  Recorder recorder;
  const TensorRef x = recorder.argument(floats({1, 1}));
  const TensorRef product = call("mul", {x, w});
  TensorRef raw;
  {
    const runtime::GradMode no_grad(false);
    raw = call("neg", {product});
  }
  // The rule reads an outside tensor that the forward does not.
  const GradientRule rule = [&](const std::vector<TensorRef>& grads, bool create_graph,
                                const runtime::TieResult&) -> std::vector<TensorRef> {
    CHECK(!create_graph);
    CHECK_EQ(grads.size(), 1);
    return {nullptr, call("mul", {grads[0], slope})};
  };
  const auto tied = recorder.tie({{nullptr, product}}, {{raw}}, rule);
  CHECK(tied[0].requires_grad());
  const TensorRef loss = sum(runtime::make_tensor(tied[0]));
  recorder.differentiate({{loss}}, true);
  Trace trace = recorder.finish({{loss}});
  CHECK_EQ(trace.backwards.size(), 1);
  CHECK_EQ(trace.graph.inputs().back().role, ir::Role::kSeed);
  CHECK_EQ(trace.captures.size(), 2);
  const auto step = compile::CompiledStep::make(std::move(trace), true, Device::kCpu);
  const TensorRef found = step->run({.arguments = {{floats({1, 1})}}, .captures = {{w, slope}}}).front();
  CHECK_EQ(elements_of(found), (Floats{-5}));
  backward(found);
  CHECK_EQ(grad_of(w), (Floats{10, 100}));
}

TEST(a_trace_without_rules_leaves_the_backward_to_the_step) {
  const TensorRef w = parameter({2, 3});
  Recorder recorder;
  const TensorRef loss = sum(call("mul", {w, w}));
  recorder.differentiate({{loss}}, true);
  CHECK(recorder.finish({{loss}}).backwards.empty());
}

TEST(an_input_moves_last) {
  ir::Graph graph;
  const auto first = graph.add_input(ir::Role::kSeed, {DType::kFloat32, Shape{1}});
  const auto second = graph.add_input(ir::Role::kArgument, {DType::kFloat32, Shape{2}});
  const auto third = graph.add_input(ir::Role::kCaptured, {DType::kFloat32, Shape{3}});
  graph.move_input_last(first);
  CHECK(graph.inputs()[0].value == second);
  CHECK(graph.inputs()[1].value == third);
  CHECK(graph.inputs()[2].value == first);
  CHECK_EQ(graph.type(first).shape, (Shape{1}));
}

}  // namespace lucid

// Differentiation of graphs, as text before and after.
#include <string>
#include <vector>

#include "autodiff/autodiff.h"
#include "autodiff/graph_builder.h"
#include "graph_testing.h"

namespace lucid {
namespace {

using testing::parse_graph;

// The graph with the gradients of its only output, by a new seed, as its outputs. Absent ones
// are left out and counted.
struct Differentiated {
  ir::Graph graph;
  ir::Grads grads;
};

Differentiated differentiated(std::string_view text, std::vector<uint32_t> targets) {
  ir::Graph graph = parse_graph(text);
  const ir::ValueId root = graph.outputs().front();
  const ir::ValueId seed = graph.add_input(ir::Role::kSeed, graph.type(root));
  std::vector<ir::ValueId> ids;
  for (const uint32_t target : targets) ids.push_back(ir::ValueId{target});
  ir::Grads grads = autodiff::differentiate(graph, {{root}}, {{seed}}, ids);
  std::vector<ir::ValueId> outputs;
  for (const auto& grad : grads) {
    if (grad) outputs.push_back(*grad);
  }
  graph.set_outputs(std::move(outputs));
  verify(graph, "autodiff");
  return {std::move(graph), std::move(grads)};
}

size_t count(const ir::Graph& graph, std::string_view op) {
  size_t found = 0;
  for (const ir::Node& node : graph.nodes()) found += node.op->name == op ? 1 : 0;
  return found;
}

// Two consumers of %0, made in the order tanh, exp.
constexpr std::string_view kTwoConsumers = R"(
graph {
  %0 = input parameter float32[3]
  %1 = tanh(%0) : float32[3]
  %2 = exp(%0) : float32[3]
  %3 = add(%1, %2) : float32[3]
  return %3
}
)";

}  // namespace

TEST(differentiate_product) {
  const auto [graph, grads] = differentiated(R"(
graph {
  %0 = input parameter float32[3]
  %1 = input argument float32[3]
  %2 = mul(%0, %1) : float32[3]
  return %2
}
)",
                                             {0, 1});
  CHECK_GRAPH(graph, R"(
graph {
  %0 = input parameter float32[3]
  %1 = input argument float32[3]
  %3 = input seed float32[3]
  %2 = mul(%0, %1) : float32[3]
  %4 = mul(%3, %1) : float32[3]
  %5 = mul(%3, %0) : float32[3]
  return %4, %5
}
)");
}

TEST(only_wanted_gradients_are_made) {
  const auto [graph, grads] = differentiated(R"(
graph {
  %0 = input parameter float32[3]
  %1 = input argument float32[3]
  %2 = mul(%0, %1) : float32[3]
  return %2
}
)",
                                             {0});
  CHECK_EQ(graph.nodes().size(), 2);
}

TEST(contributions_come_in_the_reverse_order_of_consumers) {
  const auto [graph, grads] = differentiated(kTwoConsumers, {0});
  // The later consumer's contribution is the left operand of the sum.
  const ir::Node& sum = graph.nodes().back();
  CHECK_EQ(sum.op->name, "add");
  const ir::Node& left = graph.nodes()[static_cast<size_t>(graph.producer(sum.in(0)))];
  CHECK_EQ(left.op->name, "mul");
  CHECK(left.in(1) == ir::ValueId{2} || left.in(0) == ir::ValueId{2});  // exp(x) * seed
  CHECK(graph.producer(sum.in(0)) < graph.producer(sum.in(1)));
}

TEST(three_contributions_are_added_left_to_right) {
  const auto [graph, grads] = differentiated(R"(
graph {
  %0 = input parameter float32[3]
  %1 = neg(%0) : float32[3]
  %2 = mul(%1, %0) : float32[3]
  %3 = add(%2, %0) : float32[3]
  return %3
}
)",
                                             {0});
  CHECK_GRAPH(graph, R"(
graph {
  %0 = input parameter float32[3]
  %4 = input seed float32[3]
  %1 = neg(%0) : float32[3]
  %2 = mul(%1, %0) : float32[3]
  %3 = add(%2, %0) : float32[3]
  %5 = mul(%4, %0) : float32[3]
  %6 = mul(%4, %1) : float32[3]
  %7 = add(%4, %6) : float32[3]
  %8 = neg(%5) : float32[3]
  %9 = add(%7, %8) : float32[3]
  return %9
}
)");
}

TEST(absent_gradients_stay_absent) {
  const auto [graph, grads] = differentiated(R"(
graph {
  %0 = input parameter float32[3]
  %1 = input parameter float32[3]
  %2 = tanh(%1) : float32[3]
  %3 = neg(%0) : float32[3]
  return %3
}
)",
                                             {0, 1});
  CHECK(grads[0].has_value());
  CHECK(!grads[1].has_value());
  CHECK_EQ(graph.nodes().size(), 3);  // nothing was made for tanh
}

TEST(no_gradient_flows_through_stop_gradient) {
  const auto [graph, grads] = differentiated(R"(
graph {
  %0 = input parameter float32[3]
  %1 = neg(%0) stop_gradient : float32[3]
  %2 = mul(%0, %1) : float32[3]
  return %2
}
)",
                                             {0});
  CHECK_EQ(graph.nodes().size(), 3);
  CHECK_EQ(graph.nodes().back().op->name, "mul");
}

TEST(no_gradient_flows_through_detach_and_integers) {
  const auto [graph, grads] = differentiated(R"(
graph {
  %0 = input parameter float32[3]
  %1 = detach(%0) : float32[3]
  %2 = cast(%0) {dtype=int32} : int32[3]
  %3 = cast(%2) {dtype=float32} : float32[3]
  %4 = add(%1, %3) : float32[3]
  return %4
}
)",
                                             {0});
  CHECK(!grads[0].has_value());
  CHECK_EQ(graph.nodes().size(), 4);
}

TEST(no_gradient_flows_through_nondifferentiable_outputs) {
  // The mean that layer_norm also gives is a statistic: only %2 carries a gradient.
  const auto [graph, grads] = differentiated(R"(
graph {
  %0 = input parameter float32[2, 3]
  %1, %2, %3 = layer_norm(%0, _, _) {axes=1, eps=1e-05} : float32[2, 3], float32[2], float32[2]
  return %2
}
)",
                                             {0});
  CHECK(!grads[0].has_value());
}

TEST(a_target_in_the_middle_ends_there) {
  const auto [graph, grads] = differentiated(kTwoConsumers, {1});
  CHECK(grads[0].has_value());
  CHECK(*grads[0] == ir::ValueId{4});  // the seed itself
  CHECK_EQ(graph.nodes().size(), 3);
}

TEST(a_target_made_by_an_operation_without_gradient) {
  const auto [graph, grads] = differentiated(R"(
graph {
  %0 = input random int64[2]
  %1 = uniform(%0) {shape=[3], dtype=float32, offset=0} : float32[3]
  %2 = neg(%1) : float32[3]
  return %2
}
)",
                                             {1});
  CHECK(grads[0].has_value());
}

TEST(a_root_that_is_a_target) {
  const auto [graph, grads] =
      differentiated("graph { %0 = input parameter float32[] return %0 }", {0});
  CHECK(*grads[0] == ir::ValueId{1});
}

TEST(one_value_twice_in_a_node) {
  const auto [graph, grads] = differentiated(R"(
graph {
  %0 = input parameter float32[3]
  %1 = mul(%0, %0) : float32[3]
  return %1
}
)",
                                             {0});
  CHECK_EQ(count(graph, "mul"), 3);
  CHECK_EQ(count(graph, "add"), 1);
}

TEST(broadcast_operands_get_sums) {
  const auto [graph, grads] = differentiated(R"(
graph {
  %0 = input parameter float32[1, 3]
  %1 = input parameter float32[]
  %2 = input argument float32[2, 3]
  %3 = add(%0, %2) : float32[2, 3]
  %4 = add(%3, %1) : float32[2, 3]
  return %4
}
)",
                                             {0, 1});
  CHECK_GRAPH(graph, R"(
graph {
  %0 = input parameter float32[1, 3]
  %1 = input parameter float32[]
  %2 = input argument float32[2, 3]
  %5 = input seed float32[2, 3]
  %3 = add(%0, %2) : float32[2, 3]
  %4 = add(%3, %1) : float32[2, 3]
  %6 = sum(%5) {dims=[0, 1], keepdim=false} : float32[]
  %7 = sum(%5) {dims=[0], keepdim=false} : float32[3]
  %8 = reshape(%7) {shape=[1, 3]} : float32[1, 3]
  return %8, %6
}
)");
}

TEST(gradients_carry_the_location_of_their_node) {
  ir::Graph graph;
  autodiff::GraphBuilder builder(graph);
  const ir::ValueId x = graph.add_input(ir::Role::kParameter, {DType::kFloat32, Shape{}});
  builder.set_location(std::make_shared<const ir::Location>(ir::Location{"model.py", 7}));
  const ir::ValueId y = builder.op("tanh", {x});
  const ir::ValueId seed = graph.add_input(ir::Role::kSeed, graph.type(y));
  autodiff::differentiate(graph, {{y}}, {{seed}}, {{x}});
  CHECK(graph.nodes().back().location != nullptr);
  CHECK_EQ(graph.nodes().back().location->line, 7);
}

TEST(references_to_types_outlive_later_nodes) {
  ir::Graph graph;
  autodiff::GraphBuilder builder(graph);
  const ir::ValueId x = graph.add_input(ir::Role::kParameter, {DType::kFloat32, Shape{3}});
  const ir::ValueType& type = builder.type(x);
  ir::ValueId y = x;
  for (int i = 0; i < 1000; ++i) y = builder.neg(y);
  CHECK(type == graph.type(y));
}

TEST(no_rule_names_the_operation) {
  static const ir::Op opaque{.name = "opaque", .doc = "", .infer = [](const ir::InferArgs& args) {
                               return ir::ValueTypes{args.input(0)};
                             }};
  ir::Graph graph;
  autodiff::GraphBuilder builder(graph);
  const ir::ValueId x = graph.add_input(ir::Role::kParameter, {DType::kFloat32, Shape{3}});
  const ir::ValueId y = builder.emit(opaque, {x}, {}).front();
  const ir::ValueId z = builder.neg(y);
  const ir::ValueId seed = graph.add_input(ir::Role::kSeed, graph.type(z));
  // A target behind it is reached without its rule.
  CHECK(autodiff::differentiate(graph, {{z}}, {{seed}}, {{y}})[0].has_value());
  CHECK_THROWS(autodiff::differentiate(graph, {{z}}, {{seed}}, {{x}}), Error,
               "opaque: has no gradient; detach its input if none is meant");
}

TEST(a_decomposition_is_differentiated_where_there_is_no_rule) {
  // softmax_grad has no vjp of its own: its decomposition is differentiated.
  CHECK(ops::get("softmax_grad").vjp == nullptr);
  const auto [graph, grads] = differentiated(R"(
graph {
  %0 = input parameter float32[2, 3]
  %1 = input parameter float32[2, 3]
  %2 = softmax_grad(%0, %1) {dim=1} : float32[2, 3]
  return %2
}
)",
                                             {0, 1});
  CHECK(grads[0].has_value());
  CHECK(grads[1].has_value());
  CHECK_EQ(count(graph, "softmax_grad"), 1);  // nothing of the node itself is made again
  CHECK(graph.type(*grads[0]) == (ir::ValueType{DType::kFloat32, Shape{2, 3}}));
  for (const ir::Node& node : graph.nodes()) {
    for (const ir::ValueId output : node.outputs) CHECK(index(output) < graph.num_values());
  }
}

TEST(a_decomposition_wanted_in_one_input_gives_that_one) {
  const auto [graph, grads] = differentiated(R"(
graph {
  %0 = input parameter float32[2, 3]
  %1 = input argument float32[2, 3]
  %2 = softmax_grad(%0, %1) {dim=1} : float32[2, 3]
  return %2
}
)",
                                             {0, 1});
  CHECK(grads[0].has_value());
  ir::Graph again = parse_graph(to_string(graph));
  CHECK_EQ(again.nodes().size(), graph.nodes().size());
}

TEST(second_derivatives_differentiate_the_first) {
  ir::Graph graph = parse_graph(R"(
graph {
  %0 = input parameter float64[]
  %1 = tanh(%0) : float64[]
  return %1
}
)");
  const ir::ValueId x{0};
  const ir::ValueId y{1};
  const ir::ValueId seed = graph.add_input(ir::Role::kSeed, graph.type(y));
  const ir::Grads first = autodiff::differentiate(graph, {{y}}, {{seed}}, {{x}});
  const ir::Grads second = autodiff::differentiate(graph, {{*first[0]}}, {{seed}}, {{x}});
  CHECK(second[0].has_value());
  verify(graph, "autodiff");
}

}  // namespace lucid

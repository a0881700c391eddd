// The verifier: each kind of broken graph is caught, with the stage's name and the graph's text.
#include <string>

#include "graph_testing.h"
#include "passes/passes.h"

namespace lucid {
namespace {

const ir::ValueType kVector{DType::kFloat32, Shape{3}};

ir::Node node_of(std::string_view op, std::vector<std::optional<ir::ValueId>> inputs,
                 ir::Attrs attrs = {}) {
  ir::Node node;
  node.op = &ops::get(op);
  node.inputs = std::move(inputs);
  node.attrs = std::move(attrs);
  return node;
}

// A graph of one input %0 and one node that makes `types`.
ir::Graph graph_of(ir::Node node, const std::vector<ir::ValueType>& types) {
  ir::Graph graph;
  graph.add_input(ir::Role::kArgument, kVector);
  graph.set_outputs(graph.add_node(std::move(node), types));
  return graph;
}

void refuses(const ir::Graph& graph, const std::string& message) {
  CHECK_THROWS(verify(graph, "fuse"), Error, "graph broken after fuse: " + message);
}

constexpr ir::ValueId kInput{0};

}  // namespace

TEST(verify_accepts_a_good_graph) {
  verify(graph_of(node_of("neg", {kInput}), {kVector}), "fuse");
  verify(ir::Graph(), "fuse");
}

TEST(verify_is_an_internal_error_with_the_text) {
  const ir::Graph graph = graph_of(node_of("neg", {ir::ValueId{7}}), {kVector});
  try {
    verify(graph, "fuse");
    CHECK(false && "must throw");
  } catch (const Error& error) {
    CHECK_EQ(error.kind(), ErrorKind::kInternal);
    CHECK_EQ(std::string(error.what()),
             "graph broken after fuse: neg reads %7 before it is made\n"
             "graph {\n  %0 = input argument float32[3]\n  %1 = neg(%7) : float32[3]\n"
             "  return %1\n}\n");
  }
}

TEST(verify_use_before_making) {
  refuses(graph_of(node_of("neg", {ir::ValueId{1}}), {kVector}), "neg reads %1 before it is made");
}

TEST(verify_output_that_nobody_makes) {
  ir::Graph graph = graph_of(node_of("neg", {kInput}), {kVector});
  graph.set_outputs({ir::ValueId{9}});
  refuses(graph, "output of the graph reads %9 before it is made");
}

TEST(verify_no_operation) { refuses(graph_of(ir::Node{}, {kVector}), "a node without operation"); }

TEST(verify_number_of_inputs) {
  refuses(graph_of(node_of("neg", {kInput, kInput}), {kVector}), "neg: takes 1 input: got 2");
  refuses(graph_of(node_of("add", {kInput}), {kVector}), "add: takes 2 inputs: got 1");
}

TEST(verify_missing_input) {
  refuses(graph_of(node_of("add", {kInput, std::nullopt}), {kVector}), "add: input 1 is missing");
  refuses(graph_of(node_of("concat", {kInput, std::nullopt}, {int64_t{0}}), {kVector}),
          "concat: input 1 is missing");
}

TEST(verify_number_of_attributes) {
  refuses(graph_of(node_of("neg", {kInput}, {int64_t{1}}), {kVector}),
          "neg: has 0 attributes: got 1");
  refuses(graph_of(node_of("cast", {kInput}), {kVector}), "cast: has 1 attributes: got 0");
}

TEST(verify_type_of_an_attribute) {
  refuses(graph_of(node_of("cast", {kInput}, {2.0}), {kVector}),
          "cast: attribute dtype has the wrong type: got 2.0");
}

TEST(verify_number_of_outputs) {
  refuses(graph_of(node_of("neg", {kInput}), {kVector, kVector}),
          "neg has another number of outputs");
  refuses(graph_of(node_of("neg", {kInput}), {}), "neg has another number of outputs");
}

TEST(verify_types_of_outputs) {
  refuses(graph_of(node_of("neg", {kInput}), {{DType::kFloat64, Shape{3}}}),
          "neg makes float32[3] but %1 is float64[3]");
  refuses(graph_of(node_of("neg", {kInput}), {{DType::kFloat32, Shape{3, 1}}}),
          "neg makes float32[3] but %1 is float32[3, 1]");
}

TEST(verify_what_infer_refuses) {
  ir::Graph graph;
  const ir::ValueId x = graph.add_input(ir::Role::kArgument, kVector);
  const ir::ValueId y = graph.add_input(ir::Role::kArgument, {DType::kFloat32, Shape{4}});
  graph.set_outputs(graph.add_node(node_of("add", {x, y}), {{kVector}}));
  refuses(graph, "add: ");
}

TEST(pipeline_names_the_pass) {
  std::vector<std::string> names;
  const ir::Graph graph = graph_of(node_of("neg", {kInput}), {kVector});
  passes::run_pipeline(graph,
                       [&](std::string_view name, const ir::Graph&) { names.emplace_back(name); });
  CHECK(names == std::vector<std::string>(
                     {"simplify", "fold_constants", "merge_common", "mask_pooled", "drop_dead"}));
  // A graph that was broken before is refused after the first pass, by its name.
  const ir::Graph broken = graph_of(node_of("neg", {kInput}), {{DType::kFloat64, Shape{3}}});
  CHECK_THROWS(passes::run_pipeline(broken), Error, "graph broken after simplify: neg makes");
}

}  // namespace lucid

// Passes, as text before and after: each rewrite, and what must not be rewritten.
#include <string>

#include "graph_testing.h"
#include "passes/passes.h"

namespace lucid {
namespace {

using testing::parse_graph;

constexpr std::string_view kHead = R"(
graph {
  %0 = input argument float32[2, 3]
)";

ir::Graph graph_of(const std::string& body) { return parse_graph(std::string(kHead) + body); }

// `body` after the pass is `expected`; both follow the one input %0.
void rewrites(ir::Graph (*pass)(const ir::Graph&), const std::string& body,
              const std::string& expected) {
  const ir::Graph after = pass(graph_of(body));
  verify(after, "the pass");
  CHECK_GRAPH(after, std::string(kHead) + expected);
}

void keeps(ir::Graph (*pass)(const ir::Graph&), const std::string& body) {
  rewrites(pass, body, body);
}

// `op`(%0, constant) or, swapped, `op`(constant, %0).
std::string with_constant(const std::string& op, const std::string& value, bool swapped = false) {
  const std::string operands = swapped ? "(%1, %0)" : "(%0, %1)";
  return "  %1 = full() {shape=[], dtype=float32, value=" + value + "} : float32[]\n  %2 = " + op +
         operands + " : float32[2, 3]\n  return %2\n}\n";
}

void drops(const std::string& op, const std::string& value, bool swapped = false) {
  rewrites(
      passes::simplify, with_constant(op, value, swapped),
      "  %1 = full() {shape=[], dtype=float32, value=" + value + "} : float32[]\n  return %0\n}\n");
}

}  // namespace

TEST(simplify_neutral_operands) {
  drops("mul", "1.0");
  drops("mul", "1.0", true);
  drops("div", "1.0");
  drops("sub", "0.0");
  drops("mul", "1");
}

// Two pieces of the gradient of a value of six columns, each in zeros.
std::string pieces(const std::string& first, const std::string& second,
                   const std::string& zero = "0.0") {
  return "  %1 = full() {shape=[2, 6], dtype=float32, value=" + zero +
         "} : float32[2, 6]\n  %2 = slice_update(%1, %0) {" + first +
         "} : float32[2, 6]\n  %3 = slice_update(%1, %0) {" + second +
         "} : float32[2, 6]\n  %4 = add(%2, %3) : float32[2, 6]\n  return %4\n}\n";
}

TEST(simplify_joins_pieces_that_fill_an_axis) {
  const std::string low = "starts=[0, 0], steps=[1, 1]";
  const std::string high = "starts=[0, 3], steps=[1, 1]";
  const std::string joined =
      "  %4 = concat(%0, %0) {dim=1} : float32[2, 6]\n"
      "  %5 = full() {shape=[], dtype=float32, value=0.0} : float32[]\n"
      "  %6 = add(%4, %5) : float32[2, 6]\n  return %6\n}\n";
  for (const std::string& body : {pieces(low, high), pieces(high, low)}) {
    rewrites(passes::simplify, body, body.substr(0, body.find("  %4 = add")) + joined);
  }
  keeps(passes::simplify, pieces(low, low));
  keeps(passes::simplify, pieces(low, "starts=[0, 2], steps=[1, 1]"));
  keeps(passes::simplify, pieces(low, "starts=[0, 1], steps=[1, 2]"));
  keeps(passes::simplify, pieces(low, high, "-0.0"));
  keeps(passes::simplify, pieces(low, high, "1.0"));
}

TEST(simplify_keeps_what_is_not_exact) {
  keeps(passes::simplify, with_constant("add", "0.0"));  // -0 + 0 is 0
  keeps(passes::simplify, with_constant("add", "0.0", true));
  keeps(passes::simplify, with_constant("add", "-0.0"));
  keeps(passes::simplify, with_constant("mul", "0.0"));  // nan, inf, -1
  keeps(passes::simplify, with_constant("mul", "0.0", true));
  keeps(passes::simplify, with_constant("sub", "-0.0"));       // -0 - (-0) is 0
  keeps(passes::simplify, with_constant("sub", "0.0", true));  // 0 - x
  keeps(passes::simplify, with_constant("div", "1.0", true));  // 1 / x
  keeps(passes::simplify, with_constant("div", "2.0"));
  keeps(passes::simplify, with_constant("pow", "2.0"));
  keeps(passes::simplify, with_constant("mul", "-1.0"));
  keeps(passes::simplify, "  %1 = sub(%0, %0) : float32[2, 3]\n  return %1\n}\n");  // inf, nan
  keeps(passes::simplify, "  %1 = div(%0, %0) : float32[2, 3]\n  return %1\n}\n");
  keeps(passes::simplify, "  %1 = maximum(%0, %0) : float32[2, 3]\n  return %1\n}\n");
}

TEST(simplify_keeps_a_product_that_broadcasts) {
  keeps(passes::simplify,
        R"(  %1 = full() {shape=[4, 2, 3], dtype=float32, value=1.0} : float32[4, 2, 3]
  %2 = mul(%0, %1) : float32[4, 2, 3]
  return %2
}
)");
}

TEST(simplify_negations_in_pairs) {
  rewrites(passes::simplify,
           "  %1 = neg(%0) : float32[2, 3]\n  %2 = neg(%1) : float32[2, 3]\n"
           "  %3 = neg(%2) : float32[2, 3]\n  return %3, %2\n}\n",
           "  %1 = neg(%0) : float32[2, 3]\n  %2 = neg(%0) : float32[2, 3]\n  return %2, %0\n}\n");
  keeps(passes::simplify, "  %1 = neg(%0) : float32[2, 3]\n  return %1\n}\n");
}

TEST(simplify_operations_that_change_nothing) {
  for (const char* node :
       {"detach(%0)", "reshape(%0) {shape=[2, 3]}", "broadcast_to(%0) {shape=[2, 3]}",
        "cast(%0) {dtype=float32}", "permute(%0) {dims=[0, 1]}"}) {
    rewrites(passes::simplify, "  %1 = " + std::string(node) + " : float32[2, 3]\n  return %1\n}\n",
             "  return %0\n}\n");
  }
}

TEST(simplify_keeps_real_shape_changes) {
  keeps(passes::simplify, R"(  %1 = reshape(%0) {shape=[6]} : float32[6]
  %2 = permute(%0) {dims=[1, 0]} : float32[3, 2]
  %3 = broadcast_to(%0) {shape=[1, 2, 3]} : float32[1, 2, 3]
  %4 = cast(%0) {dtype=float64} : float64[2, 3]
  return %1, %2, %3, %4
}
)");
}

TEST(simplify_keeps_a_cast_there_and_back) {
  keeps(passes::simplify, R"(  %1 = cast(%0) {dtype=float16} : float16[2, 3]
  %2 = cast(%1) {dtype=float32} : float32[2, 3]
  return %2
}
)");
}

TEST(simplify_reshape_of_reshape) {
  rewrites(passes::simplify, R"(  %1 = reshape(%0) {shape=[6]} : float32[6]
  %2 = reshape(%1) {shape=[3, 2]} : float32[3, 2]
  %3 = reshape(%2) {shape=[2, 3]} : float32[2, 3]
  return %2, %3
}
)",
           R"(  %1 = reshape(%0) {shape=[6]} : float32[6]
  %2 = reshape(%0) {shape=[3, 2]} : float32[3, 2]
  return %2, %0
}
)");
}

TEST(simplify_permute_of_permute) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[2, 3, 4]
  %1 = permute(%0) {dims=[1, 2, 0]} : float32[3, 4, 2]
  %2 = permute(%1) {dims=[0, 2, 1]} : float32[3, 2, 4]
  %3 = permute(%1) {dims=[2, 0, 1]} : float32[2, 3, 4]
  return %2, %3
}
)");
  const ir::Graph after = passes::simplify(graph);
  verify(after, "simplify");
  CHECK_GRAPH(after, R"(
graph {
  %0 = input argument float32[2, 3, 4]
  %1 = permute(%0) {dims=[1, 2, 0]} : float32[3, 4, 2]
  %2 = permute(%0) {dims=[1, 0, 2]} : float32[3, 2, 4]
  return %2, %0
}
)");
}

TEST(fold_shape_operations_on_constants) {
  rewrites(passes::fold_constants,
           R"(  %1 = full() {shape=[1, 2], dtype=float32, value=-0.0} : float32[1, 2]
  %2 = reshape(%1) {shape=[2]} : float32[2]
  %3 = broadcast_to(%1) {shape=[3, 2]} : float32[3, 2]
  %4 = permute(%3) {dims=[1, 0]} : float32[2, 3]
  return %2, %4
}
)",
           R"(  %1 = full() {shape=[1, 2], dtype=float32, value=-0.0} : float32[1, 2]
  %2 = full() {shape=[2], dtype=float32, value=-0.0} : float32[2]
  %3 = full() {shape=[3, 2], dtype=float32, value=-0.0} : float32[3, 2]
  %4 = full() {shape=[2, 3], dtype=float32, value=-0.0} : float32[2, 3]
  return %2, %4
}
)");
  keeps(passes::fold_constants, "  %1 = reshape(%0) {shape=[6]} : float32[6]\n  return %1\n}\n");
}

TEST(merge_equal_nodes_into_the_first) {
  rewrites(passes::merge_common, R"(  %1 = tanh(%0) : float32[2, 3]
  %2 = exp(%0) : float32[2, 3]
  %3 = tanh(%0) : float32[2, 3]
  %4 = neg(%3) : float32[2, 3]
  %5 = neg(%1) : float32[2, 3]
  return %4, %5, %2
}
)",
           R"(  %1 = tanh(%0) : float32[2, 3]
  %2 = exp(%0) : float32[2, 3]
  %3 = neg(%1) : float32[2, 3]
  return %3, %3, %2
}
)");
}

TEST(merge_keeps_nodes_that_differ) {
  keeps(passes::merge_common, R"(  %1 = sum(%0) {dims=[0], keepdim=false} : float32[3]
  %2 = sum(%0) {dims=[1], keepdim=false} : float32[2]
  %3 = full() {shape=[], dtype=float32, value=0.0} : float32[]
  %4 = full() {shape=[], dtype=float32, value=-0.0} : float32[]
  %5 = full() {shape=[], dtype=float32, value=0} : float32[]
  %6 = sub(%0, %3) : float32[2, 3]
  %7 = sub(%3, %0) : float32[2, 3]
  return %1, %2, %4, %5, %6, %7
}
)");
}

TEST(merge_keeps_operands_of_other_order) {
  keeps(passes::merge_common, R"(  %1 = tanh(%0) : float32[2, 3]
  %2 = add(%0, %1) : float32[2, 3]
  %3 = add(%1, %0) : float32[2, 3]
  return %2, %3
}
)");
}

TEST(merge_draws_only_of_one_offset) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input random int64[2]
  %1 = uniform(%0) {shape=[4], dtype=float32, offset=0} : float32[4]
  %2 = uniform(%0) {shape=[4], dtype=float32, offset=1} : float32[4]
  %3 = uniform(%0) {shape=[4], dtype=float32, offset=0} : float32[4]
  return %1, %2, %3
}
)");
  CHECK_GRAPH(passes::merge_common(graph), R"(
graph {
  %0 = input random int64[2]
  %1 = uniform(%0) {shape=[4], dtype=float32, offset=0} : float32[4]
  %2 = uniform(%0) {shape=[4], dtype=float32, offset=1} : float32[4]
  return %1, %2, %1
}
)");
}

TEST(merge_nodes_of_several_outputs) {
  rewrites(passes::merge_common,
           R"(  %1, %2 = sort(%0) {dim=1, descending=false} : float32[2, 3], int64[2, 3]
  %3, %4 = sort(%0) {dim=1, descending=false} : float32[2, 3], int64[2, 3]
  return %3, %4
}
)",
           R"(  %1, %2 = sort(%0) {dim=1, descending=false} : float32[2, 3], int64[2, 3]
  return %1, %2
}
)");
}

TEST(merge_tells_absent_inputs_apart) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[2, 3]
  %1 = input parameter float32[3]
  %2, %3, %4 = layer_norm(%0, %1, _) {axes=1, eps=1e-05} : float32[2, 3], float32[2], float32[2]
  %5, %6, %7 = layer_norm(%0, _, %1) {axes=1, eps=1e-05} : float32[2, 3], float32[2], float32[2]
  return %2, %5
}
)");
  CHECK_EQ(passes::merge_common(graph).nodes().size(), 2);
}

TEST(drop_dead_keeps_order_and_inputs) {
  rewrites(passes::drop_dead, R"(  %1 = tanh(%0) : float32[2, 3]
  %2 = exp(%0) : float32[2, 3]
  %3 = neg(%1) : float32[2, 3]
  %4 = sin(%2) : float32[2, 3]
  %5 = neg(%0) : float32[2, 3]
  return %5, %3
}
)",
           R"(  %1 = tanh(%0) : float32[2, 3]
  %2 = neg(%1) : float32[2, 3]
  %3 = neg(%0) : float32[2, 3]
  return %3, %2
}
)");
  rewrites(passes::drop_dead, "  %1 = tanh(%0) : float32[2, 3]\n  return\n}\n", "  return\n}\n");
}

TEST(drop_dead_keeps_a_node_for_one_of_its_outputs) {
  keeps(passes::drop_dead,
        R"(  %1, %2 = sort(%0) {dim=1, descending=false} : float32[2, 3], int64[2, 3]
  return %2
}
)");
}

TEST(drop_dead_leaves_other_draws_their_numbers) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input random int64[2]
  %1 = uniform(%0) {shape=[4], dtype=float32, offset=0} : float32[4]
  %2 = uniform(%0) {shape=[4], dtype=float32, offset=1} : float32[4]
  return %2
}
)");
  CHECK_GRAPH(passes::run_pipeline(graph), R"(
graph {
  %0 = input random int64[2]
  %1 = uniform(%0) {shape=[4], dtype=float32, offset=1} : float32[4]
  return %1
}
)");
}

}  // namespace lucid

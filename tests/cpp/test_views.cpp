// Views instead of copies: which nodes go, which must stay, and that no bit changes.
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/views.h"
#include "graph_testing.h"
#include "kernel_testing.h"

namespace lucid {
namespace {

using cpu::ViewedGraph;
using testing::normal;
using testing::parse_graph;
using testing::Value;

using Views = std::vector<cpu::NodeViews>;

/// Runs a graph node by node. Kernels are those of the nodes of `made_of`, at the places `origins`.
std::vector<Value> run_nodes(const ir::Graph& graph, const ir::Graph& made_of,
                             const std::vector<size_t>& origins, const Views& views) {
  std::vector<Value> inputs;
  for (const ir::Input& input : graph.inputs()) {
    const ir::ValueType& type = graph.type(input.value);
    inputs.push_back(normal(type.dtype, type.shape, static_cast<unsigned>(inputs.size()) + 1));
  }
  const auto kernel_of = [&](size_t i) {
    return cpu::make_kernel(
        {made_of.nodes()[origins[i]], made_of, views[i].inputs, views[i].outputs});
  };
  const auto num_results = [&](size_t i) { return made_of.nodes()[origins[i]].outputs.size(); };
  return testing::run_nodes(graph, inputs, kernel_of, num_results);
}

/// The operations that are left, in order. Fails if an output has other bits than without views.
std::string outline(const std::string& text) {
  const ir::Graph graph = parse_graph(text);
  const ViewedGraph viewed = cpu::use_views(graph);
  std::vector<size_t> places;
  for (size_t i = 0; i < graph.nodes().size(); ++i) places.push_back(i);
  const auto expected = run_nodes(graph, graph, places, Views(graph.nodes().size()));
  const auto found = run_nodes(viewed.graph, graph, viewed.origins, viewed.views);
  for (size_t i = 0; i < expected.size(); ++i) {
    if (found[i].same_bits(expected[i])) continue;
    testing::fail(__FILE__, __LINE__, "output " + std::to_string(i) + " differs in\n" + text);
  }
  std::string names;
  for (const ir::Node& node : viewed.graph.nodes()) {
    names += (names.empty() ? "" : " ") + std::string(node.op->name);
  }
  return names;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

/// Attention of two heads over one projection, and its gradient: T rows of 3 x 2 x D elements.
const std::string kProjection = R"(graph {
  %0 = input argument TYPE[2, T, 6D]
  %1 = input argument TYPE[2, T, 2D]
  %2 = slice(%0) {starts=[0, 0, 0], sizes=[2, T, 2D], steps=[1, 1, 1]} : TYPE[2, T, 2D]
  %3 = slice(%0) {starts=[0, 0, 2D], sizes=[2, T, 2D], steps=[1, 1, 1]} : TYPE[2, T, 2D]
  %4 = slice(%0) {starts=[0, 0, 4D], sizes=[2, T, 2D], steps=[1, 1, 1]} : TYPE[2, T, 2D]
  %5 = reshape(%2) {shape=[2, T, 2, D]} : TYPE[2, T, 2, D]
  %6 = permute(%5) {dims=[0, 2, 1, 3]} : TYPE[2, 2, T, D]
  %7 = reshape(%3) {shape=[2, T, 2, D]} : TYPE[2, T, 2, D]
  %8 = permute(%7) {dims=[0, 2, 1, 3]} : TYPE[2, 2, T, D]
  %9 = reshape(%4) {shape=[2, T, 2, D]} : TYPE[2, T, 2, D]
  %10 = permute(%9) {dims=[0, 2, 1, 3]} : TYPE[2, 2, T, D]
  %11, %12 = attention(%6, %8, %10, _) {causal=true, scale=0.25} : TYPE[2, 2, T, D], STAT[2, 2, T]
  %13 = permute(%11) {dims=[0, 2, 1, 3]} : TYPE[2, T, 2, D]
  %14 = reshape(%13) {shape=[2, T, 2D]} : TYPE[2, T, 2D]
  %15 = reshape(%1) {shape=[2, T, 2, D]} : TYPE[2, T, 2, D]
  %16 = permute(%15) {dims=[0, 2, 1, 3]} : TYPE[2, 2, T, D]
  %17, %18, %19 = attention_grad(%16, %6, %8, %10, %11, %12, _) {causal=true, scale=0.25} : TYPE[2, 2, T, D], TYPE[2, 2, T, D], TYPE[2, 2, T, D]
  %20 = permute(%17) {dims=[0, 2, 1, 3]} : TYPE[2, T, 2, D]
  %21 = reshape(%20) {shape=[2, T, 2D]} : TYPE[2, T, 2D]
  %22 = permute(%18) {dims=[0, 2, 1, 3]} : TYPE[2, T, 2, D]
  %23 = reshape(%22) {shape=[2, T, 2D]} : TYPE[2, T, 2D]
  %24 = permute(%19) {dims=[0, 2, 1, 3]} : TYPE[2, T, 2, D]
  %25 = reshape(%24) {shape=[2, T, 2D]} : TYPE[2, T, 2D]
  %26 = concat(%21, %23, %25) {dim=2} : TYPE[2, T, 6D]
  return %14, %26
}
)";

std::string projection(const std::string& dtype, int64_t length, int64_t depth) {
  std::string text = kProjection;
  for (const int64_t times : {6, 4, 2}) {
    text = replaced(text, std::to_string(times) + "D]", std::to_string(times * depth) + "]");
  }
  text = replaced(text, ", D]", ", " + std::to_string(depth) + "]");
  text = replaced(text, "T,", std::to_string(length) + ",");
  text = replaced(text, "T]", std::to_string(length) + "]");
  text = replaced(text, "STAT", dtype == "float64" ? dtype : "float32");
  return replaced(text, "TYPE", dtype);
}

}  // namespace

TEST(attention_reads_and_writes_the_projection) {
  const std::string left = "attention reshape attention_grad";
  CHECK_EQ(outline(projection("float32", 5, 4)), left);
  CHECK_EQ(outline(projection("float64", 7, 3)), left);
  for (const int64_t length : {13, 128, 211}) {
    CHECK_EQ(outline(projection("float32", length, 32)), left);
  }
  CHECK_EQ(outline(projection("float32", 200, 65)), left);
}

// What the search for a memory limit asks for is what an executable takes.
TEST(arena_bytes_are_those_of_the_executable) {
  backends::Backend& backend = cpu::backend();
  for (const int64_t length : {5, 64, 211}) {
    const ir::Graph graph = parse_graph(projection("float32", length, 32));
    CHECK_EQ(backend.arena_bytes(graph, backend.scratch_sizes(graph)),
             backend.compile(graph)->memory().arena_peak);
  }
}

TEST(half_types_are_copied) {
  const std::string names = outline(projection("float16", 5, 4));
  CHECK(names.find("slice slice slice reshape permute") == 0);
}

TEST(what_others_read_is_made) {
  std::string text = projection("float32", 5, 4);
  text = replaced(text, "return %14, %26", "return %14, %26, %6, %11");
  // %6 is a result, so it is made, and read; %11 keeps its order.
  CHECK_EQ(outline(text),
           std::string("slice reshape permute attention permute reshape attention_grad"));
}

TEST(all_results_of_a_node_are_made_where_they_are_joined) {
  const std::string text = projection("float32", 40, 8);
  const std::string made = "attention reshape attention_grad";
  // In another order, and side by side along other axes.
  CHECK_EQ(outline(replaced(text, "concat(%21, %23, %25)", "concat(%25, %21, %23)")), made);
  const std::string joined = "{dim=2} : float32[2, 40, 48]";
  CHECK_EQ(outline(replaced(text, joined, "{dim=1} : float32[2, 120, 16]")), made);
  CHECK_EQ(outline(replaced(text, joined, "{dim=0} : float32[6, 40, 16]")), made);
  std::string direct = text;
  direct.erase(direct.find("  %20"), direct.find("  %26") - direct.find("  %20"));
  direct = replaced(direct, "concat(%21, %23, %25) " + joined,
                    "concat(%17, %18, %19) {dim=3} : float32[2, 2, 40, 24]");
  CHECK_EQ(outline(replaced(direct, "%26", "%20")), made);
  // Not if one is missing, stands there twice or is read by others.
  for (const char* pieces : {"concat(%21, %23, %23)", "concat(%21, %23, %1)"}) {
    CHECK_EQ(outline(replaced(text, "concat(%21, %23, %25)", pieces)), made + " concat");
  }
  CHECK_EQ(outline(replaced(text, "return %14", "return %21, %14")), made + " reshape concat");
  CHECK_EQ(outline(replaced(text, "return %14", "return %24, %14")), made + " concat");
}

// As where memory is short: what is read again is made again.
TEST(what_is_made_twice_is_written_once) {
  std::string text = projection("float32", 5, 4);
  text = replaced(text, "  return %14",
                  "  %27 = permute(%11) {dims=[0, 2, 1, 3]} : float32[2, 5, 2, 4]\n"
                  "  %28 = neg(%27) : float32[2, 5, 2, 4]\n  return %28, %27, %14");
  CHECK_EQ(outline(text), std::string("attention reshape attention_grad neg"));
  // In two orders it stays in its own.
  text = replaced(text, "%27 = permute(%11) {dims=[0, 2, 1, 3]} : float32[2, 5, 2, 4]",
                  "%27 = permute(%11) {dims=[2, 0, 1, 3]} : float32[5, 2, 2, 4]");
  text = replaced(text, "neg(%27) : float32[2, 5, 2, 4]", "neg(%27) : float32[5, 2, 2, 4]");
  CHECK_EQ(outline(text), std::string("attention permute reshape attention_grad permute neg"));
}

TEST(a_small_part_does_not_keep_a_large_value) {
  const std::string text = R"(graph {
  %0 = input argument float32[64, 8]
  %1 = neg(%0) : float32[64, 8]
  %2 = slice(%1) {starts=[3, 0], sizes=[ROWS, 8], steps=[1, 1]} : float32[ROWS, 8]
  %3, %4 = attention(%2, %2, %2, _) {causal=false, scale=1.0} : float32[ROWS, 8], float32[ROWS]
  return %3
}
)";
  CHECK_EQ(outline(replaced(text, "ROWS", "8")), std::string("neg slice attention"));
  CHECK_EQ(outline(replaced(text, "ROWS", "48")), std::string("neg attention"));
}

TEST(strides_of_slices_broadcasts_and_reshapes) {
  CHECK_EQ(outline(R"(graph {
  %0 = input argument float32[6, 10, 4]
  %1 = slice(%0) {starts=[5, 0, 0], sizes=[3, 5, 4], steps=[-2, 2, 1]} : float32[3, 5, 4]
  %2 = input argument float32[1, 5, 4]
  %3 = broadcast_to(%2) {shape=[3, 5, 4]} : float32[3, 5, 4]
  %4 = reshape(%0) {shape=[6, 5, 8]} : float32[6, 5, 8]
  %5 = slice(%4) {starts=[0, 0, 4], sizes=[3, 5, 4], steps=[2, 1, 1]} : float32[3, 5, 4]
  %6, %7 = attention(%1, %3, %5, _) {causal=false, scale=1.0} : float32[3, 5, 4], float32[3, 5]
  %8 = permute(%6) {dims=[2, 1, 0]} : float32[4, 5, 3]
  %9 = concat(%8, %8) {dim=0} : float32[8, 5, 3]
  return %9
}
)"),
           std::string("attention concat"));
  // Rows in reverse, more of them than are read where they lie.
  CHECK_EQ(outline(R"(graph {
  %0 = input argument float32[2, 40, 24]
  %1 = slice(%0) {starts=[0, 39, 0], sizes=[2, 40, 8], steps=[1, -1, 1]} : float32[2, 40, 8]
  %2 = slice(%0) {starts=[1, 39, 8], sizes=[2, 40, 8], steps=[-1, -1, 1]} : float32[2, 40, 8]
  %3, %4 = attention(%1, %2, %2, _) {causal=true, scale=0.5} : float32[2, 40, 8], float32[2, 40]
  %5, %6, %7 = attention_grad(%1, %1, %2, %2, %3, %4, _) {causal=true, scale=0.5} : float32[2, 40, 8], float32[2, 40, 8], float32[2, 40, 8]
  return %3, %5, %6, %7
}
)"),
           std::string("attention attention_grad"));
  // Rows that are not side by side are copied for attention, and by concat where they come from.
  CHECK_EQ(outline(R"(graph {
  %0 = input argument float32[6, 4]
  %1 = permute(%0) {dims=[1, 0]} : float32[4, 6]
  %2, %3 = attention(%1, %1, %1, _) {causal=false, scale=1.0} : float32[4, 6], float32[4]
  %4 = permute(%0) {dims=[1, 0]} : float32[4, 6]
  %5 = reshape(%4) {shape=[24]} : float32[24]
  %6 = reshape(%4) {shape=[2, 2, 6]} : float32[2, 2, 6]
  %7 = concat(%6, %6) {dim=1} : float32[2, 4, 6]
  return %2, %5, %7
}
)"),
           std::string("permute attention permute reshape concat"));
}

}  // namespace lucid

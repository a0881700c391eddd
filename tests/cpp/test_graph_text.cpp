// The text form of graphs: printing, parsing back, and what the parser refuses.
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "graph_testing.h"

namespace lucid {
namespace {

using testing::parse_graph;

constexpr std::string_view kStep = R"(
graph {
  %0 = input argument float32[2, 3]
  %1 = input parameter float32[3]
  %2 = input captured int64[]
  %3 = input state float16[0]
  %4 = input random int64[2]
  %5 = input seed bfloat16[]
  %6 = add(%0, %1) : float32[2, 3]
  %7, %8 = dropout(%6, %4) {p=0.5, offset=3} : float32[2, 3], bool[2, 3]
  %9 = sum(%7) {dims=[0, 1], keepdim=false} : float32[]
  %10 = detach(%9) stop_gradient : float32[]
  return %10, %9, %9
}
)";

ir::Graph graph_of_full(ir::AttrValue value) {
  ir::Graph graph;
  ir::Node node;
  node.op = &ops::get("full");
  node.attrs = {ir::Ints{2}, DType::kFloat64, std::move(value)};
  const ir::ValueType type{DType::kFloat64, Shape{2}};
  graph.set_outputs(graph.add_node(std::move(node), {{type}}));
  return graph;
}

// Bits of the number that is read back from the text of a graph with this one.
uint64_t read_back(double value) {
  const ir::Graph graph = parse_graph(to_string(graph_of_full(value)));
  return std::bit_cast<uint64_t>(std::get<double>(graph.nodes().front().attr("value")));
}

void refuses(std::string_view text, std::string_view message) {
  CHECK_THROWS(parse_graph(text), Error, message);
}

}  // namespace

TEST(text_round_trip) {
  const ir::Graph graph = parse_graph(kStep);
  CHECK_GRAPH(graph, kStep);
  CHECK(graph.nodes().back().stop_gradient);
  CHECK(!graph.nodes().front().stop_gradient);
  CHECK_EQ(graph.inputs()[4].role, ir::Role::kRandom);
}

TEST(text_empty_graph) {
  const ir::Graph graph = parse_graph("graph{return}");
  CHECK_GRAPH(graph, "graph {\n  return\n}\n");
}

TEST(text_absent_input) {
  constexpr std::string_view kText = R"(
graph {
  %0 = input argument float32[2, 3]
  %1 = input parameter float32[3]
  %2, %3, %4 = layer_norm(%0, _, %1) {axes=1, eps=1e-05} : float32[2, 3], float32[2], float32[2]
  return %2
}
)";
  const ir::Graph graph = parse_graph(kText);
  CHECK_GRAPH(graph, kText);
  CHECK(!graph.nodes().front().has(1));
  CHECK(graph.nodes().front().has(2));
}

TEST(text_shows_locations_as_comments) {
  ir::Graph graph = graph_of_full(1.0);
  ir::Node node = graph.nodes().front();
  node.location = std::make_shared<const ir::Location>(ir::Location{"model.py", 41});
  const ir::ValueType type{DType::kFloat64, Shape{2}};
  graph.set_outputs(graph.add_node(std::move(node), {{type}}));
  CHECK(to_string(graph).find(": float64[2]  # model.py:41\n") != std::string::npos);
  CHECK_EQ(parse_graph(to_string(graph)).nodes().size(), 2);
}

TEST(text_keeps_the_bits_of_doubles) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const double value :
       {0.0, -0.0, 1.0, -1.0, 0.1, 1e300, 1e22, 123456789012345678.0, 5e-324, 2.2e-308, kInf, -kInf,
        kNan, -kNan, std::numeric_limits<double>::max(), 1.0 / 3.0}) {
    CHECK_EQ(read_back(value), std::bit_cast<uint64_t>(value));
  }
}

TEST(text_keeps_integers_and_doubles_apart) {
  const auto kind = [](ir::AttrValue value) {
    return parse_graph(to_string(graph_of_full(std::move(value)))).nodes().front().attrs[2];
  };
  CHECK(ir::identical(kind(int64_t{3}), int64_t{3}));
  CHECK(ir::identical(kind(3.0), 3.0));
  CHECK(ir::identical(kind(std::numeric_limits<int64_t>::min()),
                      std::numeric_limits<int64_t>::min()));
  CHECK(!ir::identical(ir::AttrValue{3.0}, ir::AttrValue{int64_t{3}}));
  CHECK(!ir::identical(ir::AttrValue{0.0}, ir::AttrValue{-0.0}));
}

TEST(text_strings_of_any_bytes) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  ir::Graph graph;
  ir::Node node;
  node.op = &ops::get("constant");
  node.attrs = {bytes, ir::Ints{256}, DType::kUInt8};
  const ir::ValueType type{DType::kUInt8, Shape{256}};
  graph.set_outputs(graph.add_node(std::move(node), {{type}}));
  const ir::Graph again = parse_graph(to_string(graph));
  CHECK(again.nodes().front().string("data") == bytes);
  CHECK(to_string(again) == to_string(graph));
}

TEST(text_ids_may_be_any_numbers) {
  const ir::Graph graph =
      parse_graph("graph { %7 = input argument float32[2] %3 = neg(%7) : float32[2] return %3 }");
  CHECK_GRAPH(graph, R"(
graph {
  %0 = input argument float32[2]
  %1 = neg(%0) : float32[2]
  return %1
}
)");
}

TEST(structure_keys_tell_graphs_apart) {
  const ir::Graph graph = parse_graph(kStep);
  CHECK(structure_key(graph) == structure_key(parse_graph(kStep)));
  std::string other(kStep);
  other.replace(other.find("p=0.5"), 5, "p=0.4");
  CHECK(structure_key(graph) != structure_key(parse_graph(other)));
  other = kStep;
  other.replace(other.find("input state"), 11, "input seed ");
  CHECK(structure_key(graph) != structure_key(parse_graph(other)));
  other = kStep;
  other.replace(other.find("return %10, %9"), 14, "return %9, %10");
  CHECK(structure_key(graph) != structure_key(parse_graph(other)));
}

TEST(structure_keys_leave_locations_out) {
  ir::Graph graph = graph_of_full(1.0);
  ir::Graph located;
  ir::Node node = graph.nodes().front();
  node.location = std::make_shared<const ir::Location>(ir::Location{"model.py", 41});
  const ir::ValueType type{DType::kFloat64, Shape{2}};
  located.set_outputs(located.add_node(std::move(node), {{type}}));
  CHECK(structure_key(graph) == structure_key(located));
}

TEST(text_refusals_name_the_line) {
  refuses("", "graph text, line 1: expected 'graph'");
  refuses("graph {\n\n", "graph text, line 3: expected '%'");
  refuses("graph {\n  %0 = input friend float32[2]\n", "graph text, line 2: unknown role friend");
  refuses("graph {\n  %0 = input argument float8[2]\n", "graph text, line 2: unknown dtype float8");
  refuses("graph {\n  %0 = input argument float32[-2]\n",
          "graph text, line 2: negative size -2 in a shape");
  refuses("graph {\n  %0 = input argument float32[1,1,1,1,1,1,1,1,1]\n",
          "graph text, line 2: tensor of 9 axes");
  refuses("graph {\n  %0 = input argument float32[99999999999999999999]\n",
          "graph text, line 2: expected an integer");
  refuses("graph {\n  %0, %1 = input argument float32[2]\n",
          "graph text, line 2: an input is one value");
  refuses("graph {\n  %0 = input argument float32[2]\n  %0 = input argument float32[2]\n",
          "graph text, line 3: %0 is made twice");
  refuses("graph {\n  # a comment\n  %1 = neg(%0) : float32[2]\n",
          "graph text, line 3: %0 is used before it is made");
  refuses("graph {\n  %1 = turn(%0) : float32[2]\n", "graph text, line 2: unknown operation turn");
  refuses("graph {\n  %0 = input argument float32[2]\n  %1 = neg(%0) : float32[2], float32[2]\n",
          "graph text, line 3: as many types as outputs are needed");
  refuses("graph {\n  return %0\n}", "graph text, line 2: %0 is used before it is made");
  refuses("graph {\n  return\n}\n!", "graph text, line 4: text after the closing brace");
  refuses("graph {\n  %4294967296 = input argument float32[2]", "graph text, line 2: bad value id");
}

TEST(text_refusals_of_attributes) {
  const auto full = [](const std::string& attrs) {
    return "graph {\n  %0 = full() {" + attrs + "} : float32[]\n  return %0\n}\n";
  };
  refuses(full("shape=[], dtype=float32, value="), "graph text, line 2: bad number ''");
  refuses(full("shape=[], dtype=float32, value=x"), "graph text, line 2: bad number 'x'");
  refuses(full("shape=[], dtype=float32, value=9223372036854775808"),
          "graph text, line 2: bad number '9223372036854775808'");
  refuses(full("shape=[], dtype=float32, value=1e999"), "graph text, line 2: bad number '1e999'");
  refuses(full("shape=[], dtype=float33, value=1"), "graph text, line 2: unknown dtype float33");
  refuses(full("dtype=float32, shape=[], value=1"), "graph text, line 2: expected 'shape'");
  refuses(full("shape=[], dtype=float32"), "graph text, line 2: expected ','");
  refuses("graph {\n  %0 = constant() {data=\"\\x4\", shape=[1], dtype=uint8} : uint8[1]\n",
          "graph text, line 2: bad escape in a string");
  refuses("graph {\n  %0 = constant() {data=\"abc", "graph text, line 2: expected '\"'");
  CHECK_EQ(parse_graph(full("shape=[ ], dtype=float32, value=1 ")).nodes().size(), 1);
}

TEST(text_is_verified) {
  refuses("graph {\n  %0 = input argument float32[2]\n  %1 = neg(%0) : float32[3]\n  return %1\n}",
          "graph broken after parse: neg makes float32[2] but %1 is float32[3]");
}

}  // namespace lucid

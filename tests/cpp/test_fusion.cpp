// Element-wise fusion: which nodes come together, what a fused node computes, and where it may
// write. Whatever is fused has the bits of its nodes run one by one.
#include <array>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "autodiff/graph_builder.h"
#include "backends/cpu/fusion.h"
#include "graph_testing.h"
#include "kernel_testing.h"

namespace lucid {
namespace {

using cpu::FusedGraph;
using cpu::TileProgram;
using testing::normal;
using testing::parse_graph;
using testing::Value;

constexpr unsigned kInputSeed = 40;

Value filled(const ir::ValueType& type, unsigned seed) {
  if (type.dtype == DType::kBool) return testing::integers(type.dtype, type.shape, 0, 2, seed);
  if (!is_floating(type.dtype)) return testing::integers(type.dtype, type.shape, 0, 7, seed);
  return normal(type.dtype, type.shape, seed);
}

std::vector<Value> inputs_of(const ir::Graph& graph) {
  std::vector<Value> values;
  for (const ir::Input& input : graph.inputs()) {
    values.push_back(
        filled(graph.type(input.value), kInputSeed + static_cast<unsigned>(values.size())));
  }
  return values;
}

/// Runs a graph node by node. `programs`, if given, are those of its fused nodes.
std::vector<Value> run_nodes(const ir::Graph& graph, const std::vector<Value>& inputs,
                             const std::vector<std::optional<TileProgram>>& programs = {}) {
  const auto kernel_of = [&](size_t i) {
    const cpu::NodeView view{graph.nodes()[i], graph};
    const bool is_fused = !programs.empty() && programs[i].has_value();
    return is_fused ? cpu::make_fused_kernel(view, *programs[i]) : cpu::make_kernel(view);
  };
  const auto num_results = [&](size_t i) { return graph.nodes()[i].outputs.size(); };
  return testing::run_nodes(graph, inputs, kernel_of, num_results);
}

/// Fails unless the fused graph has the outputs' bits with 1 and with 4 threads.
void check_same_bits(const ir::Graph& graph, const std::string& what) {
  const FusedGraph fused = cpu::fuse_elementwise(graph);
  const std::vector<Value> inputs = inputs_of(graph);
  cpu::set_num_threads(1);
  const std::vector<Value> expected = run_nodes(graph, inputs);
  constexpr std::array kThreads = {1, 4};
  for (const int threads : kThreads) {
    cpu::set_num_threads(threads);
    const std::vector<Value> found = run_nodes(fused.graph, inputs, fused.programs);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (found[i].same_bits(expected[i])) continue;
      testing::fail(__FILE__, __LINE__,
                    what + ": output " + std::to_string(i) + " differs with " +
                        std::to_string(threads) + " threads in\n" + to_string(graph));
    }
  }
  cpu::set_num_threads(1);
}

/// The fused graph in short: "fused(tanh neg) sum", in order.
std::string outline(const ir::Graph& graph) {
  const FusedGraph fused = cpu::fuse_elementwise(graph);
  std::string text;
  for (size_t i = 0; i < fused.programs.size(); ++i) {
    if (i > 0) text += ' ';
    const ir::Node& node = fused.graph.nodes()[i];
    text += node.op->name;
    if (!fused.programs[i]) continue;
    const size_t inputs = node.inputs.size();
    text += '(' + std::to_string(fused.programs[i]->instructions.size()) + " of " +
            std::to_string(inputs) + " to " + std::to_string(node.outputs.size()) + ')';
  }
  return text;
}

std::string outline(std::string_view text) { return outline(parse_graph(text)); }

const TileProgram& first_program(const FusedGraph& fused) {
  for (const auto& program : fused.programs) {
    if (program) return *program;
  }
  throw std::logic_error("nothing was fused");
}

/// True if every node reads values of nodes before it. The verifier does not know fused nodes.
bool reads_what_was_made(const ir::Graph& graph) {
  for (const ir::Node& node : graph.nodes()) {
    for (const auto& input : node.inputs) {
      if (input && *input >= node.outputs.front()) return false;
    }
  }
  return true;
}

/// Builds graphs node by node.
struct Made {
  ir::Graph graph;
  autodiff::GraphBuilder builder{graph};

  ir::ValueId input(DType dtype, Shape shape) {
    return graph.add_input(ir::Role::kArgument, {dtype, std::move(shape)});
  }
  ir::Graph returning(std::vector<ir::ValueId> outputs) {
    graph.set_outputs(std::move(outputs));
    verify(graph, "made");
    return graph;
  }
};

}  // namespace

TEST(a_chain_becomes_one_node) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[16]
  %1 = input argument float32[16]
  %2 = mul(%0, %1) : float32[16]
  %3 = tanh(%2) : float32[16]
  %4 = sub(%3, %0) : float32[16]
  return %4
}
)");
  CHECK_EQ(outline(graph), std::string("fused(3 of 2 to 1)"));
  const FusedGraph fused = cpu::fuse_elementwise(graph);
  CHECK_EQ(fused.origins[0], 2);
  // tanh may not write where it reads; sub writes the output.
  CHECK_EQ(first_program(fused).num_registers, 2);
  CHECK_EQ(first_program(fused).register_item_bytes, 4);
}

TEST(a_single_node_stays_what_it_is) {
  CHECK_EQ(outline(R"(
graph {
  %0 = input argument float32[16]
  %1 = tanh(%0) : float32[16]
  %2 = sum(%1) {dims=[0], keepdim=false} : float32[]
  return %2
}
)"),
           std::string("tanh sum"));
}

TEST(a_reader_outside_closes_a_cluster) {
  CHECK_EQ(outline(R"(
graph {
  %0 = input argument float32[16]
  %1 = tanh(%0) : float32[16]
  %2 = neg(%1) : float32[16]
  %3 = sum(%1) {dims=[0], keepdim=false} : float32[]
  %4 = exp(%2) : float32[16]
  %5 = sin(%4) : float32[16]
  return %3, %5
}
)"),
           std::string("fused(2 of 1 to 2) sum fused(2 of 1 to 1)"));
}

TEST(a_node_beside_is_passed_over_but_not_too_many) {
  constexpr std::string_view kFew = R"(
graph {
  %0 = input argument float32[16]
  %1 = tanh(%0) : float32[16]
  %2 = sum(%0) {dims=[0], keepdim=false} : float32[]
  %3 = neg(%1) : float32[16]
  %4 = add(%3, %2) : float32[16]
  return %4
}
)";
  CHECK_EQ(outline(kFew), std::string("sum fused(3 of 2 to 1)"));
  CHECK_EQ(outline(R"(
graph {
  %0 = input argument float32[16]
  %1 = tanh(%0) : float32[16]
  %2 = sum(%0) {dims=[0], keepdim=false} : float32[]
  %3 = sum(%0) {dims=[0], keepdim=false} : float32[]
  %4 = sum(%0) {dims=[0], keepdim=false} : float32[]
  %5 = sum(%0) {dims=[0], keepdim=false} : float32[]
  %6 = neg(%1) : float32[16]
  return %2, %3, %4, %5, %6
}
)"),
           std::string("tanh sum sum sum sum neg"));
}

TEST(another_shape_is_another_cluster) {
  CHECK_EQ(outline(R"(
graph {
  %0 = input argument float32[4]
  %1 = input argument float32[3, 4]
  %2 = tanh(%0) : float32[4]
  %3 = neg(%2) : float32[4]
  %4 = add(%3, %1) : float32[3, 4]
  %5 = exp(%4) : float32[3, 4]
  return %5
}
)"),
           std::string("fused(2 of 1 to 1) fused(2 of 2 to 1)"));
}

TEST(neighbours_that_share_an_operand_come_together_others_do_not) {
  CHECK_EQ(outline(R"(
graph {
  %0 = input argument float32[16]
  %1 = input argument float32[16]
  %2 = tanh(%0) : float32[16]
  %3 = neg(%0) : float32[16]
  %4 = exp(%1) : float32[16]
  return %2, %3, %4
}
)"),
           std::string("fused(2 of 1 to 2) exp"));
}

TEST(two_clusters_stay_open_side_by_side) {
  CHECK_EQ(outline(R"(
graph {
  %0 = input argument float32[16]
  %1 = input argument float32[8]
  %2 = tanh(%0) : float32[16]
  %3 = tanh(%1) : float32[8]
  %4 = neg(%2) : float32[16]
  %5 = neg(%3) : float32[8]
  return %4, %5
}
)"),
           std::string("fused(2 of 1 to 1) fused(2 of 1 to 1)"));
}

TEST(a_node_that_reads_two_clusters_makes_them_one) {
  CHECK_EQ(outline(R"(
graph {
  %0 = input argument float32[16]
  %1 = input argument float32[16]
  %2 = tanh(%0) : float32[16]
  %3 = neg(%1) : float32[16]
  %4 = add(%3, %2) : float32[16]
  return %4
}
)"),
           std::string("fused(3 of 2 to 1)"));
  CHECK_EQ(outline(R"(
graph {
  %0 = input argument float32[16]
  %1 = input argument float32[16]
  %2 = tanh(%0) : float32[16]
  %3 = neg(%1) : float32[16]
  %4 = sum(%3) {dims=[0], keepdim=false} : float32[]
  %5 = add(%3, %2) : float32[16]
  return %4, %5
}
)"),
           std::string("neg sum fused(2 of 2 to 1)"));
}

// AdamW of one parameter: the decayed weight waits while both moments are made.
TEST(an_update_of_a_parameter_is_one_node) {
  CHECK_EQ(outline(R"(
graph {
  %0 = input argument float32[16]
  %1 = input argument float32[16]
  %2 = input argument float32[16]
  %3 = input argument float32[16]
  %4 = input argument float32[]
  %5 = mul(%0, %4) : float32[16]
  %6 = sub(%1, %2) : float32[16]
  %7 = mul(%6, %4) : float32[16]
  %8 = add(%2, %7) : float32[16]
  %9 = mul(%1, %1) : float32[16]
  %10 = mul(%9, %4) : float32[16]
  %11 = mul(%3, %4) : float32[16]
  %12 = add(%11, %10) : float32[16]
  %13 = sqrt(%12) : float32[16]
  %14 = div(%8, %13) : float32[16]
  %15 = sub(%5, %14) : float32[16]
  return %15, %8, %12
}
)"),
           std::string("fused(11 of 5 to 3)"));
}

// A cluster must not read, through another, what it makes itself.
TEST(clusters_never_read_each_other_in_a_circle) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[1]
  %1 = input argument float32[8]
  %2 = tanh(%0) : float32[1]
  %3 = mul(%2, %1) : float32[8]
  %4 = neg(%2) : float32[1]
  %5 = exp(%3) : float32[8]
  %6 = add(%5, %4) : float32[8]
  return %6
}
)");
  CHECK(reads_what_was_made(cpu::fuse_elementwise(graph).graph));
  CHECK_EQ(outline(graph), std::string("tanh neg fused(3 of 3 to 1)"));
  check_same_bits(graph, "circle");
}

TEST(nodes_that_may_refuse_their_operands_are_not_fused) {
  CHECK_EQ(outline(R"(
graph {
  %0 = input argument int32[16]
  %1 = input argument int32[16]
  %2 = add(%0, %1) : int32[16]
  %3 = remainder(%2, %1) : int32[16]
  %4 = neg(%3) : int32[16]
  return %4
}
)"),
           std::string("add remainder neg"));
}

TEST(an_alias_between_closes) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[16]
  %1 = tanh(%0) : float32[16]
  %2 = neg(%1) : float32[16]
  %3 = reshape(%2) {shape=[4, 4]} : float32[4, 4]
  %4 = exp(%3) : float32[4, 4]
  %5 = sin(%4) : float32[4, 4]
  return %5, %2
}
)");
  CHECK_EQ(outline(graph), std::string("fused(2 of 1 to 1) reshape fused(2 of 1 to 1)"));
}

TEST(values_that_nobody_reads_and_outputs_read_inside_are_outputs) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[700]
  %1 = tanh(%0) : float32[700]
  %2 = neg(%1) : float32[700]
  %3 = exp(%1) : float32[700]
  %4 = mul(%3, %1) : float32[700]
  return %1, %4, %1
}
)");
  CHECK_EQ(outline(graph), std::string("fused(4 of 1 to 3)"));
  check_same_bits(graph, "inside");
}

TEST(a_program_has_a_bounded_number_of_members_and_operands) {
  Made made;
  const ir::ValueId x = made.input(DType::kFloat32, Shape{16});
  ir::ValueId chain = x;
  for (int i = 0; i < 200; ++i) chain = made.builder.op("tanh", {chain});
  const ir::Graph graph = made.returning({chain});
  CHECK_EQ(outline(graph), std::string("fused(64 of 1 to 1) fused(64 of 1 to 1) "
                                       "fused(64 of 1 to 1) fused(8 of 1 to 1)"));
  const FusedGraph fused_chain = cpu::fuse_elementwise(graph);
  CHECK_EQ(first_program(fused_chain).num_registers, 2);

  Made wide;
  ir::ValueId sum = wide.input(DType::kFloat32, Shape{1000});
  for (int i = 0; i < 60; ++i) {
    sum = wide.builder.add(sum, wide.input(DType::kFloat32, Shape{1000}));
  }
  const ir::Graph sums = wide.returning({sum});
  const FusedGraph fused = cpu::fuse_elementwise(sums);
  for (const ir::Node& node : fused.graph.nodes()) {
    CHECK(node.inputs.size() <= 24);
  }
  check_same_bits(sums, "many operands");
}

// A tile function may not write the register that it reads: the dtypes may differ.
TEST(registers_hold_what_their_readers_expect) {
  using In = TileProgram::Place::In;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](size_t count) { return static_cast<size_t>(random()) % count; };
    Made made;
    std::vector<ir::ValueId> values = {made.input(DType::kFloat32, Shape{5}),
                                       made.input(DType::kFloat32, Shape{5})};
    for (int i = 0; i < 40; ++i) {
      const ir::ValueId early = values[pick(values.size())];
      const ir::ValueId late = values[values.size() - 1 - pick(std::min<size_t>(values.size(), 5))];
      values.push_back(made.builder.op(pick(2) == 0 ? "mul" : "add", {early, late}));
    }
    const ir::Graph graph = made.returning({values.back(), values[20]});
    const FusedGraph fused = cpu::fuse_elementwise(graph);
    const TileProgram& program = first_program(fused);
    std::set<uint32_t> written;  // outputs
    std::set<uint32_t> filled;   // registers
    for (const auto& instruction : program.instructions) {
      const TileProgram::Place& result = instruction.result;
      for (size_t i = 0; i < 2; ++i) {
        const TileProgram::Place& operand = instruction.operands[i];
        if (operand.in == In::kOutput) CHECK(written.contains(operand.number));
        if (operand.in != In::kRegister) continue;
        CHECK(filled.contains(operand.number));
        CHECK(result.in != In::kRegister || result.number != operand.number);
      }
      if (result.in == In::kRegister) {
        CHECK(result.number < program.num_registers);
        filled.insert(result.number);
      } else {
        CHECK(written.insert(result.number).second);
      }
    }
    check_same_bits(graph, "registers, seed " + std::to_string(seed));
  }
}

TEST(an_operand_read_twice_by_its_last_reader_frees_one_register) {
  // Freed twice, the register would be that of %4 and of %5.
  check_same_bits(parse_graph(R"(
graph {
  %0 = input argument float32[600]
  %1 = tanh(%0) : float32[600]
  %2 = mul(%1, %1) : float32[600]
  %3 = exp(%0) : float32[600]
  %4 = sin(%0) : float32[600]
  %5 = add(%3, %4) : float32[600]
  %6 = add(%5, %3) : float32[600]
  %7 = add(%6, %4) : float32[600]
  %8 = add(%7, %2) : float32[600]
  return %8
}
)"),
                  "read twice");
}

TEST(may_overwrite_only_what_no_later_instruction_reads) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[16]
  %1 = input argument float32[16]
  %2 = mul(%0, %1) : float32[16]
  %3 = tanh(%2) : float32[16]
  %4 = add(%3, %0) : float32[16]
  return %2, %4
}
)");
  const FusedGraph fused = cpu::fuse_elementwise(graph);
  const TileProgram& program = first_program(fused);
  CHECK(!program.may_overwrite(0, 0));  // %4 reads %0 after %2 is written
  CHECK(program.may_overwrite(0, 1));
  CHECK(program.may_overwrite(1, 0));
  CHECK(program.may_overwrite(1, 1));
}

TEST(broadcasting_operands_have_the_bits_of_single_nodes) {
  // Periods below, at and above the tile, that divide each other or do not, and columns.
  const std::vector<std::pair<Shape, std::vector<Shape>>> kCases = {
      {Shape{3, 5}, {Shape{}, Shape{5}, Shape{3, 1}, Shape{1, 5}}},
      {Shape{7, 512}, {Shape{512}, Shape{7, 1}, Shape{1}}},
      {Shape{5, 513}, {Shape{513}, Shape{1, 513}, Shape{5, 1}}},
      {Shape{3, 2047}, {Shape{2047}, Shape{}}},
      {Shape{3, 2049}, {Shape{2049}, Shape{3, 1}}},
      {Shape{2, 5000}, {Shape{5000}, Shape{2, 1}}},
      {Shape{6, 4, 33}, {Shape{4, 1}, Shape{6, 1, 33}, Shape{33}, Shape{4, 33}}},
      {Shape{2, 3, 4, 5, 6}, {Shape{3, 1, 5, 1}, Shape{4, 1, 6}, Shape{2, 1, 1, 1, 1}}},
      {Shape{4, 300, 3}, {Shape{300, 1}, Shape{4, 1, 1}, Shape{3}}},
  };
  constexpr std::array kTypes = {DType::kFloat32, DType::kFloat16, DType::kFloat64};
  for (const auto& [shape, operands] : kCases) {
    for (const DType dtype : kTypes) {
      Made made;
      ir::ValueId value = made.input(dtype, shape);
      std::vector<ir::ValueId> outputs;
      for (const Shape& operand : operands) {
        value = made.builder.mul(value, made.input(dtype, operand));
        outputs.push_back(value);
        value = made.builder.op("tanh", {value});
      }
      outputs.push_back(value);
      const ir::Graph graph = made.returning(outputs);
      CHECK_EQ(cpu::fuse_elementwise(graph).graph.nodes().size(), 1);
      check_same_bits(graph, "broadcast to " + to_string(shape));
    }
  }
}

TEST(sizes_around_the_tile_have_the_bits_of_single_nodes) {
  constexpr std::array kSizes = {0,    1,    2,    7,    511,  512,    513,
                                 1023, 1024, 1025, 2048, 2049, 100003, 2200003};  // in no cache
  for (const int64_t size : kSizes) {
    Made made;
    const ir::ValueId x = made.input(DType::kFloat32, Shape{size});
    const ir::ValueId y = made.input(DType::kFloat32, Shape{size});
    const ir::ValueId scale = made.input(DType::kFloat32, Shape{});
    const ir::ValueId product = made.builder.mul(x, scale);
    const ir::ValueId sum = made.builder.add(product, y);
    const ir::ValueId root = made.builder.op("tanh", {sum});
    check_same_bits(made.returning({root, product}), "size " + std::to_string(size));
  }
}

TEST(every_dtype_and_casts_between_have_the_bits_of_single_nodes) {
  constexpr std::array kTypes = {DType::kBool,    DType::kUInt8,  DType::kInt8,    DType::kInt16,
                                 DType::kInt32,   DType::kInt64,  DType::kFloat16, DType::kBFloat16,
                                 DType::kFloat32, DType::kFloat64};
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      Made made;
      const ir::ValueId x = made.input(from, Shape{3, 700});
      const ir::ValueId row = made.input(to, Shape{700});
      const ir::ValueId cast = made.builder.op("cast", {x}, {to});
      const ir::ValueId larger = made.builder.op("maximum", {cast, row});
      const ir::ValueId equal = made.builder.op("eq", {larger, row});
      const ir::ValueId chosen = made.builder.where(equal, row, larger);
      const ir::ValueId back = made.builder.op("cast", {chosen}, {from});
      const ir::Graph graph = made.returning({back, equal});
      CHECK(cpu::fuse_elementwise(graph).graph.nodes().size() <= 2);
      check_same_bits(graph, std::string(name(from)) + " to " + std::string(name(to)));
    }
  }
}

TEST(random_graphs_have_the_bits_of_single_nodes) {
  constexpr std::array kUnary = {"tanh", "neg", "exp", "abs", "sigmoid", "square"};
  constexpr std::array kBinary = {"add", "sub", "mul", "maximum", "minimum"};
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](size_t count) { return static_cast<size_t>(random()) % count; };
    Made made;
    const std::array<int64_t, 3> kWidths = {33, 512, 1200};
    const int64_t width = kWidths[pick(3)];
    std::vector<ir::ValueId> values;
    const std::vector<Shape> shapes = {Shape{3, width}, Shape{width}, Shape{3, 1}, Shape{},
                                       Shape{1, 1}};
    for (const Shape& shape : shapes) {
      values.push_back(made.input(DType::kFloat32, shape));
    }
    for (int i = 0; i < 80; ++i) {
      const ir::ValueId a = values[values.size() - 1 - pick(std::min<size_t>(values.size(), 12))];
      const ir::ValueId b = values[pick(values.size())];
      const size_t kind = pick(12);
      if (kind == 0) {
        const int axis = made.builder.shape(a).rank() - 1;
        if (axis >= 0) values.push_back(made.builder.op("sum", {a}, {ir::Ints{axis}, true}));
      } else if (kind == 1) {
        const ir::Ints flat = {made.builder.shape(a).num_elements(), 1};
        if (made.builder.shape(a).rank() == 1) {
          values.push_back(made.builder.op("reshape", {a}, {flat}));
        }
      } else if (kind < 5) {
        values.push_back(made.builder.op(kUnary[pick(kUnary.size())], {a}));
      } else if (made.builder.shape(a).rank() != 2 || made.builder.shape(a)[0] <= 3) {
        if (made.builder.shape(b).rank() == 2 && made.builder.shape(b)[0] > 3) continue;
        values.push_back(made.builder.op(kBinary[pick(kBinary.size())], {a, b}));
      }
    }
    std::vector<ir::ValueId> outputs;
    for (int i = 0; i < 6; ++i) outputs.push_back(values[5 + pick(values.size() - 5)]);
    outputs.push_back(values.back());
    const ir::Graph graph = made.returning(outputs);
    const FusedGraph fused = cpu::fuse_elementwise(graph);
    CHECK(reads_what_was_made(fused.graph));
    CHECK(fused.graph.nodes().size() < graph.nodes().size());
    check_same_bits(graph, "seed " + std::to_string(seed));
  }
}

TEST(the_comparison_sees_a_wrong_register) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[600]
  %1 = tanh(%0) : float32[600]
  %2 = exp(%0) : float32[600]
  %3 = add(%1, %2) : float32[600]
  return %3
}
)");
  FusedGraph fused = cpu::fuse_elementwise(graph);
  const std::vector<Value> inputs = inputs_of(graph);
  const Value expected = run_nodes(graph, inputs).front();
  CHECK(run_nodes(fused.graph, inputs, fused.programs).front().same_bits(expected));
  fused.programs[0]->instructions[1].result.number =
      fused.programs[0]->instructions[0].result.number;
  CHECK(!run_nodes(fused.graph, inputs, fused.programs).front().same_bits(expected));
}

}  // namespace lucid

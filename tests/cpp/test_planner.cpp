// Memory plans: exact peaks of hand-made graphs, and a checker over random ones.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "autodiff/graph_builder.h"
#include "graph_testing.h"
#include "planner/plan.h"

namespace lucid {
namespace {

using planner::Place;
using planner::PlaceKind;
using planner::Plan;
using testing::parse_graph;

Plan plan_of(const ir::Graph& graph, std::vector<int64_t> scratch = {}) {
  scratch.resize(graph.nodes().size(), 0);
  return planner::plan(graph, scratch);
}

Plan plan_of(std::string_view text, std::vector<int64_t> scratch = {}) {
  return plan_of(parse_graph(text), std::move(scratch));
}

// What a value's memory is: the root of its aliases.
std::vector<uint32_t> roots_of(const ir::Graph& graph) {
  std::vector<uint32_t> roots(graph.num_values());
  for (uint32_t i = 0; i < roots.size(); ++i) roots[i] = i;
  for (const ir::Node& node : graph.nodes()) {
    if (node.op->is(ir::kAlias)) roots[index(node.outputs.front())] = roots[index(node.in(0))];
  }
  return roots;
}

// Simulates a run: every byte of the arena belongs to the value that was written last, and
// every read must find its own value there.
class Checker {
 public:
  Checker(const ir::Graph& graph, const Plan& plan, std::span<const int64_t> scratch)
      : graph_(graph), plan_(plan), scratch_(scratch), roots_(roots_of(graph)) {
    owners_.resize(static_cast<size_t>(plan.arena_bytes / planner::kAlignment), -1);
  }

  bool run() {
    const auto& nodes = graph_.nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].op->is(ir::kAlias)) continue;
      for (const auto& input : nodes[i].inputs) {
        if (input) check_owned(*input);
      }
      write(plan_.scratch_offsets[i], scratch_[i], -2 - static_cast<int>(i));
      for (const ir::ValueId output : nodes[i].outputs) write_value(output);
      for (const auto& input : nodes[i].inputs) {
        if (input && !nodes[i].op->is(ir::kInPlace)) check_owned(*input);
      }
      for (const ir::ValueId output : nodes[i].outputs) check_owned(output);
      check_range(plan_.scratch_offsets[i], scratch_[i], -2 - static_cast<int>(i));
    }
    return is_good_;
  }

 private:
  void check_owned(ir::ValueId value) {
    const Place& place = plan_.places[index(value)];
    if (place.kind != PlaceKind::kArena) return;
    check_range(place.offset_bytes, graph_.type(value).size_bytes(),
                static_cast<int>(roots_[index(value)]));
  }

  void write_value(ir::ValueId value) {
    const Place& place = plan_.places[index(value)];
    if (place.kind != PlaceKind::kArena) return;
    write(place.offset_bytes, graph_.type(value).size_bytes(), static_cast<int>(index(value)));
  }

  void for_lines(int64_t offset, int64_t size, auto body) {
    is_good_ = is_good_ && offset % planner::kAlignment == 0 && offset >= 0;
    const int64_t end = (offset + size + planner::kAlignment - 1) / planner::kAlignment;
    for (int64_t line = offset / planner::kAlignment; size > 0 && line < end; ++line) {
      if (line >= static_cast<int64_t>(owners_.size())) {
        is_good_ = false;
        return;
      }
      body(owners_[static_cast<size_t>(line)]);
    }
  }

  void write(int64_t offset, int64_t size, int owner) {
    for_lines(offset, size, [&](int& line) { line = owner; });
  }

  void check_range(int64_t offset, int64_t size, int owner) {
    for_lines(offset, size, [&](int& line) { is_good_ = is_good_ && line == owner; });
  }

  const ir::Graph& graph_;
  const Plan& plan_;
  std::span<const int64_t> scratch_;
  std::vector<uint32_t> roots_;
  std::vector<int> owners_;  // by cache line: the value (or -2 - node for scratch) it holds
  bool is_good_ = true;
};

bool is_sound(const ir::Graph& graph, const Plan& plan, std::span<const int64_t> scratch) {
  return Checker(graph, plan, scratch).run();
}

// A random graph of element-wise operations, reductions, reshapes, slice updates and sorts.
ir::Graph random_graph(uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](size_t count) { return static_cast<size_t>(random()) % count; };
  ir::Graph graph;
  autodiff::GraphBuilder builder(graph);
  std::vector<ir::ValueId> values;
  for (int64_t i = 0; i < 3; ++i) {
    values.push_back(graph.add_input(ir::Role::kArgument, {DType::kFloat32, Shape{4, 8 + 8 * i}}));
  }
  for (int i = 0; i < 60; ++i) {
    const ir::ValueId x = values[pick(values.size())];
    const Shape shape = builder.shape(x);
    const ir::ValueId y = values[pick(values.size())];
    const bool same = builder.shape(y) == shape;
    switch (pick(6)) {
      case 0:
        values.push_back(builder.op("tanh", {x}));
        break;
      case 1:
        values.push_back(builder.add(x, same ? y : x));
        break;
      case 2:
        values.push_back(builder.op("reshape", {x}, {ir::Ints{shape.num_elements()}}));
        break;
      case 3: {
        const ir::Ints ones(static_cast<size_t>(shape.rank()), 1);
        const ir::Ints zeros(static_cast<size_t>(shape.rank()), 0);
        values.push_back(builder.op("slice_update", {x, same ? y : x}, {zeros, ones}));
        break;
      }
      case 4: {
        const auto sorted = builder.ops("sort", {x}, {int64_t{shape.rank() - 1}, false});
        values.push_back(sorted[0]);
        break;
      }
      default:
        values.push_back(builder.op("sum", {x}, {ir::Ints{shape.rank() - 1}, true}));
    }
  }
  std::vector<ir::ValueId> outputs;
  for (int i = 0; i < 5; ++i) outputs.push_back(values[pick(values.size())]);
  outputs.push_back(values.back());
  graph.set_outputs(std::move(outputs));
  return graph;
}

}  // namespace

TEST(plan_a_chain_in_one_block) {
  const Plan plan = plan_of(R"(
graph {
  %0 = input argument float32[16]
  %1 = tanh(%0) : float32[16]
  %2 = exp(%1) : float32[16]
  %3 = neg(%2) : float32[16]
  %4 = sin(%3) : float32[16]
  return %4
}
)");
  CHECK_EQ(plan.arena_bytes, 64);
  CHECK_EQ(plan.places[0].kind, PlaceKind::kInput);
  CHECK_EQ(plan.places[2].kind, PlaceKind::kArena);
  CHECK_EQ(plan.places[4].kind, PlaceKind::kOutput);
  CHECK(plan.copies.empty());
}

TEST(plan_sizes_are_rounded_to_lines) {
  const Plan plan = plan_of(R"(
graph {
  %0 = input argument float32[17]
  %1 = tanh(%0) : float32[17]
  %2 = sum(%1) {dims=[0], keepdim=false} : float32[]
  %3 = add(%1, %2) : float32[17]
  return %3
}
)");
  CHECK_EQ(plan.arena_bytes, 128 + 64);  // %1 of 68 bytes, and %2 beside it
}

TEST(plan_gaps_are_used_again) {
  // %1 (4096) dies at the sum; %3 and %4 (2048 each) fit into its place.
  const Plan plan = plan_of(R"(
graph {
  %0 = input argument float32[1024]
  %1 = tanh(%0) : float32[1024]
  %2 = sum(%1) {dims=[0], keepdim=false} : float32[]
  %3 = broadcast_to(%2) {shape=[512]} : float32[512]
  %4 = tanh(%3) : float32[512]
  %5 = add(%3, %4) : float32[512]
  %6 = add(%5, %4) : float32[512]
  return %6
}
)");
  CHECK_EQ(plan.arena_bytes, 4096 + 64);
}

TEST(plan_in_place_where_the_operand_dies) {
  const Plan plan = plan_of(R"(
graph {
  %0 = input argument float32[16]
  %1 = tanh(%0) : float32[16]
  %2 = mul(%1, %0) : float32[16]
  %3 = sum(%2) {dims=[0], keepdim=false} : float32[]
  return %3
}
)");
  CHECK_EQ(plan.places[1].offset_bytes, plan.places[2].offset_bytes);
  CHECK_EQ(plan.arena_bytes, 64);
}

// The loss, %3, is as large and dies there too.
TEST(plan_in_place_of_the_operand_that_the_operation_names) {
  const Plan plan = plan_of(R"(
graph {
  %0 = input argument float32[16, 1]
  %1 = input argument int64[16]
  %2 = exp(%0) : float32[16, 1]
  %3, %4 = cross_entropy(%2, %1, _) {ignore_index=-100, label_smoothing=0.0, reduction="none"} : float32[16], float32[16]
  %5 = cross_entropy_grad(%3, %2, %1, %4, _) {ignore_index=-100, label_smoothing=0.0, reduction="none"} : float32[16, 1]
  %6 = sum(%5) {dims=[0, 1], keepdim=false} : float32[]
  return %6
}
)");
  CHECK_EQ(plan.places[5].offset_bytes, plan.places[2].offset_bytes);
  CHECK_EQ(plan.arena_bytes, 3 * 64);
}

TEST(plan_not_in_place_while_the_operand_lives) {
  const Plan plan = plan_of(R"(
graph {
  %0 = input argument float32[16]
  %1 = tanh(%0) : float32[16]
  %2 = exp(%1) : float32[16]
  %3 = mul(%1, %2) : float32[16]
  %4 = sum(%3) {dims=[0], keepdim=false} : float32[]
  return %4
}
)");
  CHECK(plan.places[1].offset_bytes != plan.places[2].offset_bytes);
  CHECK_EQ(plan.arena_bytes, 128);
}

TEST(plan_in_place_with_the_same_operand_twice) {
  // Element by element, both reads see the element before it is overwritten.
  const Plan plan = plan_of(R"(
graph {
  %0 = input argument float32[16]
  %1 = tanh(%0) : float32[16]
  %2 = mul(%1, %1) : float32[16]
  %3 = sum(%2) {dims=[0], keepdim=false} : float32[]
  return %3
}
)");
  CHECK_EQ(plan.places[1].offset_bytes, plan.places[2].offset_bytes);
}

TEST(plan_not_in_place_with_a_second_read_of_other_shape) {
  // %2 has %1's memory with other places of the elements.
  const Plan plan = plan_of(R"(
graph {
  %0 = input argument float32[16, 1]
  %1 = tanh(%0) : float32[16, 1]
  %2 = reshape(%1) {shape=[16]} : float32[16]
  %3 = mul(%1, %2) : float32[16, 16]
  %4 = sum(%3) {dims=[0, 1], keepdim=false} : float32[]
  return %4
}
)");
  CHECK_EQ(plan.places[1].offset_bytes, plan.places[2].offset_bytes);
  CHECK(plan.places[3].offset_bytes != plan.places[1].offset_bytes);
}

TEST(plan_not_in_place_with_a_second_read_that_is_not_element_wise) {
  const Plan plan = plan_of(R"(
graph {
  %0 = input argument float32[16]
  %1 = tanh(%0) : float32[16]
  %2 = slice_update(%1, %1) {starts=[0], steps=[1]} : float32[16]
  %3 = sum(%2) {dims=[0], keepdim=false} : float32[]
  return %3
}
)");
  CHECK(plan.places[1].offset_bytes != plan.places[2].offset_bytes);
}

TEST(plan_not_in_place_for_another_size_or_dtype) {
  const Plan plan = plan_of(R"(
graph {
  %0 = input argument float32[16]
  %1 = sum(%0) {dims=[0], keepdim=true} : float32[1]
  %2 = add(%1, %0) : float32[16]
  %3 = eq(%2, %0) : bool[16]
  %4 = any(%3) {dims=[0], keepdim=false} : bool[]
  return %4
}
)");
  CHECK(plan.places[1].offset_bytes != plan.places[2].offset_bytes);
  CHECK(plan.places[2].offset_bytes != plan.places[3].offset_bytes);
}

TEST(plan_inputs_are_never_overwritten) {
  const Plan plan = plan_of(R"(
graph {
  %0 = input argument float32[16]
  %1 = reshape(%0) {shape=[4, 4]} : float32[4, 4]
  %2 = neg(%1) : float32[4, 4]
  %3 = sum(%2) {dims=[0], keepdim=false} : float32[4]
  return %3
}
)");
  CHECK_EQ(plan.places[1].kind, PlaceKind::kInput);
  CHECK_EQ(plan.places[1].slot, 0);
  CHECK_EQ(plan.places[2].kind, PlaceKind::kArena);
}

TEST(plan_outputs_that_are_inputs_or_repeated_are_copied) {
  const Plan plan = plan_of(R"(
graph {
  %0 = input argument float32[16]
  %1 = neg(%0) : float32[16]
  %2 = reshape(%1) {shape=[4, 4]} : float32[4, 4]
  %3 = reshape(%0) {shape=[4, 4]} : float32[4, 4]
  return %0, %1, %1, %2, %3
}
)");
  CHECK_EQ(plan.arena_bytes, 0);
  CHECK_EQ(plan.places[1].kind, PlaceKind::kOutput);
  CHECK_EQ(plan.places[1].slot, 1);
  CHECK_EQ(plan.places[2].slot, 1);
  CHECK_EQ(plan.copies.size(), 4);
  CHECK_EQ(plan.copies[0].output, 0);
  CHECK_EQ(plan.copies[1].output, 2);
  CHECK(plan.copies[3].from == ir::ValueId{3});
}

TEST(plan_an_output_that_is_read_on_is_not_overwritten) {
  const Plan plan = plan_of(R"(
graph {
  %0 = input argument float32[16]
  %1 = tanh(%0) : float32[16]
  %2 = exp(%1) : float32[16]
  %3 = sum(%2) {dims=[0], keepdim=false} : float32[]
  return %1, %3
}
)");
  CHECK_EQ(plan.places[1].kind, PlaceKind::kOutput);
  CHECK_EQ(plan.places[2].kind, PlaceKind::kArena);
}

TEST(plan_an_alias_keeps_its_root_alive) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[16]
  %1 = tanh(%0) : float32[16]
  %2 = reshape(%1) {shape=[4, 4]} : float32[4, 4]
  %3 = exp(%1) : float32[16]
  %4 = sum(%3) {dims=[0], keepdim=false} : float32[]
  %5 = add(%2, %4) : float32[4, 4]
  %6 = sum(%5) {dims=[0, 1], keepdim=false} : float32[]
  return %6
}
)");
  const Plan plan = plan_of(graph);
  const std::vector<int64_t> scratch(graph.nodes().size(), 0);
  CHECK(plan.places[3].offset_bytes != plan.places[1].offset_bytes);
  CHECK_EQ(plan.places[5].offset_bytes, plan.places[2].offset_bytes);  // %2 dies at %5
  CHECK(is_sound(graph, plan, scratch));
}

TEST(plan_scratch_lies_beside_the_operands_of_its_node) {
  constexpr std::string_view kText = R"(
graph {
  %0 = input argument float32[16]
  %1 = tanh(%0) : float32[16]
  %2 = exp(%1) : float32[16]
  %3 = sum(%2) {dims=[0], keepdim=false} : float32[]
  return %3
}
)";
  const Plan plan = plan_of(kText, {1000, 0, 70});
  CHECK_EQ(plan.arena_bytes, 64 + 1024);
  CHECK_EQ(plan.scratch_offsets[0] % planner::kAlignment, 0);
  CHECK(is_sound(parse_graph(kText), plan, std::vector<int64_t>{1000, 0, 70}));
}

// Largest first would leave a gap: 8 lines. At most 7 live at one time.
TEST(plan_long_lives_first_where_sizes_leave_gaps) {
  const Plan plan = plan_of(R"(
graph {
  %0 = full() {shape=[32], dtype=float32, value=1.0} : float32[32]
  %1 = full() {shape=[64], dtype=float32, value=1.0} : float32[64]
  %2 = sum(%1) {dims=[0], keepdim=false} : float32[]
  %3 = full() {shape=[32], dtype=float32, value=1.0} : float32[32]
  %4 = full() {shape=[48], dtype=float32, value=1.0} : float32[48]
  %5 = sum(%3) {dims=[0], keepdim=false} : float32[]
  %6 = sum(%0) {dims=[0], keepdim=false} : float32[]
  %7 = sum(%4) {dims=[0], keepdim=false} : float32[]
  return %2, %5, %6, %7
}
)");
  CHECK_EQ(plan.arena_bytes, 7 * planner::kAlignment);
}

TEST(plan_empty_values_take_nothing) {
  const Plan plan = plan_of(R"(
graph {
  %0 = input argument float32[0, 4]
  %1 = tanh(%0) : float32[0, 4]
  %2 = exp(%1) : float32[0, 4]
  %3 = sum(%2) {dims=[0], keepdim=false} : float32[4]
  return %3
}
)");
  CHECK_EQ(plan.arena_bytes, 0);
}

TEST(plan_of_more_than_any_memory_is_refused) {
  CHECK_THROWS(plan_of(R"(
graph {
  %0 = input argument float64[1]
  %1 = broadcast_to(%0) {shape=[1152921504606846975]} : float64[1152921504606846975]
  %2 = sum(%1) {dims=[0], keepdim=false} : float64[]
  return %2
}
)"),
               Error, "plan: the graph's values need 2^56 bytes or more");
}

TEST(plan_random_graphs_never_overlap) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const ir::Graph graph = random_graph(seed);
    verify(graph, "random");
    std::vector<int64_t> scratch;
    std::mt19937 random(seed);
    for (size_t i = 0; i < graph.nodes().size(); ++i) scratch.push_back(random() % 3 * 100);
    const Plan plan = planner::plan(graph, scratch);
    if (is_sound(graph, plan, scratch)) continue;
    testing::fail(__FILE__, __LINE__, "values overlap in the plan of\n" + to_string(graph));
  }
}

TEST(the_checker_sees_an_overlap) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[16]
  %1 = tanh(%0) : float32[16]
  %2 = exp(%1) : float32[16]
  %3 = mul(%1, %2) : float32[16]
  return %3
}
)");
  const std::vector<int64_t> scratch(3, 0);
  Plan plan = planner::plan(graph, scratch);
  CHECK(is_sound(graph, plan, scratch));
  plan.places[2].offset_bytes = plan.places[1].offset_bytes;
  CHECK(!is_sound(graph, plan, scratch));
}

TEST(plan_takes_the_second_operand_where_it_may) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[16]
  %1 = exp(%0) : float32[16]
  %2 = tanh(%0) : float32[16]
  %3 = sub(%0, %2) : float32[16]
  %4 = sum(%3) {dims=[0], keepdim=false} : float32[]
  %5 = add(%1, %4) : float32[16]
  return %5
}
)");
  const std::vector<int64_t> scratch(graph.nodes().size(), 0);
  const Plan by_traits = planner::plan(graph, scratch);
  CHECK_EQ(by_traits.places[3].offset_bytes, by_traits.places[2].offset_bytes);
  const auto only_first = [](size_t, size_t output, size_t input) {
    return output == 0 && input == 0;
  };
  const Plan by_first = planner::plan(graph, scratch, only_first);
  CHECK(by_first.places[3].offset_bytes != by_first.places[2].offset_bytes);
  CHECK(is_sound(graph, by_traits, scratch));
  CHECK(is_sound(graph, by_first, scratch));
}

TEST(plan_two_outputs_of_a_node_never_share_an_operand) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[16]
  %1 = tanh(%0) : float32[16]
  %2, %3 = sort(%1) {dim=0, descending=false} : float32[16], int64[16]
  %4 = cast(%3) {dtype=float32} : float32[16]
  %5 = add(%2, %4) : float32[16]
  %6 = sum(%5) {dims=[0], keepdim=false} : float32[]
  return %6
}
)");
  const std::vector<int64_t> scratch(graph.nodes().size(), 0);
  const auto anything = [](size_t, size_t, size_t) { return true; };
  const Plan plan = planner::plan(graph, scratch, anything);
  CHECK(plan.places[2].offset_bytes != plan.places[3].offset_bytes);
  CHECK_EQ(plan.places[2].offset_bytes, plan.places[1].offset_bytes);
}

}  // namespace lucid

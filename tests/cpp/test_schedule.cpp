// Scheduling: which nodes move, what they save, and that a graph never takes more for it.
#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "compile/memory_limit.h"
#include "graph_testing.h"
#include "kernel_testing.h"
#include "passes/schedule.h"
#include "planner/plan.h"

namespace lucid {
namespace {

using passes::MemoryModel;
using passes::Order;
using testing::parse_graph;
using testing::Value;

int64_t planned_bytes(const ir::Graph& graph, std::span<const int64_t> scratch_sizes) {
  return planner::plan(graph, scratch_sizes).arena_bytes;
}

std::vector<int64_t> no_scratch(const ir::Graph& graph) {
  return std::vector<int64_t>(graph.nodes().size(), 0);
}

int64_t peak(const ir::Graph& graph) { return planned_bytes(graph, no_scratch(graph)); }

Order schedule_of(const ir::Graph& graph) {
  return passes::schedule(graph, MemoryModel(graph, no_scratch(graph)));
}

ir::Graph scheduled(const ir::Graph& graph) {
  const MemoryModel model(graph, no_scratch(graph));
  ir::Graph result = passes::reordered(graph, model, passes::schedule(graph, model));
  ir::verify(result, "schedule");
  return result;
}

ir::Graph saved(const ir::Graph& graph) {
  return compile::save_memory(graph, no_scratch, planned_bytes);
}

// Draws graphs of values that grow and shrink.
class RandomGraph {
 public:
  explicit RandomGraph(unsigned seed) : random_(seed) {}

  std::string text(int num_nodes) {
    std::string lines = "graph {\n  %0 = input argument float32[16]\n";
    for (int id = 1; id <= num_nodes; ++id) lines += "  " + name(id) + " = " + node() + "\n";
    std::string results;
    for (size_t id = 1; id < sizes_.size(); ++id) {
      if (!is_read_[id]) results += (results.empty() ? " " : ", ") + name(static_cast<int>(id));
    }
    return lines + "  return" + results + "\n}\n";
  }

 private:
  static std::string name(int id) { return "%" + std::to_string(id); }
  int below(size_t count) { return static_cast<int>(random_() % count); }

  // Rather a late value than an early one.
  int operand() {
    const int count = static_cast<int>(sizes_.size());
    const int chosen = below(3) == 0 ? below(sizes_.size()) : count - 1 - below(3) % count;
    is_read_[static_cast<size_t>(chosen)] = true;
    return chosen;
  }

  std::string node() {
    const int lhs = operand();
    int size = sizes_[static_cast<size_t>(lhs)];
    std::string text = "exp(" + name(lhs) + ")";
    const int kind = below(4);
    if (kind == 0) {
      const int rhs = operand();
      size += sizes_[static_cast<size_t>(rhs)];
      text = "concat(" + name(lhs) + ", " + name(rhs) + ") {dim=0}";
    } else if (kind == 1) {
      size = 16;
      text = "slice(" + name(lhs) + ") {starts=[0], sizes=[16], steps=[1]}";
    } else if (kind == 2) {
      text = "neg(" + name(lhs) + ")";
    }
    sizes_.push_back(size);
    is_read_.push_back(false);
    return text + " : float32[" + std::to_string(size) + "]";
  }

  std::mt19937 random_;
  std::vector<int> sizes_ = {16};
  std::vector<bool> is_read_ = {true};
};

std::vector<Value> run(const ir::Graph& graph) {
  const Value input = testing::normal(DType::kFloat32, Shape{16}, 7);
  const auto kernel_of = [&](size_t i) { return cpu::make_kernel({graph.nodes()[i], graph}); };
  const auto num_results = [&](size_t i) { return graph.nodes()[i].outputs.size(); };
  return testing::run_nodes(graph, {input}, kernel_of, num_results);
}

}  // namespace

// %5 and %6, of 16 KiB each, would live beside %4 where the gradient of the input comes first.
TEST(the_gradient_of_a_weight_comes_before_that_of_the_input) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[64, 64]
  %1 = input parameter float32[64, 64]
  %2 = input parameter float32[64, 64]
  %3 = input argument float32[64, 64]
  %4 = matmul(%0, %1) {transpose_a=false, transpose_b=false} : float32[64, 64]
  %5 = exp(%4) : float32[64, 64]
  %6 = matmul(%3, %2) {transpose_a=false, transpose_b=true} : float32[64, 64]
  %7 = matmul(%5, %3) {transpose_a=true, transpose_b=false} : float32[64, 64]
  %8 = mul(%6, %4) : float32[64, 64]
  %9 = matmul(%0, %8) {transpose_a=true, transpose_b=false} : float32[64, 64]
  return %7, %9
}
)");
  CHECK_EQ(schedule_of(graph), (Order{0, 1, 3, 2, 4, 5}));
  CHECK_EQ(peak(graph), 3 * 16384);
  CHECK_EQ(peak(saved(graph)), 2 * 16384);
}

// One of the 12 KiB of %1 and %2 at a time, and one sum.
TEST(branches_run_one_after_the_other) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[1024]
  %1 = concat(%0, %0, %0) {dim=0} : float32[3072]
  %2 = concat(%0, %0, %0) {dim=0} : float32[3072]
  %3 = sum(%1) {dims=[0], keepdim=false} : float32[]
  %4 = sum(%2) {dims=[0], keepdim=false} : float32[]
  %5 = add(%3, %4) : float32[]
  return %5
}
)");
  CHECK_EQ(schedule_of(graph), (Order{0, 2, 1, 3, 4}));
  CHECK_EQ(peak(graph), 2 * 12288 + 64);
  CHECK_EQ(peak(saved(graph)), 12288 + 2 * 64);
}

// %1 is not read before the 12 KiB of %2 are gone.
TEST(what_is_read_late_is_made_late) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[1024]
  %1 = concat(%0, %0) {dim=0} : float32[2048]
  %2 = concat(%0, %0, %0) {dim=0} : float32[3072]
  %3 = sum(%2) {dims=[0], keepdim=false} : float32[]
  %4 = mul(%1, %3) : float32[2048]
  return %4
}
)");
  CHECK_EQ(schedule_of(graph), (Order{1, 2, 0, 3}));
  CHECK_EQ(peak(graph), 8192 + 12288 + 64);
  CHECK_EQ(peak(saved(graph)), 12288 + 64);
}

TEST(element_wise_neighbours_and_updates_at_the_end_stay) {
  // The product of %3 alone would come before %4.
  const ir::Graph neighbours = parse_graph(R"(
graph {
  %0 = input argument float32[8, 8]
  %1 = input parameter float32[8, 8]
  %2 = concat(%0, %1) {dim=0} : float32[16, 8]
  %3 = exp(%0) : float32[8, 8]
  %4 = exp(%1) : float32[8, 8]
  %5 = matmul(%3, %2) {transpose_a=false, transpose_b=true} : float32[8, 16]
  %6 = matmul(%4, %2) {transpose_a=false, transpose_b=true} : float32[8, 16]
  return %5, %6
}
)");
  CHECK_EQ(schedule_of(neighbours), (Order{0, 1, 2, 3, 4}));
  const ir::Graph updates = parse_graph(R"(
graph {
  %0 = input argument float32[8, 8]
  %1 = input parameter float32[8, 8]
  %2 = input parameter float32[4, 8]
  %3 = concat(%0) {dim=0} : float32[8, 8]
  %4 = slice(%0) {starts=[0, 0], sizes=[4, 8], steps=[1, 1]} : float32[4, 8]
  %5 = sub(%1, %3) : float32[8, 8]
  %6 = sub(%2, %4) : float32[4, 8]
  return %5, %6
}
)");
  CHECK_EQ(schedule_of(updates), (Order{0, 1, 2, 3}));
}

TEST(impure_nodes_keep_their_order) {
  static const ir::Op impure = [] {
    ir::Op copy = ops::get("neg");
    copy.name = "impure";
    copy.traits = 0;
    return copy;
  }();
  const ir::Graph graph =
      ir::parse(R"(
graph {
  %0 = input argument float32[1024]
  %1 = impure(%0) : float32[1024]
  %2 = impure(%0) : float32[1024]
  %3 = sum(%2) {dims=[0], keepdim=false} : float32[]
  %4 = mul(%1, %3) : float32[1024]
  return %4
}
)",
                [](std::string_view name) { return name == "impure" ? &impure : ops::find(name); });
  CHECK_EQ(schedule_of(graph), (Order{0, 1, 2, 3}));
}

TEST(a_graph_keeps_its_order_where_the_schedule_takes_more) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[16]
  %1 = exp(%0) : float32[16]
  %2 = concat(%0, %0) {dim=0} : float32[32]
  %3 = concat(%1, %2) {dim=0} : float32[48]
  %4 = slice(%2) {starts=[0], sizes=[16], steps=[1]} : float32[16]
  %5 = concat(%3, %4) {dim=0} : float32[64]
  return %5
}
)");
  CHECK_EQ(peak(graph), 384);
  CHECK_EQ(peak(scheduled(graph)), 448);
  CHECK_EQ(ir::to_string(saved(graph)), ir::to_string(graph));
}

// exp can run again behind the other readers of %1 only where it is not the schedule's way.
TEST(a_limit_that_the_schedule_cannot_meet_is_met_in_the_graphs_own_order) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[16]
  %1 = concat(%0, %0) {dim=0} : float32[32]
  %2 = exp(%1) : float32[32]
  %3 = neg(%1) : float32[32]
  %4 = concat(%1, %0) {dim=0} : float32[48]
  %5 = slice(%2) {starts=[0], sizes=[16], steps=[1]} : float32[16]
  return %3, %4, %5
}
)");
  CHECK_EQ(peak(graph), 256);
  compile::Recomputation done;
  const auto fitted = [&](const ir::Graph& from, int64_t limit) {
    return compile::fit_memory(from, no_scratch(from), limit, planned_bytes, done);
  };
  CHECK_EQ(peak(fitted(graph, 128)), 128);
  CHECK_THROWS(fitted(scheduled(graph), 128), compile::LimitError,
               "make_step: memory_limit=128 bytes cannot be met: the smallest peak found is 256 "
               "bytes, against 256 without a limit; raise the limit or make the batch smaller");
}

TEST(random_graphs_take_no_more_and_have_the_same_bits) {
  constexpr unsigned kNumGraphs = 400;
  int num_lower = 0;
  for (unsigned seed = 0; seed < kNumGraphs; ++seed) {
    const ir::Graph graph = parse_graph(RandomGraph(seed).text(4 + static_cast<int>(seed % 20)));
    const Order order = schedule_of(graph);
    CHECK_EQ(order, schedule_of(graph));
    Order sorted = order;
    std::ranges::sort(sorted);
    CHECK_EQ(sorted, passes::original_order(MemoryModel(graph, no_scratch(graph))));
    CHECK(peak(saved(graph)) <= peak(graph));
    num_lower += peak(saved(graph)) < peak(graph) ? 1 : 0;
    const std::vector<Value> expected = run(graph);
    const std::vector<Value> found = run(scheduled(graph));
    for (size_t i = 0; i < expected.size(); ++i) CHECK(found[i].same_bits(expected[i]));
  }
  CHECK(num_lower > static_cast<int>(kNumGraphs) / 5);
}

}  // namespace lucid

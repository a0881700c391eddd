// Recomputation: graphs before and after, what may not run twice, costs, and limits that are met.
#include <algorithm>
#include <string>
#include <vector>

#include "compile/memory_limit.h"
#include "graph_testing.h"
#include "ops/cost.h"
#include "passes/recompute.h"
#include "planner/plan.h"

namespace lucid {
namespace {

using passes::EvictionPolicy;
using passes::MemoryModel;
using passes::Order;
using testing::parse_graph;

// A value of 4 KiB, %1, is kept over a peak in the middle that does not need it: %1, %2 and the
// 12 KiB of %3, and a scalar.
constexpr std::string_view kChain = R"(
graph {
  %0 = input argument float32[1024]
  %1 = exp(%0) : float32[1024]
  %2 = neg(%1) : float32[1024]
  %3 = concat(%2, %2, %2) {dim=0} : float32[3072]
  %4 = sum(%3) {dims=[0], keepdim=false} : float32[]
  %5 = mul(%2, %4) : float32[1024]
  %6 = mul(%5, %1) : float32[1024]
  return %6
}
)";

constexpr int64_t kValue = 4096;
constexpr int64_t kScalar = 64;
constexpr int64_t kPeak = 5 * kValue + kScalar;

int64_t planned_bytes(const ir::Graph& graph, std::span<const int64_t> scratch_sizes) {
  return planner::plan(graph, scratch_sizes).arena_bytes;
}

std::vector<int64_t> no_scratch(const ir::Graph& graph) {
  return std::vector<int64_t>(graph.nodes().size(), 0);
}

// Copies of a pure operation, and one that must not run twice.
const ir::Op& impure() {
  static const ir::Op op = [] {
    ir::Op copy = ops::get("exp");
    copy.name = "impure";
    copy.traits &= ~uint32_t{ir::kPure};
    return copy;
  }();
  return op;
}

// Light work of two results of its operand's type.
const ir::Op& twins() {
  static const ir::Op op = [] {
    ir::Op copy = ops::get("neg");
    copy.name = "twins";
    copy.infer = [](const ir::InferArgs& args) { return ir::ValueTypes(2, args.input(0)); };
    return copy;
  }();
  return op;
}

ir::Graph parse_with_impure(std::string text) {
  return ir::parse(text, [](std::string_view name) {
    return name == "impure" ? &impure() : name == "twins" ? &twins() : ops::find(name);
  });
}

int count(const ir::Graph& graph, std::string_view op) {
  int found = 0;
  for (const ir::Node& node : graph.nodes()) found += node.op->name == op ? 1 : 0;
  return found;
}

ir::Graph fitted(const ir::Graph& graph, int64_t limit) {
  compile::Recomputation done;
  ir::Graph result = compile::fit_memory(graph, no_scratch(graph), limit, planned_bytes, done);
  ir::verify(result, "fit_memory");
  CHECK_EQ(planner::plan(result, no_scratch(result)).arena_bytes, done.peak);
  CHECK(done.peak <= limit);
  return result;
}

double flops(const std::string& inputs, const std::string& node) {
  const ir::Graph graph = parse_graph("graph {\n" + inputs + node + "  return\n}\n");
  return ops::node_cost(graph, graph.nodes().back()).flops;
}

}  // namespace

TEST(reads_see_what_was_computed_last) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[2, 3]
  %1 = exp(%0) : float32[2, 3]
  %2 = reshape(%1) {shape=[6]} : float32[6]
  %3 = neg(%2) : float32[6]
  %4 = mul(%2, %3) : float32[6]
  return %3, %4
}
)");
  const MemoryModel model(graph, no_scratch(graph));
  CHECK_EQ(passes::original_order(model), (Order{0, 2, 3}));
  // exp runs again before the product, and its alias with it; %3 is a result and stays.
  CHECK_GRAPH(passes::reordered(graph, model, {0, 2, 0, 2, 3}), R"(
graph {
  %0 = input argument float32[2, 3]
  %1 = exp(%0) : float32[2, 3]
  %2 = reshape(%1) {shape=[6]} : float32[6]
  %3 = neg(%2) : float32[6]
  %4 = exp(%0) : float32[2, 3]
  %5 = reshape(%4) {shape=[6]} : float32[6]
  %6 = neg(%5) : float32[6]
  %7 = mul(%5, %3) : float32[6]
  return %3, %7
}
)");
}

TEST(values_are_dropped_over_the_peak_and_made_again) {
  const ir::Graph graph = parse_graph(kChain);
  CHECK_EQ(planner::plan(graph, no_scratch(graph)).arena_bytes, kPeak);
  CHECK_GRAPH(fitted(graph, kPeak - kValue), R"(
graph {
  %0 = input argument float32[1024]
  %1 = exp(%0) : float32[1024]
  %2 = neg(%1) : float32[1024]
  %3 = concat(%2, %2, %2) {dim=0} : float32[3072]
  %4 = sum(%3) {dims=[0], keepdim=false} : float32[]
  %5 = mul(%2, %4) : float32[1024]
  %6 = exp(%0) : float32[1024]
  %7 = mul(%5, %6) : float32[1024]
  return %7
}
)");
}

TEST(nothing_changes_within_the_limit) {
  const ir::Graph graph = parse_graph(kChain);
  CHECK_GRAPH(fitted(graph, kPeak), kChain);
}

TEST(repeats_that_the_budget_has_room_for_are_kept) {
  const ir::Graph graph = parse_graph(kChain);
  const MemoryModel model(graph, no_scratch(graph));
  const Order all = {0, 1, 2, 3, 0, 1, 4, 0, 5};
  CHECK_EQ(passes::keep_what_fits(model, all, kPeak), (Order{0, 1, 2, 3, 4, 5}));
  // Over the concatenation there is no room for the exponential, over what follows for both.
  CHECK_EQ(passes::keep_what_fits(model, all, kPeak - kValue), (Order{0, 1, 2, 3, 0, 4, 5}));
  CHECK_EQ(passes::repeats(model, {0, 1, 2, 3, 0, 4, 5}).count, 1);
}

TEST(a_first_run_that_nobody_reads_moves_to_the_next) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[8]
  %1 = exp(%0) : float32[8]
  %2 = neg(%0) : float32[8]
  %3 = mul(%1, %2) : float32[8]
  return %3
}
)");
  const MemoryModel model(graph, no_scratch(graph));
  CHECK_EQ(passes::keep_what_fits(model, {0, 1, 0, 2}, 64), (Order{1, 0, 2}));
}

// %1 is light work on an input. What %2 to %6 move, 8 MiB each, drives it out of the caches before
// %7 reads it.
std::string far_reads(const std::string& made) {
  std::string text = "graph {\n  %0 = input argument float32[1048576]\n  %1 = " + made;
  text += " : float32[1048576]\n";
  for (int i = 2; i <= 6; ++i) {
    text +=
        "  %" + std::to_string(i) + " = abs(%" + std::to_string(i - 1) + ") : float32[1048576]\n";
  }
  return text + "  %7 = add(%6, %1) : float32[1048576]\n  return %7\n}\n";
}

TEST(light_work_is_done_again_where_the_caches_have_lost_its_result) {
  const ir::Graph graph = parse_graph(far_reads("mul(%0, %0)"));
  const MemoryModel model(graph, no_scratch(graph));
  CHECK_EQ(passes::recompute_cheap(model), (Order{0, 1, 2, 3, 4, 5, 0, 6}));
  // The arena would take as much, at the end: the graph stays as it is.
  CHECK_EQ(ir::to_string(compile::save_memory(graph, no_scratch, planned_bytes)),
           ir::to_string(graph));
}

TEST(a_graph_is_changed_where_that_saves_memory) {
  std::string text = far_reads("mul(%0, %0)");
  const std::string sixth = "%6 = abs(%5) : float32[1048576]";
  text.replace(text.find(sixth), sixth.size(),
               "%6 = concat(%5, %5) {dim=0} : float32[2097152]\n  %9 = sum(%6) {dims=[0], "
               "keepdim=false} : float32[]");
  text.replace(text.find("add(%6, %1)"), 11, "mul(%1, %9)");
  const ir::Graph graph = parse_graph(text);
  const ir::Graph saved = compile::save_memory(graph, no_scratch, planned_bytes);
  ir::verify(saved, "save_memory");
  CHECK_EQ(count(saved, "mul"), 3);
  CHECK_EQ(planned_bytes(graph, no_scratch(graph)), int64_t{4} << 22);
  CHECK_EQ(planned_bytes(saved, no_scratch(saved)), int64_t{3} << 22);
  // Not where the scratch of the node that would run again is the peak.
  const auto large_scratch = [](const ir::Graph& whole) {
    std::vector<int64_t> sizes(whole.nodes().size(), 0);
    sizes[0] = int64_t{4} << 22;
    return sizes;
  };
  const ir::Graph kept = compile::save_memory(graph, large_scratch, planned_bytes);
  CHECK_EQ(ir::to_string(kept), ir::to_string(graph));
  // Limits count from there.
  compile::Recomputation done;
  const int64_t limit = int64_t{3} << 22;
  compile::fit_memory(graph, no_scratch(graph), limit, planned_bytes, done);
  CHECK_EQ(done.peak_before, limit);
  CHECK_EQ(done.num_repeated, 0);
}

TEST(heavy_impure_or_small_work_is_not_done_again) {
  const std::string product =
      "matmul(%0, %0) {transpose_a=false, transpose_b=false} : float32[1024, 1024]\n";
  std::string heavy = far_reads("mul(%0, %0)");
  while (heavy.find("[1048576]") != std::string::npos) {
    heavy.replace(heavy.find("[1048576]"), 9, "[1024, 1024]");
  }
  heavy.replace(heavy.find("mul(%0, %0)"), 11 + 24, product.substr(0, product.size() - 1));
  // Windows that overlap: few operations, on elements that lie apart.
  std::string pooled = far_reads(
      "avg_pool(%0) {kernel=[3, 3], stride=[1, 1], padding=[1, 1], ceil_mode=false, "
      "count_include_pad=true, divisor=0}");
  while (pooled.find("[1048576]") != std::string::npos) {
    pooled.replace(pooled.find("[1048576]"), 9, "[1, 1, 1024, 1024]");
  }
  const Order once = {0, 1, 2, 3, 4, 5, 6};
  for (const std::string& text : {heavy, pooled, far_reads("impure(%0)")}) {
    const ir::Graph graph = parse_with_impure(text);
    CHECK_EQ(passes::recompute_cheap(MemoryModel(graph, no_scratch(graph))), once);
  }
  std::string small = far_reads("mul(%0, %0)");
  while (small.find("1048576") != std::string::npos) small.replace(small.find("1048576"), 7, "64");
  const ir::Graph graph = parse_graph(small);
  CHECK_EQ(passes::recompute_cheap(MemoryModel(graph, no_scratch(graph))), once);
}

TEST(work_on_values_that_are_gone_is_done_again_only_with_them) {
  // %3 is made from %2, which nobody reads later: both are made again from %1, which is kept, or
  // nothing is if that costs more than it saves.
  const auto text = [](const std::string& function, int between) {
    std::string made =
        "graph {\n  %0 = input argument float32[1048576]\n  %1 = impure(%0) : float32[1048576]\n"
        "  %2 = " +
        function + "(%1) : float32[1048576]\n  %3 = " + function + "(%2) : float32[1048576]\n";
    for (int i = 4; i < 4 + between; ++i) {
      made += "  %" + std::to_string(i) + " = sqrt(%" + std::to_string(i - 1) +
              ") : float32[1048576]\n";
    }
    const std::string last = std::to_string(3 + between);
    const std::string next = std::to_string(4 + between);
    const std::string after = std::to_string(5 + between);
    return made + "  %" + next + " = add(%" + last + ", %3) : float32[1048576]\n  %" + after +
           " = add(%" + next + ", %1) : float32[1048576]\n  return %" + after + "\n}\n";
  };
  const ir::Graph light = parse_with_impure(text("neg", 6));
  const Order both = {0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 9, 10};
  CHECK_EQ(passes::recompute_cheap(MemoryModel(light, no_scratch(light))), both);
  const ir::Graph costly = parse_with_impure(text("exp", 6));
  const Order order = passes::recompute_cheap(MemoryModel(costly, no_scratch(costly)));
  CHECK_EQ(std::ranges::count(order, 2u), 1);
}

TEST(a_node_of_two_results_is_done_again_once_before_a_reader_of_both) {
  std::string text = far_reads("mul(%0, %0)");
  text.replace(text.find("%1 = mul(%0, %0) : float32[1048576]"), 35,
               "%1, %8 = twins(%0) : float32[1048576], float32[1048576]");
  text.replace(text.find("%7 = add(%6, %1)"), 16, "%7 = add(%8, %1)");
  text.replace(text.find("return %7"), 9, "return %7, %6");
  const ir::Graph graph = parse_with_impure(text);
  const MemoryModel model(graph, no_scratch(graph));
  CHECK_EQ(passes::recompute_cheap(model), (Order{0, 1, 2, 3, 4, 5, 0, 6}));
}

TEST(an_impure_operation_never_runs_twice) {
  std::string text(kChain.substr(1));
  text.replace(text.find("exp(%0)"), 3, "impure");
  const ir::Graph graph = parse_with_impure(text);
  const ir::Graph after = fitted(graph, kPeak);
  CHECK_EQ(count(after, "impure"), 1);
  const MemoryModel model(graph, no_scratch(graph));
  for (const auto power : {EvictionPolicy::Power::kNone, EvictionPolicy::Power::kOne}) {
    const auto order = passes::evict(model, 4 * 4096, {power, false});
    CHECK(order.has_value());
    CHECK_EQ(std::ranges::count(*order, 0u), 1);
  }
  CHECK_THROWS(fitted(graph, kPeak - kValue), Error, "the smallest peak found is");
}

TEST(a_draw_runs_twice_from_the_same_counters) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[1024]
  %1 = input random int64[2]
  %2 = uniform(%1) {shape=[1024], dtype=float32, offset=3} : float32[1024]
  %3 = mul(%0, %2) : float32[1024]
  %4 = concat(%3, %3, %3) {dim=0} : float32[3072]
  %5 = sum(%4) {dims=[0], keepdim=false} : float32[]
  %6 = mul(%2, %5) : float32[1024]
  return %6
}
)");
  const ir::Graph after = fitted(graph, 4 * 4096);
  CHECK_EQ(count(after, "uniform"), 2);
  for (const ir::Node& node : after.nodes()) {
    if (node.op->name != "uniform") continue;
    CHECK_EQ(node.integer("offset"), 3);
    CHECK_EQ(index(node.in(0)), 1u);
  }
}

TEST(saved_statistics_are_made_again_with_their_values) {
  const ir::Graph graph = parse_graph(R"(
graph {
  %0 = input argument float32[64, 32]
  %1, %2, %3 = layer_norm(%0, _, _) {axes=1, eps=1e-05} : float32[64, 32], float32[64], float32[64]
  %4 = sum(%3) {dims=[0], keepdim=false} : float32[]
  %5 = mul(%0, %4) : float32[64, 32]
  %6 = concat(%5, %5, %5) {dim=0} : float32[192, 32]
  %7 = sum(%6) {dims=[0, 1], keepdim=false} : float32[]
  %8 = mul(%1, %7) : float32[64, 32]
  %9 = mul(%2, %7) : float32[64]
  return %8, %9, %3
}
)");
  // %1 and %2 are dropped; %3, a result, keeps the value that was made first.
  CHECK_GRAPH(fitted(graph, 4 * 8192 + 256), R"(
graph {
  %0 = input argument float32[64, 32]
  %1, %2, %3 = layer_norm(%0, _, _) {axes=1, eps=1e-05} : float32[64, 32], float32[64], float32[64]
  %4 = sum(%3) {dims=[0], keepdim=false} : float32[]
  %5 = mul(%0, %4) : float32[64, 32]
  %6 = concat(%5, %5, %5) {dim=0} : float32[192, 32]
  %7 = sum(%6) {dims=[0, 1], keepdim=false} : float32[]
  %8, %9, %10 = layer_norm(%0, _, _) {axes=1, eps=1e-05} : float32[64, 32], float32[64], float32[64]
  %11 = mul(%8, %7) : float32[64, 32]
  %12 = mul(%9, %7) : float32[64]
  return %11, %12, %3
}
)");
}

TEST(scratch_counts) {
  const ir::Graph graph = parse_graph(kChain);
  std::vector<int64_t> scratch = no_scratch(graph);
  scratch[2] = 4096;
  compile::Recomputation done;
  const ir::Graph after = compile::fit_memory(graph, scratch, 5 * kValue, planned_bytes, done);
  CHECK_EQ(done.peak_before, 6 * kValue);
  CHECK_EQ(done.peak, 5 * kValue);
  CHECK_EQ(done.num_repeated, 1);
  CHECK_EQ(count(after, "exp"), 2);
}

TEST(a_limit_that_cannot_be_met_names_a_peak_that_can) {
  const ir::Graph graph = parse_graph(kChain);
  CHECK_THROWS(fitted(graph, 4096), Error,
               "make_step: memory_limit=4096 bytes cannot be met: the smallest peak found is "
               "16384 bytes, against 20544 without a limit; raise the limit or make the batch "
               "smaller");
  fitted(graph, 16384);
}

// A tower of blocks whose inner values the backward reads in reverse.
TEST(a_deep_chain_fits_into_the_square_root_of_its_memory) {
  constexpr int kDepth = 400;
  std::string text = "graph {\n  %0 = input argument float32[1024]\n";
  const auto line = [&](int id, const std::string& node) {
    text += "  %" + std::to_string(id) + " = " + node + " : float32[1024]\n";
  };
  const auto value = [](int id) { return "%" + std::to_string(id); };
  for (int i = 1; i <= kDepth; ++i) line(i, "tanh(" + value(i - 1) + ")");
  for (int i = 1; i <= kDepth; ++i) {
    line(kDepth + i, "mul(" + value(kDepth + i - 1) + ", " + value(kDepth - i + 1) + ")");
  }
  text += "  return %" + std::to_string(2 * kDepth) + "\n}\n";
  const ir::Graph graph = parse_graph(text);
  CHECK_EQ(planner::plan(graph, no_scratch(graph)).arena_bytes, kDepth * 4096);
  compile::Recomputation done;
  const ir::Graph after =
      compile::fit_memory(graph, no_scratch(graph), 60 * 4096, planned_bytes, done);
  CHECK(planner::plan(after, no_scratch(after)).arena_bytes <= 60 * 4096);
  CHECK(done.num_repeated <= 2 * kDepth);
}

TEST(costs_follow_from_shapes) {
  const std::string a = "  %0 = input argument float32[4, 8, 16]\n";
  const std::string b = "  %1 = input argument float32[4, 16, 32]\n";
  CHECK_EQ(flops(a + b,
                 "  %2 = matmul(%0, %1) {transpose_a=false, transpose_b=false} : "
                 "float32[4, 8, 32]\n"),
           2.0 * 4 * 8 * 16 * 32);
  CHECK_EQ(flops("  %0 = input argument float32[5, 16]\n  %1 = input parameter float32[3, 16]\n"
                 "  %2 = input parameter float32[3]\n",
                 "  %3 = linear(%0, %1, %2) : float32[5, 3]\n"),
           5 * 3 * 33.0);
  const std::string x = "  %0 = input argument float32[2, 4, 8, 8]\n";
  const std::string w = "  %1 = input parameter float32[6, 2, 3, 3]\n";
  const std::string geometry =
      "stride=[1, 1], padding_low=[1, 1], padding_high=[1, 1], dilation=[1, 1], groups=2}";
  const double convolution = 2.0 * (2 * 6 * 8 * 8) * (2 * 3 * 3);
  CHECK_EQ(flops(x + w, "  %2 = convolution(%0, %1, _) {" + geometry + " : float32[2, 6, 8, 8]\n"),
           convolution);
  const std::string g = "  %2 = input argument float32[2, 6, 8, 8]\n";
  CHECK_EQ(flops(x + w + g, "  %3 = convolution_input_grad(%2, %1) {input_shape=[2, 4, 8, 8], " +
                                geometry + " : float32[2, 4, 8, 8]\n"),
           convolution);
  CHECK_EQ(flops(x + w + g, "  %3 = convolution_weight_grad(%2, %0) {weight_shape=[6, 2, 3, 3], " +
                                geometry + " : float32[6, 2, 3, 3]\n"),
           convolution);
}

TEST(costs_follow_from_traits) {
  const std::string x = "  %0 = input argument float32[4, 8]\n";
  const auto cost = [&](const std::string& node) {
    const ir::Graph graph = parse_graph("graph {\n" + x + node + "  return\n}\n");
    return ops::node_cost(graph, graph.nodes().back());
  };
  CHECK_EQ(cost("  %1 = neg(%0) : float32[4, 8]\n").flops, 32);
  CHECK(cost("  %1 = exp(%0) : float32[4, 8]\n").flops > 5 * 32);
  CHECK_EQ(cost("  %1 = neg(%0) : float32[4, 8]\n").bytes, 2 * 32 * 4);
  CHECK_EQ(cost("  %1 = sum(%0) {dims=[0, 1], keepdim=false} : float32[]\n").flops, 32);
  CHECK_EQ(cost("  %1 = sum(%0) {dims=[0, 1], keepdim=false} : float32[]\n").bytes, 33 * 4);
  CHECK_EQ(cost("  %1 = reshape(%0) {shape=[32]} : float32[32]\n").effort(), 0);
  // A window counts what it computes; the effort is that of reading what lies apart.
  const ir::Graph pooled = parse_graph(
      "graph {\n  %0 = input argument float32[1, 1, 8, 8]\n  %1 = avg_pool(%0) {kernel=[2, 2], "
      "stride=[2, 2], padding=[0, 0], ceil_mode=false, count_include_pad=true, divisor=0} : "
      "float32[1, 1, 4, 4]\n  return\n}\n");
  const ops::Cost windows = ops::node_cost(pooled, pooled.nodes().back());
  CHECK_EQ(windows.flops, 4 * 16);
  CHECK(windows.busy_flops > 10 * windows.flops);
  // A slice reads what it writes, not the whole input.
  const auto slice = cost(
      "  %1 = slice(%0) {starts=[0, 0], sizes=[1, 8], steps=[1, 1]} : "
      "float32[1, 8]\n");
  CHECK_EQ(slice.flops, 0);
  CHECK_EQ(slice.bytes, 2 * 8 * 4);
}

TEST(attention_counts_its_products_and_a_causal_half) {
  const std::string qkv =
      "  %0 = input argument float32[2, 8, 4]\n  %1 = input argument float32[2, 6, 4]\n"
      "  %2 = input argument float32[2, 6, 5]\n";
  const auto forward = [&](const std::string& causal) {
    return flops(qkv, "  %3, %4 = attention(%0, %1, %2, _) {causal=" + causal +
                          ", scale=0.5} : float32[2, 8, 5], float32[2, 8]\n");
  };
  const double products = 2.0 * (2 * 8 * 6) * (4 + 5);
  CHECK(forward("false") > products);
  CHECK(forward("false") < products + 40.0 * (2 * 8 * 6));
  CHECK_EQ(2 * forward("true"), forward("false"));
}

}  // namespace lucid

// A graph run in pieces: where it is cut, what crosses, and that the results stay the same.
#include "backends/chain.h"

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "graph_testing.h"

namespace lucid::testing {
namespace {

using backends::BufferRef;
using backends::Chain;
using backends::Cuts;
using Pieces = std::vector<int>;

// Values of 16 bytes; %3 is read late, %5 is another view of %4.
constexpr std::string_view kGraph = R"(graph {
  %0 = input argument float32[2, 2]
  %1 = input parameter float32[2, 2]
  %2 = mul(%0, %1) : float32[2, 2]
  %3 = tanh(%2) : float32[2, 2]
  %4 = add(%3, %2) : float32[2, 2]
  %5 = reshape(%4) {shape=[4]} : float32[4]
  %6 = tanh(%5) : float32[4]
  %7 = mul(%6, %5) : float32[4]
  %8 = reshape(%7) {shape=[2, 2]} : float32[2, 2]
  %9 = mul(%8, %3) : float32[2, 2]
  return %9, %4, %5, %1
}
)";

std::vector<ir::Graph>& seen() {
  static std::vector<ir::Graph> graphs;
  return graphs;
}

backends::ExecutableRef compile(const ir::Graph& graph) {
  ir::verify(graph, "chain");
  seen().push_back(graph);
  return backends::backend_for(Device::kCpu).compile(graph);
}

std::vector<std::vector<float>> results_of(const backends::Executable& executable) {
  std::vector<BufferRef> inputs;
  for (int i = 0; i < 2; ++i) {
    inputs.push_back(backends::backend_for(Device::kCpu).allocate(16));
    auto* values = static_cast<float*>(inputs.back()->data());
    for (int j = 0; j < 4; ++j) values[j] = 0.25f * static_cast<float>(j + 1 + 3 * i);
  }
  std::vector<std::vector<float>> results;
  for (const BufferRef& output : executable.run(inputs, nullptr)) {
    results.emplace_back(4);
    std::memcpy(results.back().data(), output->data(), 16);
  }
  return results;
}

}  // namespace

TEST(cuts_stand_where_the_limit_is_passed) {
  const ir::Graph graph = parse_graph(kGraph);
  // %4 and %9 are results; %2 dies with %4, %6 with %7, %3 and %7 with %9.
  CHECK_EQ(backends::least_chain_bytes(graph), 48);
  const Cuts whole = backends::cut_to_limit(graph, 1000);
  CHECK_EQ(whole.pieces, (Pieces{0, 0, 0, 0, 0, 0, 0, 0}));
  CHECK_EQ(whole.peak_bytes, 64);  // %2, %3, %6 and %7 in one piece
  const Cuts cut = backends::cut_to_limit(graph, 48);
  CHECK_EQ(cut.pieces, (Pieces{0, 0, 0, 0, 0, 1, 1, 1}));
  CHECK_EQ(cut.peak_bytes, 48);  // %3 and %6 cross, %7 is made
  const Cuts fine = backends::cut_to_limit(graph, 0);
  CHECK_EQ(fine.pieces, (Pieces{0, 1, 1, 1, 2, 3, 3, 3}));
  CHECK_EQ(fine.peak_bytes, 48);
}

TEST(results_are_those_of_the_whole) {
  const ir::Graph graph = parse_graph(kGraph);
  const auto expected = results_of(*compile(graph));
  for (const int64_t limit : {0, 16, 32, 48, 64}) {
    const Cuts cuts = backends::cut_to_limit(graph, limit);
    const Chain chain(graph, cuts, compile);
    CHECK_EQ(chain.num_pieces(), static_cast<size_t>(cuts.pieces.back() + 1));
    CHECK_EQ(results_of(chain), expected);
    CHECK_EQ(results_of(chain), expected);  // a second run starts anew
    CHECK_EQ(chain.memory().arena_peak, cuts.peak_bytes);
    CHECK_EQ(chain.memory().inputs, 32);
    CHECK_EQ(chain.memory().outputs, 64);
  }
}

TEST(an_alias_is_made_again_and_does_not_cross) {
  const ir::Graph graph = parse_graph(kGraph);
  seen().clear();
  const Chain chain(graph, backends::cut_to_limit(graph, 48), compile);
  CHECK_EQ(seen().size(), 2u);
  CHECK_EQ(to_string(seen()[1]), std::string(R"(graph {
  %0 = input parameter float32[2, 2]
  %1 = input captured float32[2, 2]
  %2 = input captured float32[2, 2]
  %3 = input captured float32[4]
  %4 = reshape(%2) {shape=[4]} : float32[4]
  %5 = mul(%3, %4) : float32[4]
  %6 = reshape(%5) {shape=[2, 2]} : float32[2, 2]
  %7 = mul(%6, %1) : float32[2, 2]
  return %0, %7
}
)"));
}

TEST(a_result_may_stand_twice_and_be_an_input) {
  const ir::Graph graph = parse_graph(R"(graph {
  %0 = input argument float32[2, 2]
  %1 = input parameter float32[2, 2]
  %2 = tanh(%0) : float32[2, 2]
  %3 = mul(%2, %2) : float32[2, 2]
  return %0, %3, %3, %1, %0
}
)");
  const auto expected = results_of(*compile(graph));
  for (const int64_t limit : {0, 1000}) {
    CHECK_EQ(results_of(Chain(graph, backends::cut_to_limit(graph, limit), compile)), expected);
  }
}

TEST(a_graph_without_work_is_one_piece) {
  const ir::Graph graph = parse_graph(R"(graph {
  %0 = input argument float32[2, 2]
  %1 = input parameter float32[2, 2]
  %2 = reshape(%0) {shape=[4]} : float32[4]
  return %2, %1
}
)");
  const Cuts cuts = backends::cut_to_limit(graph, 0);
  CHECK_EQ(cuts.peak_bytes, 0);
  const Chain chain(graph, cuts, compile);
  CHECK_EQ(chain.num_pieces(), 1u);
  CHECK_EQ(results_of(chain), results_of(*compile(graph)));
}

}  // namespace lucid::testing

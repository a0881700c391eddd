// Splitting a step into pieces: what each holds, reads and gives away.
#include <string>
#include <vector>

#include "ops/registry.h"
#include "passes/split.h"
#include "testing.h"

namespace lucid::passes {
namespace {

using Ids = std::vector<uint32_t>;

// Two segments: the first is mul and tanh, the second a product; then the backward of both.
constexpr std::string_view kStep = R"(graph {
  %0 = input argument float32[2]
  %1 = input parameter float32[2]
  %2 = input seed float32[2]
  %3 = mul(%0, %1) : float32[2]
  %4 = tanh(%3) : float32[2]
  %5 = mul(%4, %4) : float32[2]
  %6 = mul(%2, %4) : float32[2]
  %7 = add(%6, %6) : float32[2]
  %8 = mul(%3, %4) : float32[2]
  %9 = mul(%7, %8) : float32[2]
  %10 = mul(%9, %0) : float32[2]
  return %5, %10, %1
}
)";

ir::Graph step() {
  return ir::parse(kStep, [](std::string_view name) { return ops::find(name); });
}

Segmentation segmentation(int num_segments) {
  return {
      .num_segments = num_segments, .num_forward_nodes = 3, .segments = {0, 0, 1, 1, 1, 0, 0, 0}};
}

Ids ids(const std::vector<ir::ValueId>& values) {
  Ids result;
  for (const ir::ValueId value : values) result.push_back(index(value));
  return result;
}

}  // namespace

TEST(one_segment_is_the_graph_itself) {
  const ir::Graph graph = step();
  Segmentation whole = segmentation(1);
  whole.segments.assign(whole.segments.size(), 0);
  const std::vector<Piece> pieces = split(graph, whole);
  CHECK_EQ(pieces.size(), 1);
  CHECK_EQ(to_string(pieces[0].graph), std::string(kStep));
  CHECK_EQ(ids(pieces[0].inputs), (Ids{0, 1, 2}));
  CHECK_EQ(ids(pieces[0].outputs), (Ids{5, 10, 1}));
}

TEST(two_segments_give_forward_last_and_backward) {
  const ir::Graph graph = step();
  const std::vector<Piece> pieces = split(graph, segmentation(2));
  CHECK_EQ(pieces.size(), 3);
  for (const Piece& piece : pieces) ir::verify(piece.graph, "split");
  CHECK_EQ(to_string(pieces[0].graph), std::string(R"(graph {
  %0 = input argument float32[2]
  %1 = input parameter float32[2]
  %2 = mul(%0, %1) : float32[2]
  %3 = tanh(%2) : float32[2]
  return %3
}
)"));
  CHECK_EQ(ids(pieces[0].outputs), (Ids{4}));
  CHECK_EQ(pieces[0].segment, 0);
  // The second segment with its backward; an input that the step returns leaves here.
  CHECK_EQ(to_string(pieces[1].graph), std::string(R"(graph {
  %0 = input parameter float32[2]
  %1 = input seed float32[2]
  %2 = input captured float32[2]
  %3 = mul(%2, %2) : float32[2]
  %4 = mul(%1, %2) : float32[2]
  %5 = add(%4, %4) : float32[2]
  return %0, %3, %5
}
)"));
  CHECK_EQ(ids(pieces[1].inputs), (Ids{1, 2, 4}));
  CHECK_EQ(ids(pieces[1].outputs), (Ids{1, 5, 7}));
  CHECK_EQ(pieces[1].segment, 1);
  // The product inside the first segment is made again; tanh crosses the cut and is read.
  CHECK_EQ(to_string(pieces[2].graph), std::string(R"(graph {
  %0 = input argument float32[2]
  %1 = input parameter float32[2]
  %2 = input captured float32[2]
  %3 = input captured float32[2]
  %4 = mul(%0, %1) : float32[2]
  %5 = mul(%4, %2) : float32[2]
  %6 = mul(%3, %5) : float32[2]
  %7 = mul(%6, %0) : float32[2]
  return %7
}
)"));
  CHECK_EQ(ids(pieces[2].inputs), (Ids{0, 1, 4, 7}));
  CHECK_EQ(ids(pieces[2].outputs), (Ids{10}));
  CHECK_EQ(pieces[2].segment, 0);
}

TEST(an_empty_segment_has_no_piece) {
  const ir::Graph graph = step();
  Segmentation parted = segmentation(3);
  parted.segments = {0, 0, 2, 2, 2, 0, 0, 0};
  const std::vector<Piece> pieces = split(graph, parted);
  CHECK_EQ(pieces.size(), 3);
  CHECK_EQ(pieces[1].segment, 2);
}

}  // namespace lucid::passes

// Splitting a training step into pieces that are compiled and run one after another.
#pragma once

#include <span>
#include <vector>

#include "ir/graph.h"

namespace lucid::passes {

/// A graph of its own. `inputs` and `outputs` are values of the whole graph, in the order of the
/// piece's own inputs and outputs.
struct Piece {
  ir::Graph graph;
  std::vector<ir::ValueId> inputs;
  std::vector<ir::ValueId> outputs;
  int segment = 0;
};

/// How the nodes of a step are grouped.
struct Segmentation {
  int num_segments = 1;
  int num_kept = 0;  ///< segments right before the last that keep their inside for the backward
  size_t num_forward_nodes = 0;  ///< the rest is the backward
  std::vector<int> segments;     ///< by node: its segment; for the backward that of its origin
};

/// The pieces in the order in which they run: the forward of every segment but the last, the last
/// segment's forward and backward in one, then the backward of the others from the last but one
/// to the first. A backward piece computes its segment's inside again from the values that cross
/// the cuts (Chen et al. 2016, arXiv:1604.06174), so nothing inside a segment outlives its pieces
/// but the outputs of nodes that are not pure: those run once.
/// One segment gives one piece: the graph itself.
std::vector<Piece> split(const ir::Graph& graph, const Segmentation& segmentation);

}  // namespace lucid::passes

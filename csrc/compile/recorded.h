// Backwards that a trace recorded itself, as graphs of their own.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "runtime/trace/recorder.h"

namespace lucid::compile {

/// A trace's graph with the backward of some of its results appended.
struct RecordedGraph {
  std::vector<bool> mask;  ///< by differentiable result: does it bring a gradient?
  ir::Graph graph;
  ir::Grads gradients;  ///< by target of the trace
};

/// Parts a trace from the backwards that it recorded; its graph is the forward alone then. Throws
/// TraceError where one of them cannot stand without another.
std::vector<RecordedGraph> take_backwards(runtime::Trace& trace);

}  // namespace lucid::compile

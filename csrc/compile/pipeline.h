// From a graph to an executable: passes, then the backend, once per structure.
#pragma once

#include <optional>
#include <vector>

#include "backends/backend.h"
#include "compile/memory_limit.h"
#include "ir/graph.h"

namespace lucid::compile {

/// How a graph is compiled, besides what the graph says.
struct Options {
  /// Bytes that the arena may take; values are recomputed to keep to it.
  std::optional<int64_t> memory_limit;
  /// Outputs that a run may write into the buffer of an input, if the caller gives it.
  std::vector<planner::Given> given;
};

/// A compiled graph and the text form of what was compiled.
struct Compiled {
  backends::ExecutableRef executable;
  ir::Graph graph;                             ///< after the passes
  std::optional<Recomputation> recomputation;  ///< under a memory limit
};
using CompiledRef = std::shared_ptr<const Compiled>;

/// Runs the passes and compiles, or returns what an equal graph was compiled to. With
/// LUCID_DUMP_IR=dir the text after each pass is written to dir. Throws UserError if a memory
/// limit cannot be met.
CompiledRef compile_graph(ir::Graph graph, Device device, const Options& options = {});

/// The process's cache of compiled graphs: entries, hits and misses so far, and the bound.
struct CacheInfo {
  int64_t entries = 0;
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t max_entries = 0;
};
CacheInfo cache_info();
void clear_cache();

}  // namespace lucid::compile

// From a graph to an executable: passes, then the backend, once per structure.
#pragma once

#include "backends/backend.h"
#include "ir/graph.h"

namespace lucid::compile {

/// A compiled graph and the text form of what was compiled.
struct Compiled {
  backends::ExecutableRef executable;
  ir::Graph graph;  ///< after the passes
};
using CompiledRef = std::shared_ptr<const Compiled>;

/// Runs the passes and compiles, or returns what an equal graph was compiled to. With
/// LUCID_DUMP_IR=dir the text after each pass is written to dir.
CompiledRef compile_graph(ir::Graph graph, Device device);

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

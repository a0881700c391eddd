// Chain: a graph run as several executables, one after another, where the device alone decides what
// one executable keeps in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "backends/backend.h"

namespace lucid::backends {

/// How a graph is cut into consecutive pieces.
struct Cuts {
  std::vector<int> pieces;  ///< by node: its piece; an alias follows whoever reads it
  /// Most bytes at once of what pieces leave to later ones and of all that a piece makes, whatever
  /// order it runs in. Inputs and results of the graph do not count.
  int64_t peak_bytes = 0;
};

/// Cuts as rarely as the limit allows. Where a single node passes the limit so does the peak.
Cuts cut_to_limit(const ir::Graph& graph, int64_t limit_bytes);

/// The peak of a graph that is cut before every node: the least that any limit can ask for.
int64_t least_chain_bytes(const ir::Graph& graph);

/// Runs the pieces in order. Each is waited for before the next one takes memory, and what nobody
/// reads any more is given back, so the peak of the cuts holds.
class Chain final : public Executable {
 public:
  using Compile = std::function<ExecutableRef(const ir::Graph& piece)>;
  Chain(const ir::Graph& graph, const Cuts& cuts, const Compile& compile);

  std::vector<BufferRef> run(std::span<const BufferRef> inputs,
                             const ir::Attrs* run_time_attrs) const override;
  MemoryReport memory() const override { return memory_; }
  bool is_loaded() const override;
  size_t num_pieces() const { return links_.size(); }

 private:
  struct Link {
    ExecutableRef executable;
    std::vector<uint32_t> inputs;   ///< slots
    std::vector<uint32_t> outputs;  ///< slots
    std::vector<uint32_t> dead;     ///< slots that no later link reads
  };
  void find_dead(size_t num_inputs, size_t num_slots);

  std::vector<Link> links_;
  std::vector<uint32_t> output_slots_;
  MemoryReport memory_;
};

}  // namespace lucid::backends

// MetalExecutable: a graph compiled once by MPSGraph and submitted at each run.
#pragma once

#include <vector>

#include "backends/backend.h"
#include "backends/metal/lowering.h"
#include "backends/metal/metal_buffer.h"
#include "backends/metal/package.h"
#include "backends/metal/stream.h"

namespace lucid::metal {

class MetalExecutable final : public backends::Executable {
 public:
  /// Loads from `disk`, where given and possible; else compiles, and stores there. Throws
  /// UnsupportedError for what has no lowering.
  MetalExecutable(const ir::Graph& graph, const LoweringOptions& options,
                  const backends::DiskCache* disk = nullptr);

  /// Submits the run and returns at once; reading an output waits for it. A graph that counts
  /// indices out of range is waited for, so that bad indices spoil nothing.
  std::vector<backends::BufferRef> run(std::span<const backends::BufferRef> inputs,
                                       const ir::Attrs* run_time_attrs) const override;
  /// arena_peak is what live values take in the graph's order; what the driver takes is not known.
  backends::MemoryReport memory() const override { return memory_; }
  bool is_loaded() const override { return is_loaded_; }

 private:
  /// What a feed of the compiled executable is filled with.
  struct Feed {
    bool is_host = false;
    size_t place = 0;  ///< among the graph's inputs, or among the host feeds
    ValueType type;
    MPSDataType data_type;
  };
  /// A target of the compiled executable.
  struct Target {
    ValueType type;
    int flag = -1;  ///< place among the flags, or -1 for an output
  };
  struct Flag {
    std::string op;
    int64_t size;
    ir::LocationRef location;
  };
  struct Run;
  /// The tensors of feeds_ and targets_ in the graph that is built.
  struct Lowered {
    std::vector<Tensor> feeds;
    std::vector<Tensor> targets;
  };

  Lowered build(const ir::Graph& graph, const LoweringOptions& options);
  void add_targets(const ir::Graph& graph, const Lowering& lowering, Lowered& lowered);
  void add_feeds(const ir::Graph& graph, const Lowering& lowering, Lowered& lowered);
  /// Compiles the graph; returns the order that the executable chose.
  ArgumentOrder compile(const Lowered& lowered);
  bool load(const backends::DiskCache& disk, const backends::DiskCache::Key& key);
  void store(const backends::DiskCache& disk, const backends::DiskCache::Key& key,
             const ArgumentOrder& order) const;
  /// Results of a run on made-up numbers; feeds_ and targets_ stand in the given order.
  Samples try_out(const ArgumentOrder& order) const;
  /// Brings feeds_ and targets_ from the order of the lowering into the executable's.
  void arrange(const ArgumentOrder& order);
  void submit(Run& run) const;
  void check_indices(std::span<const backends::BufferRef> inputs) const;
  void bind_input(Run& run, const Feed& feed, const backends::BufferRef& buffer) const;
  void bind_host_feed(Run& run, const Feed& feed, std::span<const backends::BufferRef> inputs,
                      const ir::Attrs* run_time_attrs) const;
  void bind_target(Run& run, const Target& target) const;
  /// Looks at what a finished run counted.
  std::function<std::optional<Error>()> flag_check(const Run& run) const;

  Retained<MPSGraph*> graph_;
  Retained<MPSGraphExecutable*> executable_;
  std::vector<IndexCheck> checks_;
  std::vector<HostFeed> host_feeds_;
  std::vector<Flag> flags_;
  std::vector<Feed> feeds_;         // in the order of the executable
  std::vector<Target> targets_;     // in the order of the executable
  std::vector<int> output_target_;  // by graph output: its target, or -1 for an empty value
  backends::MemoryReport memory_;
  bool is_loaded_ = false;
  int offset_attr_ = -1;  ///< place of a run-time offset among the only node's attributes
};

}  // namespace lucid::metal

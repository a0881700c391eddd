// The executables of a step and the values that pass between them.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compile/pipeline.h"
#include "compile/report.h"
#include "passes/split.h"

namespace lucid::compile {

/// The pieces of a split step, compiled. Immutable; running works on a caller's table.
class Pieces {
 public:
  /// Buffers of one run by slot: the inputs of the graph first, then what pieces make.
  using Table = std::vector<backends::BufferRef>;

  /// A memory limit holds for the whole: each piece gets what the values kept beside it leave.
  /// Throws LimitError if one cannot keep to that.
  Pieces(const ir::Graph& graph, const passes::Segmentation& segmentation, Device device,
         const Options& options = {});

  /// Runs the forward of all segments and the backward of the last. `table` holds the inputs.
  void run_forward(Table& table) const;
  /// Runs the last segment once more: the seed in the table has changed.
  void rerun_last(Table& table) const;
  /// Runs the backward of the segments before the last. What only they pass to each other is
  /// dropped as soon as it was read.
  void run_backward(Table& table) const;
  /// Runs all there is and times every kernel; empty where a backend cannot tell.
  std::vector<backends::KernelTime> profile(Table& table) const;
  bool has_backward() const { return last_ + 1 < pieces_.size(); }

  /// Slot of the graph's output at that position.
  uint32_t output_slot(size_t position) const { return output_slots_[position]; }

  /// True if no two outputs of the graph share a buffer.
  bool has_distinct_outputs() const { return has_distinct_outputs_; }

  /// Peak bytes of arenas and of values kept between pieces, at the worst moment of a step.
  int64_t arena_peak() const { return arena_peak_; }
  int64_t output_bytes() const { return output_bytes_; }
  const std::vector<SegmentMemory>& segments() const { return segments_; }
  size_t num_nodes() const;
  /// What a memory limit did to all pieces; nothing without a limit.
  const std::optional<Recomputation>& recomputation() const { return recomputation_; }
  /// The graphs in the order in which they run.
  std::string text() const;

 private:
  struct Member {
    CompiledRef compiled;
    std::vector<uint32_t> inputs;   ///< slots
    std::vector<uint32_t> outputs;  ///< slots
    std::vector<uint32_t> dead;     ///< slots that nobody reads after this piece
    int segment = 0;
    bool takes_all_inputs = false;  ///< the inputs are those of the step, in order
    bool is_empty = false;          ///< makes nothing
  };

  void add_member(const passes::Piece& piece, std::vector<uint32_t>& slot_of_value);
  void find_dead();
  std::vector<int64_t> kept_bytes() const;
  void compile(const std::vector<passes::Piece>& pieces, const std::vector<int64_t>& kept,
               Device device, const Options& options);
  void note_recomputation(const std::vector<int64_t>& kept);
  void measure(const ir::Graph& graph, int num_segments, const std::vector<int64_t>& kept);
  std::vector<backends::BufferRef> gathered(const Member& member, const Table& table) const;
  void run(const Member& member, Table& table) const;

  std::vector<Member> pieces_;
  size_t last_ = 0;  ///< place of the last segment's piece
  size_t num_inputs_ = 0;
  std::vector<int64_t> slot_bytes_;
  std::vector<uint32_t> output_slots_;
  bool has_distinct_outputs_ = false;
  std::vector<SegmentMemory> segments_;
  int64_t arena_peak_ = 0;
  int64_t output_bytes_ = 0;
  std::optional<Recomputation> recomputation_;
};

}  // namespace lucid::compile

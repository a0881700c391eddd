// A compiled training step: forward, loss and backward of one trace, in one executable or, split
// into segments, in several.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "compile/pieces.h"
#include "runtime/autograd/node.h"
#include "runtime/tensor/tensor.h"
#include "runtime/trace/recorder.h"

namespace lucid::compile {

using runtime::TensorRef;

/// Bytes of one step, exact and known before the first run.
struct StepMemory {
  int64_t parameters = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;
  int64_t arena_peak = 0;
  std::vector<SegmentMemory> segments;
};

/// Seconds spent on compiling, and on runs so far.
struct StepTiming {
  double compile_seconds = 0;
  int64_t runs = 0;
  double run_seconds = 0;
};

/// The executable of one signature of a step. Holds no tensor values. run() may be called from
/// several threads.
class CompiledStep : public std::enable_shared_from_this<CompiledStep> {
 public:
  /// Appends the backward for every target of the trace (unless gradients are off) and compiles.
  /// The trace's first result is the loss: one element, floating; more are returned without
  /// history. The trace's marks split it into segments. Throws what compiling throws.
  static std::shared_ptr<CompiledStep> make(runtime::Trace trace, bool with_gradients,
                                            Device device);

  /// Runs once: returns the results, the loss tied to the arguments and captured tensors that
  /// require a gradient; writes state back and moves the generators, only if the whole run
  /// succeeded. `captures` stand in the order of the trace's captures. The backward of segments
  /// before the last runs in the loss's backward.
  std::vector<TensorRef> run(std::span<const TensorRef> arguments,
                             std::span<const TensorRef> captures);

  /// Runs forward and backward of all segments and forgets the results: nothing is written and
  /// no generator moves.
  void probe(std::span<const TensorRef> arguments, std::span<const TensorRef> captures);

  /// The gradients of an earlier run, whose table of values it was; with `seed`, those for
  /// another gradient of the loss: the last segment runs once more, and later runs start with it.
  runtime::Gradients backward(Pieces::Table& table, const runtime::Value* seed);

  StepMemory memory() const;
  StepTiming timing() const;
  std::string graph_text() const { return pieces_->text(); }
  size_t num_nodes() const { return pieces_->num_nodes(); }
  /// True if running it does more than return its results.
  bool has_effects() const { return has_effects_; }

 private:
  enum class Source : uint8_t { kArgument, kCapture, kDraw, kSeed };
  struct InputSource {
    Source source;
    int place;
  };

  CompiledStep() = default;
  Pieces::Table gather(std::span<const TensorRef> arguments, std::span<const TensorRef> captures,
                       std::vector<runtime::Generator::State>& drawn) const;
  void take_back(const std::vector<runtime::Generator::State>& drawn) const;
  std::vector<runtime::Edge> target_edges(std::span<const TensorRef> arguments,
                                          std::span<const TensorRef> captures) const;
  template <class Run>
  void timed(Run run);
  void write_state(std::span<const TensorRef> arguments, std::span<const TensorRef> captures,
                   const Pieces::Table& table) const;
  runtime::Gradients take_gradients(Pieces::Table& table) const;
  std::vector<ir::ValueId> add_backward(runtime::Trace& trace, std::vector<size_t>& origins);
  void describe_inputs(const runtime::Trace& trace);
  void describe_writes(runtime::Trace& trace);

  std::unique_ptr<const Pieces> pieces_;
  Device device_ = Device::kCpu;
  bool has_effects_ = false;
  std::vector<ir::ValueType> result_types_;  // the loss first
  std::vector<InputSource> sources_;
  std::vector<ir::ValueType> input_types_;
  std::vector<runtime::Draw> draws_;
  std::vector<runtime::StateWrite> writes_;
  std::vector<int> write_captures_;  // by write: place of its tensor among the captures, or -1
  std::vector<ir::ValueType> write_types_;
  std::vector<runtime::GradTarget> targets_;  // those the loss depends on
  std::vector<ir::ValueType> gradient_types_;
  StepMemory memory_;

  /// Guards what follows, and reading inputs against writing state.
  mutable std::mutex mutex_;
  runtime::Value seed_;
  StepTiming timing_;
};

}  // namespace lucid::compile

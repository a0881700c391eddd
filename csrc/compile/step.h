// A compiled training step: forward, loss and backward of one trace in one executable.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "compile/pipeline.h"
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
  /// The trace has one result, the loss: one element, floating. Throws what compiling throws.
  static std::shared_ptr<CompiledStep> make(runtime::Trace trace, bool with_gradients,
                                            Device device);

  /// Runs once: returns the loss, tied to the arguments and captured tensors that require a
  /// gradient; writes state back and moves the generators, only if the whole run succeeded.
  /// `captures` stand in the order of the trace's captures.
  TensorRef run(std::span<const TensorRef> arguments, std::span<const TensorRef> captures);

  /// Runs the executable once more on the inputs of an earlier run, with another gradient of
  /// the loss; returns the gradients. Later runs start with that seed.
  runtime::Gradients rerun(std::vector<backends::BufferRef> inputs, const runtime::Value& seed);

  StepMemory memory() const;
  StepTiming timing() const;
  std::string graph_text() const { return ir::to_string(compiled_->graph); }
  size_t num_nodes() const { return compiled_->graph.nodes().size(); }

 private:
  enum class Source : uint8_t { kArgument, kCapture, kDraw, kSeed };
  struct InputSource {
    Source source;
    int place;
  };

  CompiledStep() = default;
  std::vector<backends::BufferRef> gather(std::span<const TensorRef> arguments,
                                          std::span<const TensorRef> captures,
                                          std::vector<runtime::Generator::State>& drawn) const;
  std::vector<runtime::Edge> target_edges(std::span<const TensorRef> arguments,
                                          std::span<const TensorRef> captures) const;
  std::vector<backends::BufferRef> execute(std::span<const backends::BufferRef> inputs);
  void write_state(std::span<const TensorRef> arguments, std::span<const TensorRef> captures,
                   std::vector<backends::BufferRef>& outputs) const;
  runtime::Gradients take_gradients(std::vector<backends::BufferRef>& outputs) const;
  void describe_inputs(const runtime::Trace& trace);

  CompiledRef compiled_;
  Device device_ = Device::kCpu;
  ir::ValueType loss_type_;
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

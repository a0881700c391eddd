// Program: what every compiled trace has in common. It knows where the inputs of a run come from,
// puts back what a run writes, and keeps the times. Derived classes say what is run.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "compile/memory_limit.h"
#include "compile/report.h"
#include "runtime/autograd/node.h"
#include "runtime/process.h"
#include "runtime/tensor/tensor.h"
#include "runtime/trace/recorder.h"

namespace lucid::compile {

using runtime::TensorRef;

/// What one run takes.
struct Call {
  std::span<const TensorRef> arguments;
  std::span<const TensorRef> captures;   ///< in the order of the trace's captures
  std::span<const double> scalars = {};  ///< in the order of the trace's scalars
};

/// A compiled trace. Holds no tensor values. May be run from several threads.
class Program : public std::enable_shared_from_this<Program> {
 public:
  virtual ~Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Runs once and returns the results; writes state back and moves the generators, only if the
  /// whole run succeeded.
  virtual std::vector<TensorRef> run(const Call& call) = 0;
  /// Runs all there is and forgets the results: nothing is written and no generator moves.
  virtual void probe(const Call& call) = 0;

  /// As probe, timing every kernel; empty where the device cannot tell.
  virtual std::vector<backends::KernelTime> profile(const Call& call) = 0;

  /// The compiled graphs as text, in the order in which they run.
  virtual std::string graph_text() const = 0;
  virtual size_t num_nodes() const = 0;
  /// True if running it does more than return its results: it runs once a call then.
  virtual bool has_effects() const { return false; }
  /// What a memory limit did; nothing without one.
  virtual std::optional<Recomputation> recomputation() const { return {}; }
  ProgramMemory memory() const { return memory_; }
  Device device() const { return device_; }
  ProgramTiming timing() const;

 protected:
  /// Buffers of the graph's inputs, in its order; one for a gradient of a result is empty.
  using Inputs = std::vector<backends::BufferRef>;
  using Drawn = std::vector<runtime::Generator::State>;

  explicit Program(Device device) : device_(device) {}

  /// Notes the results, inputs, writes and draws of a trace whose graph has all its inputs.
  void describe(runtime::Trace& trace);
  /// Notes the targets that have a gradient; returns those gradients.
  std::vector<ir::ValueId> note_targets(const runtime::Trace& trace, const ir::Graph& graph,
                                        const ir::Grads& grads);

  Inputs gather(const Call& call, Drawn& drawn) const;
  void take_back(const Drawn& drawn) const;
  std::vector<runtime::Edge> target_edges(const Call& call) const;
  /// By write: the graph's input whose cell it replaces, or -1.
  std::vector<int> written_inputs() const;
  /// Puts the buffers, one a write of the trace, into the cells they belong to.
  void write_state(const Call& call, std::vector<backends::BufferRef> buffers) const;
  /// Runs something long, other threads of the host meanwhile, and notes its time.
  void timed(const std::function<void()>& run);

  Device device_;
  std::vector<ir::ValueType> result_types_;
  std::vector<ir::ValueType> input_types_;
  std::vector<runtime::StateWrite> writes_;
  std::vector<runtime::GradTarget> targets_;  ///< those with a gradient
  std::vector<ir::ValueType> gradient_types_;
  ProgramMemory memory_;
  ProgramTiming timing_;

  /// Guards the timing and what derived classes change, and reading inputs against writing state.
  mutable std::mutex mutex_;

 private:
  enum class Source : uint8_t { kArgument, kCapture, kDraw, kScalar, kSeed };
  struct InputSource {
    Source source;
    int place;
  };
  struct LastNumber {
    uint64_t bits = 0;
    backends::BufferRef buffer{};
  };
  backends::BufferRef number_buffer(size_t place, double number, DType dtype) const;
  void describe_inputs(const runtime::Trace& trace);
  void describe_writes(runtime::Trace& trace);

  std::vector<InputSource> sources_;
  std::vector<runtime::Draw> draws_;
  mutable std::vector<LastNumber> numbers_;  // by scalar: that of the last run; guarded by mutex_
  std::vector<int> write_captures_;  // by write: place of its tensor among the captures, or -1
  std::vector<ir::ValueType> write_types_;
};

/// A lock under which cells are touched. Taking a view again runs a kernel then.
struct CellLock {
  explicit CellLock(std::mutex& mutex) : lock(mutex) {}
  std::scoped_lock<std::mutex> lock;
  runtime::HostHold hold;
};

}  // namespace lucid::compile

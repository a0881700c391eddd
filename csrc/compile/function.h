// A compiled function: the results of one trace in one executable and, where a gradient may be
// asked for, their backward in a second one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compile/pipeline.h"
#include "compile/program.h"

namespace lucid::compile {

/// Any number of results, also none: a function may only write. Results through which gradients
/// flow are tied to the arguments and captured tensors that require one.
class CompiledFunction final : public Program {
 public:
  /// Compiles the forward and, `with_gradients`, the backward of all results. The forward then
  /// also returns the values that the backward reads.
  static std::shared_ptr<CompiledFunction> make(runtime::Trace trace, bool with_gradients,
                                                Device device, const Options& options = {});

  std::vector<TensorRef> run(const Call& call) override;
  /// Runs the forward only.
  void probe(const Call& call) override;
  std::vector<backends::KernelTime> profile(const Call& call) override;

  /// Buffers of one run by slot: the inputs of the graph, then what the forward returns.
  using Table = std::vector<backends::BufferRef>;

  /// Gradients of the targets for those of the differentiable results; an absent one stays
  /// absent. `table` is that of the run.
  runtime::Gradients backward(const Table& table, const runtime::Gradients& grads);

  std::string graph_text() const override;
  size_t num_nodes() const override;
  bool has_effects() const override { return has_effects_; }
  std::optional<Recomputation> recomputation() const override { return forward_->recomputation; }

 private:
  /// Where the gradient of a target is after the backward: nowhere, among its outputs, in a slot.
  struct Found {
    enum class In : uint8_t { kNowhere, kOutputs, kTable };
    In in = In::kNowhere;
    uint32_t place = 0;
  };
  struct Backward {
    CompiledRef compiled;
    std::vector<uint32_t> inputs;  ///< slots; after those of the table, one a gradient that came
    std::vector<Found> gradients;  ///< by target
  };
  using BackwardRef = std::shared_ptr<const Backward>;
  /// For each differentiable result: does it bring a gradient?
  using Mask = std::vector<bool>;
  /// The trace with the backward of some results appended.
  struct Differentiated {
    ir::Graph graph;
    ir::Grads gradients;  ///< of all targets
  };

  CompiledFunction(Device device, const Options& options) : Program(device), options_(options) {}
  class Change;
  void note_given(const std::vector<ir::ValueId>& finals);
  Change begin_change(const Table& table) const;
  Differentiated differentiate(const Mask& mask) const;
  void compile_forward(const std::vector<ir::ValueId>& finals,
                       const std::vector<ir::ValueId>& kept);
  BackwardRef compile_backward(const Differentiated& found) const;
  bool finds_slots(const std::vector<ir::ValueId>& values, std::vector<uint32_t>& slots) const;
  BackwardRef backward_for(const Mask& mask);
  void measure(const std::vector<ir::ValueId>& kept);

  Options options_;
  bool has_effects_ = false;
  ir::Graph graph_;  // the trace
  std::vector<ir::ValueId> results_;
  std::vector<uint32_t> result_slots_;
  std::vector<uint32_t> write_slots_;
  std::vector<size_t> roots_;  // places of the differentiable results
  std::vector<ir::ValueId> all_targets_;
  std::vector<uint32_t> slot_of_value_;
  std::vector<bool> is_kept_;  // by slot: the backward may read it
  CompiledRef forward_;
  std::map<Mask, Differentiated> recorded_;  // what only the trace itself could differentiate
  std::map<Mask, BackwardRef> backwards_;    // guarded by mutex_
};

}  // namespace lucid::compile

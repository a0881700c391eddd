// A compiled training step: forward, loss and backward of one trace, in one executable or, split
// into segments, in several.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compile/pieces.h"
#include "compile/program.h"

namespace lucid::compile {

/// The first result of the trace is the loss: one element, floating. More are returned without
/// history.
class CompiledStep final : public Program {
 public:
  /// Appends the backward for every target of the trace (unless gradients are off) and compiles.
  /// The trace's marks split it into segments, each compiled with `options`. Throws what
  /// compiling throws.
  static std::shared_ptr<CompiledStep> make(runtime::Trace trace, bool with_gradients,
                                            Device device, const Options& options = {});

  /// The loss is tied to the arguments and captured tensors that require a gradient. The backward
  /// of segments before the last runs in the loss's backward.
  std::vector<TensorRef> run(const Call& call) override;
  void probe(const Call& call) override;
  std::vector<backends::KernelTime> profile(const Call& call) override;

  /// The gradients of an earlier run, whose table of values it was; with `seed`, those for
  /// another gradient of the loss: the last segment runs once more, and later runs start with it.
  runtime::Gradients backward(Pieces::Table& table, const runtime::Value* seed);

  std::string graph_text() const override { return pieces_->text(); }
  size_t num_nodes() const override { return pieces_->num_nodes(); }
  std::optional<Recomputation> recomputation() const override { return pieces_->recomputation(); }
  bool has_effects() const override { return has_effects_; }

 private:
  explicit CompiledStep(Device device) : Program(device) {}
  std::vector<ir::ValueId> add_backward(runtime::Trace& trace, std::vector<size_t>& origins);
  Pieces::Table gather_with_seed(const Call& call, Drawn& drawn) const;
  runtime::Gradients take_gradients(Pieces::Table& table) const;
  std::vector<backends::BufferRef> written(const Pieces::Table& table) const;

  std::unique_ptr<const Pieces> pieces_;
  bool has_effects_ = false;
  bool has_seed_ = false;  // the graph's last input
  runtime::Value seed_;    // guarded by mutex_
};

}  // namespace lucid::compile

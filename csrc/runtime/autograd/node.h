// Nodes of the eager gradient tape.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "runtime/tensor/tensor.h"
#include "runtime/tensor/variable.h"

namespace lucid::runtime {

/// Gradients of a node's outputs or inputs; an absent one stays absent.
using Gradients = std::vector<std::optional<Variable>>;

/// How one backward is run.
struct BackwardMode {
  bool create_graph = false;  ///< record the backward itself, for second derivatives
  bool retain_graph = false;  ///< keep saved values for another backward
};

class GradNode : public std::enable_shared_from_this<GradNode> {
 public:
  explicit GradNode(std::vector<Edge> next, bool is_accumulator = false);
  /// Long chains are taken apart in a loop, not by recursion.
  virtual ~GradNode();
  GradNode(const GradNode&) = delete;
  GradNode& operator=(const GradNode&) = delete;

  virtual std::string name() const = 0;
  virtual size_t num_outputs() const = 0;
  /// Gradients for next(), in its order.
  virtual Gradients apply(const Gradients& grads, const BackwardMode& mode) = 0;
  /// Drops the saved values, in a backward that does not retain the graph.
  virtual void release() {}
  /// True for the end of the tape at a leaf, also if the leaf is gone.
  bool is_accumulator() const { return is_accumulator_; }

  const std::vector<Edge>& next() const { return next_; }
  /// The user's line that made the node, if such were noted then.
  const ir::LocationRef& location() const { return location_; }
  /// Order of creation; a backward visits nodes from the newest to the oldest.
  uint64_t sequence() const { return sequence_; }

  /// A hook on the gradient of one output.
  struct OutputHook {
    uint32_t output;
    uint64_t id;
    GradHook run;
  };
  std::vector<OutputHook> hooks;
  /// Non-leaf tensors that asked to keep their gradient.
  std::vector<std::pair<uint32_t, std::weak_ptr<Tensor>>> retainers;

 protected:
  std::vector<Edge> next_;

 private:
  uint64_t sequence_;
  ir::LocationRef location_;
  bool is_accumulator_;
};

/// The end of the tape at a leaf: the engine adds what arrives to the leaf's gradient.
class Accumulator final : public GradNode {
 public:
  explicit Accumulator(std::weak_ptr<Tensor> leaf) : GradNode({}, true), leaf_(std::move(leaf)) {}
  std::string name() const override { return "AccumulateGrad"; }
  size_t num_outputs() const override { return 1; }
  Gradients apply(const Gradients& grads, const BackwardMode& mode) override;
  /// The leaf; null if it has gone.
  TensorRef leaf() const { return leaf_.lock(); }

 private:
  std::weak_ptr<Tensor> leaf_;
};

class Checkpoint;

/// One executed operation; its gradient is the operation's own vjp.
class OpNode final : public GradNode {
 public:
  /// Saves those inputs and outputs that the vjp reads.
  OpNode(const ir::Op& op, const ir::Attrs& attrs,
         const std::vector<std::optional<Variable>>& inputs, std::vector<Edge> next,
         const std::vector<Value>& outputs);
  std::string name() const override;
  size_t num_outputs() const override { return num_outputs_; }
  Gradients apply(const Gradients& grads, const BackwardMode& mode) override;
  void release() override;
  /// Drops the saved values until a backward asks `source` to bring them back.
  void forget(std::shared_ptr<Checkpoint> source);
  /// Takes over the values saved by `again`, a second run of the same operation; false if it is
  /// another one.
  bool take(const OpNode& again);

 private:
  const ir::Op& op_;
  ir::Attrs attrs_;
  std::vector<std::optional<Variable>> inputs_;
  std::vector<Value> outputs_;
  size_t num_outputs_;                     // stays when the outputs are released
  std::shared_ptr<Checkpoint> forgotten_;  // set while it is to bring the values back
  bool is_released_ = false;
};

/// The refusal of a second backward through freed values.
[[noreturn]] void fail_released();

}  // namespace lucid::runtime

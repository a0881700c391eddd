// Kernel: one node, made ready for its shapes once and run many times.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "backends/cpu/strided_view.h"
#include "ir/graph.h"

namespace lucid::cpu {

/// The owners of a run's memory, for a kernel that lends it to somebody.
class RunMemory {
 public:
  /// Shares all memory of the run: none of it is used again while the result lives.
  virtual std::shared_ptr<void> share() = 0;

 protected:
  ~RunMemory() = default;
};

/// Memory of one run. Pointers of absent inputs are null; buffers are dense, row-major and
/// 64-byte aligned, except borrowed inputs, which have the alignment of their element.
struct RunContext {
  const void* const* inputs;
  void* const* outputs;
  void* scratch;  ///< scratch_bytes() bytes, 64-byte aligned
  /// Attributes of this run; they differ from the node's only in run-time attributes.
  const ir::Attrs* attrs;
  RunMemory* memory = nullptr;

  template <class T>
  const T* in(size_t index) const {
    return static_cast<const T*>(inputs[index]);
  }
  template <class T>
  T* out(size_t index) const {
    return static_cast<T*>(outputs[index]);
  }
};

/// A ready node. run() is const and may be called from several threads at once. It writes every
/// element of every output. It throws lucid::Error for bad values (an index out of range).
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void run(const RunContext& context) const = 0;
  virtual size_t scratch_bytes() const { return 0; }
};

/// A node and the types of its operands.
struct NodeView {
  const ir::Node& node;
  const ir::Graph& graph;
  /// By input and output: where it lies in the memory that the kernel is given, which may be that
  /// of a larger value; empty for all dense.
  std::span<const std::optional<StridedView>> input_views = {};
  std::span<const std::optional<StridedView>> output_views = {};

  bool has(size_t index) const { return node.has(index); }
  const ir::ValueType& input(size_t index) const { return graph.type(node.in(index)); }
  const ir::ValueType& output(size_t index) const { return graph.type(node.outputs[index]); }
  size_t num_inputs() const { return node.inputs.size(); }
  StridedView input_view(size_t index) const {
    if (index < input_views.size() && input_views[index]) return *input_views[index];
    return dense_view(input(index).shape);
  }
  StridedView output_view(size_t index) const {
    if (index < output_views.size() && output_views[index]) return *output_views[index];
    return dense_view(output(index).shape);
  }
};

using MakeKernelFn = std::unique_ptr<Kernel> (*)(const NodeView& view);

/// Where the elements of a node's only output lie in the memory of its first input's elements, if
/// strides can tell.
using ViewFn = std::optional<StridedView> (*)(const NodeView& view, const StridedView& input);
/// True if the kernel can take that input, or make that output, in that view.
using TakesViewFn = bool (*)(const NodeView& view, size_t index, const StridedView& place);

/// Where an input's elements lie in the memory of the only output, which all inputs fill.
using JoinsFn = StridedView (*)(const NodeView& view, size_t input);

/// One row of a family's table.
struct KernelRow {
  std::string_view op;
  MakeKernelFn make;
  ViewFn view = nullptr;  ///< of operations that move elements without computing
  TakesViewFn reads = nullptr;
  TakesViewFn writes = nullptr;
  JoinsFn joins = nullptr;  ///< of operations that put their operands side by side
};

/// The row of an operation, or null.
const KernelRow* find_row(std::string_view op);

/// The kernel of a node. Throws UnsupportedError that names operation and dtype if there is none.
std::unique_ptr<Kernel> make_kernel(const NodeView& view);
/// True if some kernel exists for the operation.
bool has_kernel(std::string_view op);

/// Makes a kernel of a callable `void(const RunContext&)`.
template <class Body>
std::unique_ptr<Kernel> kernel(Body body, size_t scratch_bytes = 0) {
  class BodyKernel final : public Kernel {
   public:
    BodyKernel(Body body, size_t scratch_bytes)
        : body_(std::move(body)), scratch_bytes_(scratch_bytes) {}
    void run(const RunContext& context) const override { body_(context); }
    size_t scratch_bytes() const override { return scratch_bytes_; }

   private:
    Body body_;
    size_t scratch_bytes_;
  };
  return std::make_unique<BodyKernel>(std::move(body), scratch_bytes);
}

}  // namespace lucid::cpu

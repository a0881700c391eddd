// Lowering: turns the nodes of a graph into tensors of an MPSGraph, one after the other.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "backends/metal/calc.h"
#include "ir/graph.h"
#include "ops/builder.h"

namespace lucid::metal {

using ir::Ints;
using ir::Node;
using ir::ValueId;
using ir::ValueType;
using Tensors = std::vector<Tensor>;

/// How graphs are built for a device.
struct LoweringOptions {
  /// Products whose inner size reaches 32767 are added up from parts (see Gpu).
  bool splits_long_products = false;
};

/// Indices of an input of the graph, looked at by the host before each run.
struct IndexCheck {
  std::string op;
  uint32_t input;  ///< place among the graph's inputs
  DType dtype;
  int64_t size;  ///< indices lie in [-size, size), or [0, size) if not `wraps`
  bool wraps = true;
  std::optional<int64_t> allowed;  ///< a further value that is allowed
  ir::LocationRef location;
};

/// A number that the device counts in each run; not 0 means that indices were out of range.
struct IndexFlag {
  Tensor count;  ///< int32[1]
  std::string op;
  int64_t size;
  ir::LocationRef location;
};

/// A tensor that the host fills before each run.
struct HostFeed {
  enum class Kind : uint8_t {
    kPhiloxKeys,  ///< uint32[22]: the keys of ten rounds, then the first counter
    kNumbers,     ///< what the cpu's kernel of a random node gives
  };
  Kind kind;
  Tensor placeholder;
  ValueType type;                      ///< of kNumbers
  uint32_t state_input;                ///< place of the generator's state among the graph's inputs
  int64_t offset;                      ///< added to the state's offset
  backends::ExecutableRef executable;  ///< of kNumbers
};

class Lowering final : public ops::Builder {
 public:
  Lowering(MPSGraph* graph, const ir::Graph& source, const LoweringOptions& options);

  /// Lowers all nodes. Throws UnsupportedError that names what has no lowering.
  void run();

  /// The tensor of a value; null for an empty one.
  Tensor tensor(ValueId id) const { return slots_[index(id)].tensor; }
  const std::vector<Tensor>& placeholders() const { return placeholders_; }
  const std::vector<IndexCheck>& checks() const { return checks_; }
  const std::vector<IndexFlag>& flags() const { return flags_; }
  const std::vector<HostFeed>& host_feeds() const { return host_feeds_; }

  // What lowerings use.
  /// States that all elements of an integer value lie in [0, below): they need no check as indices.
  void bound(ValueId id, int64_t below) { slots_[index(id)].below = below; }
  /// A value beside those of the graph, for operations that a lowering emits.
  ValueId add_value(ValueType type, Tensor tensor);
  const Calc& calc() const { return calc_; }
  const LoweringOptions& options() const { return options_; }
  Tensor in(const Node& node, size_t i) const { return tensor(node.in(i)); }
  const ValueType& in_type(const Node& node, size_t i) const { return type(node.in(i)); }
  const ValueType& out_type(const Node& node, size_t i = 0) const { return type(node.outputs[i]); }
  /// Refuses the node: `what` says what is missing.
  [[noreturn]] void refuse(const Node& node, const std::string& what) const;

  /// The indices as int32 from the front, checked before or in the run. Input `i` of the node
  /// indexes an axis of `size` elements.
  Tensor indices(const Node& node, size_t i, int64_t size);
  /// As indices, counted from the front only; `allowed` passes and becomes 0.
  Tensor labels(const Node& node, size_t i, int64_t size, int64_t allowed);
  /// A feed that the host fills from the generator's state, input `state` of the node.
  Tensor host_feed(const Node& node, size_t state, HostFeed::Kind kind);

  // ops::Builder: decompositions emit through these.
  std::vector<ValueId> emit(const ir::Op& op, std::vector<std::optional<ValueId>> inputs,
                            ir::Attrs attrs) override;
  const ValueType& type(ValueId id) const override { return slots_[index(id)].type; }

 private:
  struct Slot {
    ValueType type;
    Tensor tensor = nil;
    int input = -1;      ///< place among the graph's inputs
    int64_t below = -1;  ///< known bound of the elements, or -1
  };

  void lower(const Node& node);
  Tensors lowered(const Node& node);
  bool is_empty(ValueId id) const { return type(id).num_elements() == 0; }
  bool add_check(const Node& node, size_t i, int64_t size, bool wraps,
                 std::optional<int64_t> allowed);
  void add_flag(const Node& node, Tensor is_wrong, int64_t size);

  Calc calc_;
  const ir::Graph& source_;
  LoweringOptions options_;
  std::deque<Slot> slots_;  // the source's values, then those of decompositions
  std::vector<Tensor> placeholders_;
  std::vector<IndexCheck> checks_;
  std::vector<IndexFlag> flags_;
  std::vector<HostFeed> host_feeds_;
  ir::LocationRef location_;  // of the node that is lowered
};

/// One row of a family's table.
struct LoweringRow {
  std::string_view op;
  Tensors (*lower)(Lowering& b, const Node& node);
};

/// True if the operation has a row or a decomposition.
bool has_lowering(std::string_view op);

/// The node's message with the user's line behind it.
std::string with_location(const std::string& text, const ir::LocationRef& location);

}  // namespace lucid::metal

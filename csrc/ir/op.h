// Static description of an operation: all that the compiler knows of it, in one record.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/attribute.h"
#include "ir/value.h"
#include "support/errors.h"

namespace lucid::ops {
class Builder;
}  // namespace lucid::ops

namespace lucid::ir {

class Graph;
struct Node;
struct Op;

/// Facts that passes, planner and runtime ask for; combined with |.
enum Trait : uint32_t {
  kPure = 1u << 0,             ///< same inputs, same outputs; may be merged, folded or dropped
  kElementwise = 1u << 1,      ///< output element depends on the inputs' elements at its index
  kReduction = 1u << 2,        ///< folds axes
  kRandom = 1u << 3,           ///< draws counters from its last input; pure given that input
  kPromotes = 1u << 4,         ///< the front end brings all inputs to one dtype first
  kPromotesToFloat = 1u << 5,  ///< as kPromotes; integers go to the default floating dtype
  kInPlace = 1u << 6,  ///< the first output may take `in_place_input`'s memory if sizes agree
  kAlias = 1u << 7,    ///< the output has the bytes of the first input (reshape, detach)
  kCheap = 1u << 8,    ///< recomputing costs less than keeping
  kCommutative = 1u << 9,
};

/// What mixed precision does with the floating inputs of a call; float64 is always left alone.
/// Operations that take the widest dtype among their inputs promote without it.
enum class Autocast : uint8_t {
  kNone,     ///< nothing
  kLow,      ///< casts them to the mode's low dtype
  kFloat32,  ///< casts them to float32
};

/// What an infer function sees of a call, and its one way to refuse it.
class InferArgs {
 public:
  InferArgs(const Op& op, std::span<const std::optional<ValueType>> inputs, const Attrs& attrs)
      : op_(op), inputs_(inputs), attrs_(attrs) {}

  size_t num_inputs() const { return inputs_.size(); }
  /// False for an absent optional input.
  bool has(size_t index) const { return index < inputs_.size() && inputs_[index].has_value(); }
  const ValueType& input(size_t index) const { return *inputs_[index]; }
  const Shape& shape(size_t index) const { return inputs_[index]->shape; }
  DType dtype(size_t index) const { return inputs_[index]->dtype; }

  bool flag(std::string_view attr) const { return std::get<bool>(value(attr)); }
  int64_t integer(std::string_view attr) const { return std::get<int64_t>(value(attr)); }
  double real(std::string_view attr) const;
  DType dtype_attr(std::string_view attr) const { return std::get<DType>(value(attr)); }
  const std::string& string(std::string_view attr) const {
    return std::get<std::string>(value(attr));
  }
  const Ints& ints(std::string_view attr) const { return std::get<Ints>(value(attr)); }
  const AttrValue& value(std::string_view attr) const;

  /// Throws `<op>: <what>`; the place is added by the caller of infer.
  [[noreturn]] void fail(ErrorKind kind, const std::string& what) const;
  /// Refuses a shape: `fail(kShape, what)`.
  [[noreturn]] void fail(const std::string& what) const { fail(ErrorKind::kShape, what); }

 private:
  const Op& op_;
  std::span<const std::optional<ValueType>> inputs_;
  const Attrs& attrs_;
};

using ValueTypes = std::vector<ValueType>;
/// Gradient of each input; an absent one stays absent.
using Grads = std::vector<std::optional<ValueId>>;

/// Types of the outputs. Throws through `args.fail`.
using InferFn = ValueTypes (*)(const InferArgs& args);
/// Emits the nodes that turn gradients of the outputs (absent ones were not asked for) into
/// gradients of the inputs. `wanted[i]` is false where nobody reads input i's gradient.
using VjpFn = Grads (*)(ops::Builder& builder, const Node& node, const Grads& grads,
                        const std::vector<bool>& wanted);
/// Emits the same function in simpler nodes and returns the outputs.
using DecomposeFn = std::vector<ValueId> (*)(ops::Builder& builder, const Node& node);

/// Floating-point operations of one run of a node, a multiplication and an addition counted as two.
using FlopsFn = double (*)(const Graph& graph, const Node& node);

/// Static record of an operation.
struct Op {
  std::string_view name;
  std::string_view doc;
  /// Inputs: at least min_inputs, at most max_inputs (-1: any number, none absent); those past
  /// min may be absent.
  int min_inputs = 1;
  int max_inputs = 1;
  std::vector<AttrSpec> attrs = {};
  uint32_t traits = 0;
  InferFn infer = nullptr;
  VjpFn vjp = nullptr;
  DecomposeFn decompose = nullptr;
  /// Where the traits do not tell: products, sliding windows, what works row by row.
  FlopsFn flops = nullptr;
  /// Operations of a large product that take the time of one of these.
  double effort_per_flop = 1;
  /// Bit i: the vjp reads the value of input i (its type is always known).
  uint32_t vjp_reads_inputs = ~0u;
  /// Bit i: the vjp reads the value of output i.
  uint32_t vjp_reads_outputs = ~0u;
  /// Bit i: no gradient flows through output i (indices, masks, saved statistics).
  uint32_t nondifferentiable_outputs = 0;
  /// Input that kInPlace speaks of.
  size_t in_place_input = 0;
  /// First input that kPromotes and kPromotesToFloat speak of (1 where input 0 is a condition).
  int promotes_from = 0;
  /// Cast that dispatch puts in front while mixed precision is on; passes never ask.
  Autocast autocast = Autocast::kNone;

  bool is(uint32_t trait) const { return (traits & trait) != 0; }
  /// Place of an attribute in the schema, or -1.
  int attr_index(std::string_view attr) const;
};

}  // namespace lucid::ir

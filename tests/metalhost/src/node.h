// The recorded graph: nodes, the values between them, and their evaluation.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "array.h"

namespace metalhost {

struct Node;

/// One output of a node.
struct Value {
  std::shared_ptr<Node> node;
  size_t index = 0;

  const Type& type() const;
};

using Inputs = std::span<const Array>;
using Evaluate = std::function<std::vector<Array>(Inputs)>;

class Reader;
struct Op;
using MakeAgain = Op (*)(Reader& reader);

/// What an operation makes of given operand types: its result types and its arithmetic.
struct Op {
  std::string name;
  std::vector<Type> outputs;
  Evaluate evaluate;
  /// MPSGraph knows the shape only once the graph is compiled.
  bool infers_late = false;
  /// The call of ops.h that made it: the function and its arguments as bytes.
  struct {
    MakeAgain again = nullptr;
    std::string arguments;
  } recipe = {};
};

/// An operation with one result.
Op single(std::string name, Type output, std::function<Array(Inputs)> evaluate);

struct Node {
  Op op;
  std::vector<Value> inputs;
  uint64_t order = 0;  // of creation; inputs come first
};

/// More memory than the device has.
struct OutOfDeviceMemory : std::runtime_error {
  OutOfDeviceMemory() : std::runtime_error("out of device memory") {}
};

/// What a compiled graph runs.
class Schedule {
 public:
  /// Takes what the targets need, in order of creation.
  Schedule(const std::vector<Value>& targets, const std::vector<Value>& feeds);

  /// Throws OutOfDeviceMemory where temporaries exceed the limit.
  std::vector<Array> run(const std::vector<Array>& feeds) const;

  const std::vector<std::shared_ptr<Node>>& nodes() const { return nodes_; }
  const std::vector<Value>& targets() const { return targets_; }
  const std::vector<Value>& feeds() const { return feeds_; }

 private:
  std::vector<std::shared_ptr<Node>> nodes_;
  std::vector<Value> targets_;
  std::vector<Value> feeds_;
};

}  // namespace metalhost

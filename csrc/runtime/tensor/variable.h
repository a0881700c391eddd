// Value: what a tensor cell holds. Variable: a value with its history in the gradient tape.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "backends/buffer.h"
#include "ir/value.h"

namespace lucid::runtime {

class GradNode;

/// Output `index` of the tape node that made a value; null for a value without history.
struct Edge {
  std::shared_ptr<GradNode> node{};
  uint32_t index = 0;
  explicit operator bool() const { return node != nullptr; }
};

/// Names one trace; 0 names none.
using TraceId = uint64_t;

/// An immutable dense value: a buffer, or, while its trace records, a value of a graph.
struct Value {
  ir::ValueType type{};
  Device device = Device::kCpu;
  backends::BufferRef buffer{};  ///< null for a symbolic value
  TraceId trace = 0;             ///< trace of a symbolic value
  ir::ValueId id{};              ///< its value in that trace's graph

  bool is_symbolic() const { return trace != 0; }
  template <class T>
  const T* data() const {
    return static_cast<const T*>(buffer->data());
  }
};

/// A value and how gradients flow back from it.
struct Variable {
  Value value{};
  Edge edge{};
  /// A symbolic value through which gradients flow.
  bool tracks = false;

  bool requires_grad() const { return tracks || static_cast<bool>(edge); }
};

}  // namespace lucid::runtime

// Helpers of the gradient rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/builder.h"

namespace lucid::ops {

/// Which values a gradient rule reads; bit i stands for input or output i.
struct Reads {
  uint32_t inputs = 0;
  uint32_t outputs = 0;
};
inline constexpr Reads kReadsNothing{};
inline constexpr Reads kReadsInput{.inputs = 1, .outputs = 0};
inline constexpr Reads kReadsOutput{.inputs = 0, .outputs = 1};

/// One absent gradient for each input of the node.
inline Grads absent(const Node& node) { return Grads(node.inputs.size()); }

/// True if somebody wants the gradient of input i, and the input can have one.
inline bool wants(const Builder& b, const Node& node, const std::vector<bool>& wanted, size_t i) {
  return wanted[i] && node.has(i) && is_floating(b.dtype(node.in(i)));
}

/// Gradient of the input of a unary operation, from the gradient of its output.
using UnaryRule = ValueId (*)(Builder& b, const Node& node, ValueId grad);

/// The gradient rule of a unary operation.
template <UnaryRule kRule>
Grads unary_vjp(Builder& b, const Node& node, const Grads& grads, const std::vector<bool>& wanted) {
  if (!grads[0] || !wants(b, node, wanted, 0)) return absent(node);
  return {kRule(b, node, *grads[0])};
}

}  // namespace lucid::ops

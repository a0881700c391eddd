// The engine that runs a backward over the tape.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runtime/autograd/node.h"

namespace lucid::runtime {

/// Runs the backward of sum(roots[i] * seeds[i]) and adds the leaves' gradients to them, after
/// all were computed: an error leaves every gradient as it was. An absent seed is 1 and needs a
/// root with one element. Contributions to one value are added left to right in the reverse
/// order in which their consumers were made. With `inputs`, only those leaves are added to.
/// Throws AutogradError if a root does not require a gradient.
void backward(std::span<const TensorRef> roots, std::span<const TensorRef> seeds, BackwardMode mode,
              std::span<const TensorRef> inputs);

/// Gradients of the roots with respect to `inputs`; nothing is accumulated.
/// An input that the roots do not depend on: null if allowed, else AutogradError.
std::vector<TensorRef> grad(std::span<const TensorRef> roots, std::span<const TensorRef> seeds,
                            std::span<const TensorRef> inputs, BackwardMode mode,
                            bool allow_unused);

}  // namespace lucid::runtime

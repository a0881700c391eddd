// StepEntry: a compiled program bound to its captured tensors, with the guard that a call must
// pass.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "compile/program.h"
#include "runtime/process.h"

namespace lucid::compile {

/// What a call's argument must be.
struct ArgumentSpec {
  ir::ValueType type;
  Device device = Device::kCpu;
  bool requires_grad = false;
  int same_as = -1;  ///< place of an earlier argument that is the same tensor, or -1

  bool operator==(const ArgumentSpec&) const = default;
};

/// Specs of the arguments of a call.
std::vector<ArgumentSpec> describe(std::span<const TensorRef> arguments);

class StepEntry {
 public:
  /// Specs of the tensors that the trace captured, and process modes, are taken now. `found` are
  /// the tensors that the captures' paths lead to: one that requires a gradient where the capture
  /// does not was read through detach().
  StepEntry(std::shared_ptr<Program> program, std::vector<ArgumentSpec> arguments,
            std::vector<TensorRef> captures, std::span<const TensorRef> found);

  /// The results, if the arguments, the modes and the modules' version are those of the binding;
  /// nothing otherwise, or inside a trace. O(arguments), whatever the number of parameters.
  std::optional<std::vector<TensorRef>> try_run(std::span<const TensorRef> arguments,
                                                std::span<const double> scalars);

  /// Runs once without any effect. The arguments must fit.
  void probe(std::span<const TensorRef> arguments);

  /// As probe; the time of every kernel.
  std::vector<backends::KernelTime> profile(std::span<const TensorRef> arguments,
                                            std::span<const double> scalars);

  /// True if the arguments and modes fit, whatever the modules' version.
  bool accepts(std::span<const TensorRef> arguments) const;

  /// Binds the tensors that the captures' paths lead to now; false if one has another type,
  /// device or requires_grad than the trace saw.
  bool rebind(std::vector<TensorRef> captures);

  const std::shared_ptr<Program>& program() const { return program_; }

 private:
  struct Modes {
    bool grad_enabled;
    DType default_dtype;
    Device default_device;
    runtime::AutocastModes autocast;
    bool operator==(const Modes&) const = default;
  };
  static Modes modes();
  std::shared_ptr<const std::vector<TensorRef>> captures() const;

  std::shared_ptr<Program> program_;
  std::vector<ArgumentSpec> arguments_;
  std::vector<ArgumentSpec> capture_specs_;
  std::vector<bool> captures_detached_;  ///< read without history: the trace saw a detach()
  std::shared_ptr<const std::vector<TensorRef>> captures_;  // swapped whole by rebind
  Modes modes_;
  std::atomic<uint64_t> module_version_;
  mutable std::mutex mutex_;
};

}  // namespace lucid::compile

// What the runtime keeps for the whole process or for one thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "ir/graph.h"

namespace lucid::runtime {

class Recorder;

/// What the core asks of the language above it; implemented by bindings.
class Host {
 public:
  virtual ~Host() = default;
  /// The user's line that is running now, or null.
  virtual ir::LocationRef caller() const = 0;
};

/// State of one thread.
struct ThreadState {
  bool grad_enabled = true;
  Recorder* recorder = nullptr;  ///< the trace that records, if any
};
ThreadState& thread_state();

/// Defaults and counters of the process.
struct ProcessState {
  std::atomic<DType> default_dtype{DType::kFloat32};
  std::atomic<uint64_t> module_version{0};  ///< bumped by every structural change of a module
  std::atomic<int64_t> compilations{0};
  std::atomic<int64_t> executable_runs{0};
  std::atomic<int64_t> eager_dispatches{0};
  const Host* host = nullptr;
};
ProcessState& process_state();

/// Turns gradients on or off for a scope.
class GradMode {
 public:
  explicit GradMode(bool enabled) : previous_(thread_state().grad_enabled) {
    thread_state().grad_enabled = enabled;
  }
  ~GradMode() { thread_state().grad_enabled = previous_; }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool previous_;
};

}  // namespace lucid::runtime

// What the runtime keeps for the whole process or for one thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

#include "ir/graph.h"
#include "support/device.h"

namespace lucid::runtime {

class Checkpoint;
class Recorder;

/// What the core asks of the language above it; implemented by bindings.
class Host {
 public:
  virtual ~Host() = default;
  /// The user's line that is running now, or null.
  virtual ir::LocationRef caller() const = 0;
  /// Lets other threads of that language run until resume(); null if this thread holds no lock
  /// of it. That lock guards the cells of tensors, so only kernels run without it.
  virtual void* pause() const = 0;
  virtual void resume(void* paused) const = 0;
};

/// Mixed precision on one device.
struct AutocastMode {
  bool enabled = false;
  DType dtype = DType::kBFloat16;  ///< the low dtype: bfloat16 or float16

  /// The dtype of a mode that is off means nothing.
  bool operator==(const AutocastMode& other) const {
    return enabled == other.enabled && (!enabled || dtype == other.dtype);
  }
};

/// The modes of all devices, in the order of Device.
using AutocastModes = std::array<AutocastMode, 2>;

/// State of one thread.
struct ThreadState {
  bool grad_enabled = true;
  Recorder* recorder = nullptr;      ///< the trace that records, if any
  Checkpoint* checkpoint = nullptr;  ///< notes what the tape saves, if any
  bool may_pause = true;             ///< false inside a HostHold
  AutocastModes autocast{{{}, {.enabled = false, .dtype = DType::kFloat16}}};
};
ThreadState& thread_state();

/// Defaults and counters of the process.
struct ProcessState {
  std::atomic<DType> default_dtype{DType::kFloat32};
  std::atomic<Device> default_device{Device::kCpu};  ///< of what is made without naming one
  std::atomic<uint64_t> module_version{0};  ///< bumped by every structural change of a module
  std::atomic<bool> notes_lines{false};     ///< tape nodes note the user's line that made them
  std::atomic<bool> refuses_nan{false};     ///< a backward stops where a gradient becomes nan
  std::atomic<int64_t> compilations{0};
  std::atomic<int64_t> executable_runs{0};
  std::atomic<int64_t> eager_dispatches{0};
  const Host* host = nullptr;
};
ProcessState& process_state();

/// Lets other threads of the language above run for a scope that touches no tensor's cell.
class HostPause {
 public:
  /// Does nothing unless `is_long`: a pause costs about as much as a small operation.
  explicit HostPause(bool is_long) {
    const Host* host = process_state().host;
    if (is_long && host != nullptr && thread_state().may_pause) paused_ = host->pause();
  }
  ~HostPause() {
    if (paused_ != nullptr) process_state().host->resume(paused_);
  }
  HostPause(const HostPause&) = delete;
  HostPause& operator=(const HostPause&) = delete;

 private:
  void* paused_ = nullptr;
};

/// Keeps the host for a scope, whatever runs in it: where a cell must not change between its
/// reading and its writing, or a lock is held that the next holder of the host may wait for.
class HostHold {
 public:
  HostHold() : could_pause_(std::exchange(thread_state().may_pause, false)) {}
  ~HostHold() { thread_state().may_pause = could_pause_; }
  HostHold(const HostHold&) = delete;
  HostHold& operator=(const HostHold&) = delete;

 private:
  bool could_pause_;
};

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

/// Turns mixed precision off for a scope: in a backward, whose operands have the forward's dtypes.
class AutocastOff {
 public:
  AutocastOff() : previous_(thread_state().autocast) {
    for (AutocastMode& mode : thread_state().autocast) mode.enabled = false;
  }
  ~AutocastOff() { thread_state().autocast = previous_; }
  AutocastOff(const AutocastOff&) = delete;
  AutocastOff& operator=(const AutocastOff&) = delete;

 private:
  AutocastModes previous_;
};

}  // namespace lucid::runtime

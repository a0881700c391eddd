// The line between the compiler and the devices: Backend compiles a graph, Executable runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/buffer.h"
#include "backends/disk_cache.h"
#include "ir/graph.h"
#include "ops/cost.h"
#include "planner/plan.h"

namespace lucid::backends {

/// Bytes that one run of an executable needs, known before the first run. Where a backend's driver
/// chooses what lives when (Backend::knows_memory), arena_peak is an estimate.
struct MemoryReport {
  int64_t inputs = 0;
  int64_t outputs = 0;
  int64_t arena_peak = 0;
};

/// One kernel of an executable: what it computes, its cost, and how long its last run took.
struct KernelTime {
  std::string label;  ///< the operation, or those of a fused kernel
  std::string types;  ///< of what it returns
  ir::LocationRef location;
  ops::Cost cost;
  double seconds = 0;
};

/// A compiled graph. run() may be called from several threads.
class Executable {
 public:
  virtual ~Executable() = default;

  /// Runs once. `inputs` stand in the graph's order and have its types; the outputs are fresh
  /// buffers in the graph's order. `run_time_attrs`, if given, replaces the attributes of the
  /// only node. Nothing outside the result changes; an error leaves no trace.
  virtual std::vector<BufferRef> run(std::span<const BufferRef> inputs,
                                     const ir::Attrs* run_time_attrs) const = 0;
  virtual MemoryReport memory() const = 0;
  /// True if it came from the disk and was not compiled.
  virtual bool is_loaded() const { return false; }

  /// Runs once and times each kernel, in the order in which they run; nothing where the backend
  /// cannot tell.
  virtual std::vector<KernelTime> profile(std::span<const BufferRef> inputs,
                                          std::vector<BufferRef>& outputs) const {
    outputs = run(inputs, nullptr);
    return {};
  }

  /// As run, but may write the outputs that were paired in the hints into the buffers of inputs
  /// whose flag is set: nobody else reads them. Such an output is the input's buffer.
  virtual std::vector<BufferRef> run_giving(std::span<const BufferRef> inputs,
                                            const std::vector<bool>& given) const {
    (void)given;
    return run(inputs, nullptr);
  }
};

using ExecutableRef = std::shared_ptr<const Executable>;

/// What helps to compile a graph well.
struct CompileHints {
  /// Outputs that run_giving may write into the buffer of an input.
  std::vector<planner::Given> given;
  /// Where executables are kept for later processes; backends that compile in no time leave it.
  std::optional<DiskCache> disk;
  /// Bytes of arena that the graph was made to fit, for a backend that must do something about it.
  std::optional<int64_t> memory_limit;
};

class Backend {
 public:
  virtual ~Backend() = default;
  /// Throws UnsupportedError that names the operation and dtype it has no kernel for.
  virtual ExecutableRef compile(const ir::Graph& graph) = 0;
  /// As above; a backend may follow the hints.
  virtual ExecutableRef compile(const ir::Graph& graph, const CompileHints& hints) {
    (void)hints;
    return compile(graph);
  }
  /// Bytes that each node of the graph takes in the arena while it runs, besides its operands.
  /// Throws as compile does.
  virtual std::vector<int64_t> scratch_sizes(const ir::Graph& graph) {
    return std::vector<int64_t>(graph.nodes().size(), 0);
  }
  /// Exact bytes of the arena of an executable of the graph, whose nodes take those bytes.
  virtual int64_t arena_bytes(const ir::Graph& graph, std::span<const int64_t> scratch_sizes);
  /// False where the arena is the driver's own and its bytes are estimated.
  virtual bool knows_memory() const { return true; }
  /// A fresh buffer with undefined contents. Throws OutOfMemoryError with the size.
  virtual BufferRef allocate(int64_t size_bytes) = 0;

  virtual std::string device_name() const = 0;
  /// Waits for all work given to the device. Throws the first error that no reader has met yet.
  virtual void synchronize() {}
  /// Bytes that tensors hold, their high-water mark, and a new start of that mark.
  virtual int64_t allocated_bytes() = 0;
  virtual int64_t peak_allocated_bytes() = 0;
  virtual void reset_peak() = 0;
  /// Gives pooled memory back to the system.
  virtual void empty_cache() = 0;
};

/// True if the device exists here.
bool is_available(Device device);
/// The backend of the device. Throws DeviceUnavailableError that says what is needed.
Backend& backend_for(Device device);

/// Number of buffers that the backends have handed out since the process began.
int64_t num_allocations();
/// Bytes of the cpu handed out now, and their high-water mark.
int64_t allocated_bytes();
int64_t peak_allocated_bytes();
/// High-water mark of the arenas of running executables, and of buffers and arenas together.
int64_t peak_leased_bytes();
int64_t peak_bytes_in_use();
/// Starts all high-water marks anew from what is in use now.
void reset_peaks();

}  // namespace lucid::backends

// Work in flight: submissions in the order of the queue, what they keep alive, and their errors.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <unistd.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/metal/metal_buffer.h"

namespace lucid::metal {

/// What one run keeps alive until the device has finished it.
struct Submission {
  std::vector<MetalBufferRef> inputs;
  std::vector<MetalBufferRef> outputs;
  /// Blocks of the run's own, given back to the pool at the end.
  std::vector<Retained<id<MTLBuffer>>> lent;
  std::vector<Retained<NSObject*>> objects;
  /// Looks at the results of a finished run; an error spoils the outputs.
  std::function<std::optional<Error>()> check;
};

/// The one stream of the process. An error of the device belongs to the buffers that it spoiled
/// and to all that is computed from them: reading one throws it.
class Stream {
 public:
  static Stream& get();

  /// Encodes by `encode`, commits and returns; waits first if too much is in flight. Throws the
  /// error of an input that is known to be spoiled.
  void submit(Submission submission, const std::function<void(MPSCommandBuffer*)>& encode);
  /// Returns once the buffer holds its contents. Throws the error that spoiled it.
  void wait(const MetalBuffer& buffer);
  /// Waits for everything. Throws the first error that no reader has met.
  void synchronize();
  /// Frees what finished runs kept, without waiting.
  void retire_finished();

 private:
  struct Entry {
    Submission submission;
    Retained<id<MTLCommandBuffer>> commands;
  };
  using EntryRef = std::shared_ptr<Entry>;
  using Lock = std::unique_lock<std::mutex>;

  static constexpr size_t kMaxInFlight = 16;

  EntryRef finish_front(Lock& lock);
  void retire(Entry& entry);
  void throw_failure(const std::shared_ptr<const Error>& failure);
  /// Throws in a fork of the process that made the stream: nothing would ever finish there.
  void check_process() const;

  const pid_t owner_ = getpid();
  std::mutex mutex_;
  std::deque<EntryRef> in_flight_;
  Ticket num_submitted_ = 0;
  Ticket num_retired_ = 0;
  std::shared_ptr<const Error> unreported_;
  std::string last_reason_;  ///< of the last failure of the device
  bool queue_failed_ = false;
};

}  // namespace lucid::metal

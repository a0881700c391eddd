#include "backends/metal/stream.h"

#include <algorithm>
#include <string>
#include <utility>

#include "backends/metal/gpu.h"

namespace lucid::metal {
namespace {

constexpr NSInteger kOutOfMemoryCode = 8;  // MTLCommandBufferErrorOutOfMemory
constexpr NSInteger kIgnoredCode = 4;      // MTLCommandBufferErrorAccessRevoked

std::string failed(const std::string& reason) {
  return "metal: the device failed: " + reason + "; the results of that run are lost";
}

/// The error of a finished run. `reason` is that of the failure before it, and becomes its own: a
/// queue that failed ignores what was already given to it.
std::optional<Error> error_of(id<MTLCommandBuffer> commands, std::string& reason) {
  if ([commands status] != MTLCommandBufferStatusError) return std::nullopt;
  NSError* error = [commands error];
  if (error != nil && [error code] == kIgnoredCode && !reason.empty()) {
    return Error(ErrorKind::kInternal,
                 failed("it ignored a run behind one that failed: " + reason));
  }
  const bool is_memory = error != nil && [error code] == kOutOfMemoryCode;
  reason = error == nil ? "no reason given" : text_of([error localizedDescription]);
  return Error(is_memory ? ErrorKind::kOutOfMemory : ErrorKind::kInternal, failed(reason));
}

}  // namespace

// Never destroyed: buffers may outlive every static object.
Stream& Stream::get() {
  static Stream* const instance = new Stream;  // NOLINT: see above
  return *instance;
}

void Stream::check_process() const {
  if (owner_ == getpid()) return;
  throw Error(ErrorKind::kUnsupported,
              "metal: this process is a fork of one that has used the device; start it with "
              "multiprocessing's \"spawn\", or compute on cpu here");
}

void Stream::submit(Submission submission, const std::function<void(MPSCommandBuffer*)>& encode) {
  check_process();
  const AutoreleasePool pool;
  retire_finished();
  for (;;) {
    EntryRef done;  // dropped without the lock
    Lock lock(mutex_);
    if (in_flight_.size() < kMaxInFlight) break;
    done = finish_front(lock);
  }
  const std::scoped_lock building(Gpu::get().mutex());
  {
    const Lock lock(mutex_);
    for (const MetalBufferRef& input : submission.inputs) {
      if (input->failure != nullptr) throw_failure(input->failure);
    }
    if (queue_failed_) Gpu::get().renew_queue();  // the failed queue ignores what follows
    queue_failed_ = false;
  }
  auto entry = std::make_shared<Entry>();
  entry->commands = guarded("metal: run", [&] {
    MPSCommandBuffer* commands =
        [MPSCommandBuffer commandBufferFromCommandQueue:Gpu::get().queue()];
    if (commands == nil) throw Error(ErrorKind::kInternal, "metal: no command buffer was given");
    encode(commands);
    // Encoding may have committed and gone on with another buffer: the last one is waited for.
    auto last = Retained<id<MTLCommandBuffer>>::share([commands rootCommandBuffer]);
    [commands commit];
    return last;
  });
  entry->submission = std::move(submission);
  const Lock lock(mutex_);
  ++num_submitted_;
  for (const MetalBufferRef& output : entry->submission.outputs) output->ticket = num_submitted_;
  in_flight_.push_back(std::move(entry));
}

void Stream::wait(const MetalBuffer& buffer) {
  const AutoreleasePool pool;
  for (;;) {
    EntryRef done;  // dropped without the lock
    Lock lock(mutex_);
    if (buffer.ticket <= num_retired_) {
      if (buffer.failure != nullptr) throw_failure(buffer.failure);
      return;
    }
    check_process();
    done = finish_front(lock);
  }
}

void Stream::synchronize() {
  const AutoreleasePool pool;
  for (;;) {
    EntryRef done;  // dropped without the lock
    Lock lock(mutex_);
    if (in_flight_.empty()) {
      if (unreported_ != nullptr) throw_failure(unreported_);
      return;
    }
    done = finish_front(lock);
  }
}

void Stream::retire_finished() {
  const AutoreleasePool pool;
  for (;;) {
    EntryRef done;  // dropped without the lock
    Lock lock(mutex_);
    if (in_flight_.empty()) return;
    const MTLCommandBufferStatus status = [in_flight_.front()->commands.get() status];
    if (status != MTLCommandBufferStatusCompleted && status != MTLCommandBufferStatusError) return;
    done = finish_front(lock);
  }
}

// Waits for the oldest run and retires it, unless another thread did so meanwhile.
Stream::EntryRef Stream::finish_front(Lock& lock) {
  EntryRef entry = in_flight_.front();
  lock.unlock();
  guarded("metal: wait", [&] { [entry->commands.get() waitUntilCompleted]; });
  lock.lock();
  if (in_flight_.empty() || in_flight_.front() != entry) return nullptr;
  in_flight_.pop_front();
  retire(*entry);
  ++num_retired_;
  return entry;
}

void Stream::retire(Entry& entry) {
  Submission& submission = entry.submission;
  std::shared_ptr<const Error> failure;
  for (const MetalBufferRef& input : submission.inputs) {
    if (input->failure != nullptr) failure = input->failure;
  }
  if (failure == nullptr) {
    const auto error =
        guarded("metal: wait", [&] { return error_of(entry.commands.get(), last_reason_); });
    queue_failed_ = queue_failed_ || error.has_value();
    if (error) {
      failure = std::make_shared<const Error>(*error);
    } else if (submission.check) {
      if (const auto found = submission.check()) failure = std::make_shared<const Error>(*found);
    }
    if (failure != nullptr && unreported_ == nullptr) unreported_ = failure;
  }
  for (const MetalBufferRef& output : submission.outputs) output->failure = failure;
  for (auto& block : submission.lent) give_back(std::move(block));
  submission.lent.clear();
}

void Stream::throw_failure(const std::shared_ptr<const Error>& failure) {
  const std::shared_ptr<const Error> thrown = failure;
  if (unreported_ == thrown) unreported_ = nullptr;
  throw Error(*thrown);
}

}  // namespace lucid::metal

// Command queues: each has a thread that runs its command buffers in the order of their commits.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "objects.h"

@class HostCommandBuffer;

namespace metalhost {

/// How a command buffer ended.
struct Failure {
  long code;
  std::string text;
};

/// Work of a command buffer. `cancel` runs instead of `run` where the buffer ran out of memory.
struct Work {
  std::function<void()> run;
  std::function<void()> cancel;
};

/// Set once a buffer's handlers have run and its queue holds it no longer.
struct Completion {
  bool is_done = false;  // guarded by the queue's mutex
};

/// What a queue shares with its thread and its buffers.
struct QueueState {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<HostCommandBuffer*> pending;  // retained
  bool is_stopping = false;
  bool has_failed = false;
  int num_waiting = 0;
  NSUInteger num_open = 0;  // command buffers made and not yet done with
  NSUInteger max_open = 0;
};

}  // namespace metalhost

@interface HostQueue : NSObject <MTLCommandQueue> {
  id<MTLDevice> device_;
  NSString* label_;
  std::shared_ptr<metalhost::QueueState> state_;
  std::thread thread_;
  metalhost::CountedAs<metalhost::Kind::kCommandQueue> counted_;
}
/// `commandBuffer` blocks while so many are made and not completed.
- (instancetype)initWithDevice:(id<MTLDevice>)device maxOpen:(NSUInteger)count;
@end

@interface HostCommandBuffer : NSObject <MTLCommandBuffer> {
 @public
  HostQueue* queue_;
  NSString* label_;
  NSError* error_;
  MTLCommandBufferStatus status_;
  std::shared_ptr<metalhost::Completion> completion_;
  double start_time_;
  double end_time_;
  NSMutableArray* scheduled_handlers_;
  NSMutableArray* completed_handlers_;
  std::vector<metalhost::Work> work_;
  std::shared_ptr<metalhost::QueueState> state_;
  metalhost::CountedAs<metalhost::Kind::kCommandBuffer> counted_;
}
- (instancetype)initWithQueue:(HostQueue*)queue state:(std::shared_ptr<metalhost::QueueState>)state;
- (void)addWork:(metalhost::Work)work;
@end

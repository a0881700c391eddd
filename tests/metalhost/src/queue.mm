#include "queue.h"

#include <chrono>
#include <utility>

using metalhost::Completion;
using metalhost::fail_assertion;
using metalhost::Failure;
using metalhost::QueueState;
using metalhost::Work;

// GNUstep: makes a thread of the C++ library known to Foundation.
extern "C" BOOL GSRegisterCurrentThread(void);
extern "C" void GSUnregisterCurrentThread(void);

namespace {

using namespace std::chrono_literals;

// A thread that reads results before it waits shall find the old bytes.
constexpr auto kHeadStart = 1ms;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

NSError* error_from(const Failure& failure) {
  NSDictionary* const info =
      @{NSLocalizedDescriptionKey : [NSString stringWithUTF8String:failure.text.c_str()]};
  return [NSError errorWithDomain:MTLCommandBufferErrorDomain code:failure.code userInfo:info];
}

// The kernel driver's words for both.
const Failure kOutOfMemory = {
    MTLCommandBufferErrorOutOfMemory,
    "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"};
const Failure kIgnored = {MTLCommandBufferErrorAccessRevoked,
                          "Ignored (for causing prior/excessive GPU errors) "
                          "(00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)"};

std::optional<Failure> run_work(HostCommandBuffer* buffer, bool queue_has_failed) {
  if (buffer->work_.empty()) return std::nullopt;
  if (queue_has_failed) return kIgnored;
  if (const auto injected = metalhost::take_injected_error()) {
    return Failure{injected->code, injected->reason};
  }
  for (const Work& work : buffer->work_) {
    try {
      work.run();
    } catch (const metalhost::OutOfDeviceMemory&) {
      for (const Work& lost : buffer->work_) lost.cancel();
      return kOutOfMemory;
    }
  }
  return std::nullopt;
}

void call_handlers(NSArray* handlers, HostCommandBuffer* buffer) {
  for (MTLCommandBufferHandler handler in handlers) handler(buffer);
}

void execute(HostCommandBuffer* buffer, QueueState& state) {
  {
    const std::lock_guard lock(state.mutex);
    buffer->status_ = MTLCommandBufferStatusScheduled;
    buffer->start_time_ = seconds_now();
  }
  state.changed.notify_all();
  call_handlers(buffer->scheduled_handlers_, buffer);
  const std::optional<Failure> failure = run_work(buffer, state.has_failed);
  buffer->work_.clear();
  {
    const std::lock_guard lock(state.mutex);
    buffer->end_time_ = seconds_now();
    if (failure) buffer->error_ = [error_from(*failure) retain];
    if (failure) state.has_failed = true;
    buffer->status_ = failure ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted;
  }
  call_handlers(buffer->completed_handlers_, buffer);
  [buffer->completed_handlers_ removeAllObjects];
  [buffer->scheduled_handlers_ removeAllObjects];
}

// Takes the next buffer, or nil once the queue is gone.
HostCommandBuffer* next_buffer(QueueState& state) {
  std::unique_lock lock(state.mutex);
  state.changed.wait(lock, [&] { return state.is_stopping || !state.pending.empty(); });
  if (state.pending.empty()) return nil;
  state.changed.wait_for(lock, kHeadStart, [&] { return state.num_waiting > 0; });
  while (metalhost::is_held()) state.changed.wait_for(lock, kHeadStart);
  HostCommandBuffer* const buffer = state.pending.front();
  state.pending.pop_front();
  return buffer;
}

// Who waits goes on only after the last reference from here is gone: counts of objects are exact.
void finish(HostCommandBuffer* buffer, QueueState& state) {
  const std::shared_ptr<Completion> completion = buffer->completion_;
  NSAutoreleasePool* const pool = [[NSAutoreleasePool alloc] init];
  execute(buffer, state);
  [buffer release];  // may be the last owner of the queue
  [pool drain];
  {
    const std::lock_guard lock(state.mutex);
    completion->is_done = true;
    --state.num_open;
  }
  state.changed.notify_all();
}

void serve(const std::shared_ptr<QueueState>& state) {
  GSRegisterCurrentThread();
  while (HostCommandBuffer* const buffer = next_buffer(*state)) finish(buffer, *state);
  GSUnregisterCurrentThread();
}

}  // namespace

@implementation HostQueue

- (instancetype)initWithDevice:(id<MTLDevice>)device maxOpen:(NSUInteger)count {
  if ((self = [super init]) == nil) return nil;
  device_ = [device retain];
  state_ = std::make_shared<QueueState>();
  state_->max_open = count;
  thread_ = std::thread([state = state_] { serve(state); });
  return self;
}

- (void)dealloc {
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_stopping = true;
  }
  state_->changed.notify_all();
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
  [label_ release];
  [device_ release];
  [super dealloc];
}

- (id<MTLCommandBuffer>)commandBuffer {
  {
    std::unique_lock lock(state_->mutex);
    ++state_->num_waiting;
    state_->changed.notify_all();
    state_->changed.wait(lock, [&] { return state_->num_open < state_->max_open; });
    --state_->num_waiting;
    ++state_->num_open;
  }
  return [[[HostCommandBuffer alloc] initWithQueue:self state:state_] autorelease];
}
- (id<MTLDevice>)device {
  return device_;
}
- (NSString*)label {
  return label_;
}
- (void)setLabel:(NSString*)label {
  [label_ autorelease];
  label_ = [label copy];
}
@end

@implementation HostCommandBuffer

- (instancetype)initWithQueue:(HostQueue*)queue state:(std::shared_ptr<QueueState>)state {
  if ((self = [super init]) == nil) return nil;
  queue_ = [queue retain];
  state_ = std::move(state);
  completion_ = std::make_shared<Completion>();
  status_ = MTLCommandBufferStatusNotEnqueued;
  scheduled_handlers_ = [[NSMutableArray alloc] init];
  completed_handlers_ = [[NSMutableArray alloc] init];
  return self;
}

- (void)dealloc {
  if (status_ < MTLCommandBufferStatusCommitted) {
    {
      const std::lock_guard lock(state_->mutex);
      --state_->num_open;
    }
    state_->changed.notify_all();
  }
  work_.clear();
  [scheduled_handlers_ release];
  [completed_handlers_ release];
  [error_ release];
  [label_ release];
  [queue_ release];
  [super dealloc];
}

- (void)requireOpen:(const char*)what {
  const std::lock_guard lock(state_->mutex);
  if (status_ < MTLCommandBufferStatusCommitted) return;
  fail_assertion("-[IOGPUMetalCommandBuffer validate]", what);
}

- (void)requireCommitted:(const char*)what {
  if (status_ >= MTLCommandBufferStatusCommitted) return;
  fail_assertion("-[_MTLCommandBuffer validate]", what);
}

- (void)addWork:(Work)work {
  [self requireOpen:"encoding to a committed command buffer"];
  work_.push_back(std::move(work));
}

- (void)enqueue {
  [self requireOpen:"enqueue of a committed command buffer"];
  status_ = MTLCommandBufferStatusEnqueued;
}

- (void)commit {
  [self requireOpen:"commit an already committed command buffer"];
  {
    const std::lock_guard lock(state_->mutex);
    status_ = MTLCommandBufferStatusCommitted;
    state_->pending.push_back([self retain]);
  }
  state_->changed.notify_all();
}

- (void)addScheduledHandler:(MTLCommandBufferHandler)block {
  [self requireOpen:"Scheduled handler provided after commit call"];
  [scheduled_handlers_ addObject:[[block copy] autorelease]];
}

- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
  [self requireOpen:"Completed handler provided after commit call"];
  [completed_handlers_ addObject:[[block copy] autorelease]];
}

- (void)waitUntilScheduled {
  std::unique_lock lock(state_->mutex);
  [self requireCommitted:"waitUntilScheduled of a command buffer that is not committed"];
  ++state_->num_waiting;
  state_->changed.notify_all();
  state_->changed.wait(lock, [&] { return status_ >= MTLCommandBufferStatusScheduled; });
  --state_->num_waiting;
}

- (void)waitUntilCompleted {
  std::unique_lock lock(state_->mutex);
  [self requireCommitted:"waitUntilCompleted of a command buffer that is not committed"];
  ++state_->num_waiting;
  state_->changed.notify_all();
  state_->changed.wait(lock, [&] { return completion_->is_done; });
  --state_->num_waiting;
}

- (MTLCommandBufferStatus)status {
  const std::lock_guard lock(state_->mutex);
  return status_;
}
- (NSError*)error {
  const std::lock_guard lock(state_->mutex);
  return [[error_ retain] autorelease];
}
- (id<MTLDevice>)device {
  return [queue_ device];
}
- (id<MTLCommandQueue>)commandQueue {
  return queue_;
}
- (BOOL)retainedReferences {
  return YES;
}
- (NSString*)label {
  return label_;
}
- (void)setLabel:(NSString*)label {
  [label_ autorelease];
  label_ = [label copy];
}
- (CFTimeInterval)kernelStartTime {
  return start_time_;
}
- (CFTimeInterval)kernelEndTime {
  return end_time_;
}
- (CFTimeInterval)GPUStartTime {
  return start_time_;
}
- (CFTimeInterval)GPUEndTime {
  return end_time_;
}
@end

namespace {

struct SplitState : HostState {
  explicit SplitState(id<MTLCommandBuffer> buffer)
      : HostState(metalhost::Kind::kOther), first(buffer), root(buffer) {}

  metalhost::Ref<id<MTLCommandBuffer>> first, root;
};

}  // namespace

@implementation MPSCommandBuffer

- (instancetype)initWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer {
  if ((self = [super init]) == nil) return nil;
  if (commandBuffer == nil) fail_assertion("MPSCommandBuffer.mm", "commandBuffer is nil");
  host_state_ = new SplitState(commandBuffer);
  return self;
}
+ (instancetype)commandBufferWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer {
  return [[[self alloc] initWithCommandBuffer:commandBuffer] autorelease];
}
+ (instancetype)commandBufferFromCommandQueue:(id<MTLCommandQueue>)commandQueue {
  return [self commandBufferWithCommandBuffer:[commandQueue commandBuffer]];
}
- (void)dealloc {
  delete host_state_;
  [super dealloc];
}
- (id<MTLCommandBuffer>)commandBuffer {
  return state_of<SplitState>(self).first.get();
}
- (id<MTLCommandBuffer>)rootCommandBuffer {
  return state_of<SplitState>(self).root.get();
}
- (void)commitAndContinue {
  SplitState& state = state_of<SplitState>(self);
  [state.root.get() commit];
  state.root = metalhost::Ref([[state.root.get() commandQueue] commandBuffer]);
}

- (void)enqueue {
  [[self rootCommandBuffer] enqueue];
}
- (void)commit {
  [[self rootCommandBuffer] commit];
}
- (void)addScheduledHandler:(MTLCommandBufferHandler)block {
  [[self rootCommandBuffer] addScheduledHandler:block];
}
- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
  [[self rootCommandBuffer] addCompletedHandler:block];
}
- (void)waitUntilScheduled {
  [[self rootCommandBuffer] waitUntilScheduled];
}
- (void)waitUntilCompleted {
  [[self rootCommandBuffer] waitUntilCompleted];
}
- (MTLCommandBufferStatus)status {
  return [[self rootCommandBuffer] status];
}
- (NSError*)error {
  return [[self rootCommandBuffer] error];
}
- (id<MTLDevice>)device {
  return [[self rootCommandBuffer] device];
}
- (id<MTLCommandQueue>)commandQueue {
  return [[self rootCommandBuffer] commandQueue];
}
- (BOOL)retainedReferences {
  return [[self rootCommandBuffer] retainedReferences];
}
- (NSString*)label {
  return [[self rootCommandBuffer] label];
}
- (void)setLabel:(NSString*)label {
  [[self rootCommandBuffer] setLabel:label];
}
- (CFTimeInterval)kernelStartTime {
  return [[self rootCommandBuffer] kernelStartTime];
}
- (CFTimeInterval)kernelEndTime {
  return [[self rootCommandBuffer] kernelEndTime];
}
- (CFTimeInterval)GPUStartTime {
  return [[self rootCommandBuffer] GPUStartTime];
}
- (CFTimeInterval)GPUEndTime {
  return [[self rootCommandBuffer] GPUEndTime];
}
@end

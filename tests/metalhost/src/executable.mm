// Compilation of a graph and the execution of the result.
#include <algorithm>
#include <cstring>

#include "objects.h"
#include "package.h"
#include "queue.h"

using metalhost::Array;
using metalhost::fail_assertion;
using metalhost::Ref;
using metalhost::Schedule;
using metalhost::Value;

namespace {

struct CompilationState : HostState {
  CompilationState() : HostState(metalhost::Kind::kOther) {}
  HostState* clone() const override { return new CompilationState(*this); }

  MPSGraphOptimization optimizationLevel = MPSGraphOptimizationLevel1;
  BOOL waitForCompilationCompletion = NO;
  Ref<id> handler;
};

struct ExecutionState : HostState {
  ExecutionState() : HostState(metalhost::Kind::kOther) {}
  HostState* clone() const override { return new ExecutionState(*this); }

  BOOL waitUntilCompleted = NO;
  Ref<id> scheduled, completed;
};

struct ExecutableState : HostState {
  ExecutableState() : HostState(metalhost::Kind::kExecutable) {}

  Ref<NSArray*> feeds, targets;  // nil where it came from a package
  std::vector<metalhost::Type> feed_types, target_types;
  std::shared_ptr<const Schedule> schedule;
  MPSGraphOptions options = MPSGraphOptionsDefault;
};

constexpr int kScribble = 0x5a;

std::vector<Value> values_of(NSArray<MPSGraphTensor*>* tensors) {
  std::vector<Value> values;
  for (MPSGraphTensor* tensor in tensors) values.push_back(metalhost::value_of(tensor));
  return values;
}

void require_match(const char* what, NSUInteger position, const metalhost::Type& found,
                   const metalhost::Type& expected) {
  const std::string place = std::string(what) + " at index " + std::to_string(position);
  if (found.data_type != expected.data_type) {
    fail_assertion("MPSGraphExecutable.mm", "Error: Incompatible element type for " + place +
                                                ", mlir module expected element type " +
                                                metalhost::name_of(expected.data_type) +
                                                " but received " +
                                                metalhost::name_of(found.data_type));
  }
  if (found.shape.size() != expected.shape.size()) {
    fail_assertion("MPSNDArrayIdentity.mm",
                   "New rank: " + std::to_string(found.shape.size()) +
                       " should match destination: " + std::to_string(expected.shape.size()) +
                       " (" + place + ")");
  }
  if (found.shape != expected.shape) {
    fail_assertion("MPSGraphExecutable.mm", "Error: Invalid shape for " + place + ": expected " +
                                                metalhost::text_of(expected) + " but received " +
                                                metalhost::text_of(found));
  }
}

std::vector<metalhost::Type> value_types(const std::vector<Value>& values) {
  std::vector<metalhost::Type> types;
  for (const Value& value : values) types.push_back(value.type());
  return types;
}

void require_matches(const char* what, NSArray<MPSGraphTensorData*>* found,
                     const std::vector<metalhost::Type>& expected) {
  if ([found count] != expected.size()) {
    fail_assertion("MPSGraphExecutable.mm", std::string("Error: the number of ") + what + " is " +
                                                std::to_string([found count]) +
                                                ", the executable has " +
                                                std::to_string(expected.size()));
  }
  for (NSUInteger i = 0; i < [found count]; ++i) {
    const metalhost::Type& type =
        state_of<TensorDataState>((MPSGraphTensorData*)[found objectAtIndex:i]).type;
    require_match(what, i, type, expected[i]);
  }
}

NSArray<MPSGraphTensorData*>* new_results(id<MTLDevice> device,
                                          const std::vector<metalhost::Type>& targets) {
  NSMutableArray<MPSGraphTensorData*>* const results = [NSMutableArray array];
  for (const metalhost::Type& type : targets) {
    id<MTLBuffer> const buffer =
        [device newBufferWithLength:static_cast<NSUInteger>(type.size_bytes())
                            options:MTLResourceStorageModeShared];
    MPSGraphTensorData* const data =
        [[MPSGraphTensorData alloc] initWithMTLBuffer:buffer
                                                shape:metalhost::numbers_from(type.shape)
                                             dataType:static_cast<MPSDataType>(type.data_type)];
    [results addObject:data];
    [data release];
    [buffer release];
  }
  return results;
}

uint8_t* bytes_of(const TensorDataState& data) {
  return static_cast<uint8_t*>([data.buffer.get() contents]);
}

void fill(NSArray<MPSGraphTensorData*>* results, int byte) {
  for (MPSGraphTensorData* result in results) {
    const TensorDataState& data = state_of<TensorDataState>(result);
    std::memset(bytes_of(data), byte, static_cast<size_t>(data.type.size_bytes()));
  }
}

// Results are scribbled over first: a buffer that is both an input and a result has no order
// between its readers and its writer.
void run_schedule(const Schedule& schedule, NSArray<MPSGraphTensorData*>* inputs,
                  NSArray<MPSGraphTensorData*>* results) {
  fill(results, kScribble);
  std::vector<Array> feeds;
  for (MPSGraphTensorData* input in inputs) {
    const TensorDataState& data = state_of<TensorDataState>(input);
    const uint8_t* const bytes = bytes_of(data);
    feeds.emplace_back(data.type, std::vector<uint8_t>(bytes, bytes + data.type.size_bytes()));
  }
  const std::vector<Array> outputs = schedule.run(feeds);
  size_t next = 0;
  for (MPSGraphTensorData* result in results) {
    const std::vector<uint8_t>& bytes = outputs[next++].bytes();
    std::memcpy(bytes_of(state_of<TensorDataState>(result)), bytes.data(), bytes.size());
  }
}

}  // namespace

namespace metalhost {
namespace {

/// The order of a loaded package: kept, or another one if a test asks for it.
Schedule loaded_order(const Schedule& stored) {
  if (!rearranges_packages()) return stored;
  std::vector<Value> feeds = stored.feeds(), targets = stored.targets();
  std::ranges::reverse(feeds);
  std::ranges::reverse(targets);
  return {targets, feeds};
}

}  // namespace
}  // namespace metalhost

@implementation MPSGraphCompilationDescriptor
HOST_DESCRIPTOR(CompilationState)
HOST_PROPERTY(CompilationState, MPSGraphOptimization, optimizationLevel, setOptimizationLevel)
HOST_PROPERTY(CompilationState, BOOL, waitForCompilationCompletion, setWaitForCompilationCompletion)
- (MPSGraphCompilationCompletionHandler)compilationCompletionHandler {
  return (MPSGraphCompilationCompletionHandler)state_of<CompilationState>(self).handler.get();
}
- (void)setCompilationCompletionHandler:(MPSGraphCompilationCompletionHandler)handler {
  state_of<CompilationState>(self).handler = Ref<id>([[handler copy] autorelease]);
}
- (void)disableTypeInference {
}
@end

@implementation MPSGraphExecutableExecutionDescriptor
HOST_DESCRIPTOR(ExecutionState)
HOST_PROPERTY(ExecutionState, BOOL, waitUntilCompleted, setWaitUntilCompleted)
- (MPSGraphExecutableScheduledHandler)scheduledHandler {
  return (MPSGraphExecutableScheduledHandler)state_of<ExecutionState>(self).scheduled.get();
}
- (void)setScheduledHandler:(MPSGraphExecutableScheduledHandler)handler {
  state_of<ExecutionState>(self).scheduled = Ref<id>([[handler copy] autorelease]);
}
- (MPSGraphExecutableCompletionHandler)completionHandler {
  return (MPSGraphExecutableCompletionHandler)state_of<ExecutionState>(self).completed.get();
}
- (void)setCompletionHandler:(MPSGraphExecutableCompletionHandler)handler {
  state_of<ExecutionState>(self).completed = Ref<id>([[handler copy] autorelease]);
}
@end

@implementation MPSGraphExecutable
HOST_PROPERTY(ExecutableState, MPSGraphOptions, options, setOptions)
- (NSArray<MPSGraphTensor*>*)feedTensors {
  return state_of<ExecutableState>(self).feeds.get();
}
- (NSArray<MPSGraphTensor*>*)targetTensors {
  return state_of<ExecutableState>(self).targets.get();
}

- (void)serializeToMPSGraphPackageAtURL:(NSURL*)url
                             descriptor:(MPSGraphExecutableSerializationDescriptor*)descriptor {
  metalhost::write_package([[url path] UTF8String], *state_of<ExecutableState>(self).schedule);
}

// Feeds and targets are nil then, as seen on macOS: nothing tells their order.
- (instancetype)initWithMPSGraphPackageAtURL:(NSURL*)url
                       compilationDescriptor:(MPSGraphCompilationDescriptor*)descriptor {
  if ((self = [super init]) == nil) return nil;
  auto* const state = new ExecutableState;
  host_state_ = state;
  state->schedule = std::make_shared<Schedule>(
      metalhost::loaded_order(metalhost::read_package([[url path] UTF8String])));
  state->feed_types = value_types(state->schedule->feeds());
  state->target_types = value_types(state->schedule->targets());
  metalhost::count_package_load();
  return self;
}

- (NSArray<MPSGraphTensorData*>*)encodeToCommandBuffer:(MPSCommandBuffer*)commandBuffer
                                           inputsArray:(NSArray<MPSGraphTensorData*>*)inputsArray
                                          resultsArray:(NSArray<MPSGraphTensorData*>*)resultsArray
                                   executionDescriptor:
                                       (MPSGraphExecutableExecutionDescriptor*)executionDescriptor {
  if (commandBuffer == nil) fail_assertion("MPSGraphExecutable.mm", "commandBuffer is nil");
  const ExecutableState& state = state_of<ExecutableState>(self);
  NSArray<MPSGraphTensorData*>* const results =
      resultsArray != nil ? resultsArray : new_results([commandBuffer device], state.target_types);
  require_matches("inputsArray", inputsArray, state.feed_types);
  require_matches("resultsArray", results, state.target_types);
  metalhost::count_encoding();
  // The framework may split the work; whoever holds on to the old root sees the difference here.
  [commandBuffer commitAndContinue];
  id<MTLCommandBuffer> const root = [commandBuffer rootCommandBuffer];
  const MPSGraphExecutableCompletionHandler completed = [executionDescriptor completionHandler];
  const MPSGraphExecutableScheduledHandler scheduled = [executionDescriptor scheduledHandler];
  if (scheduled != nil) {
    [root addScheduledHandler:^(id<MTLCommandBuffer> buffer) {
      scheduled(results, [buffer error]);
    }];
  }
  if (completed != nil) {
    [root addCompletedHandler:^(id<MTLCommandBuffer> buffer) {
      completed(results, [buffer error]);
    }];
  }
  const Ref<NSArray*> kept_inputs([[inputsArray copy] autorelease]);
  const Ref<NSArray*> kept_results([[results copy] autorelease]);
  const std::shared_ptr<const Schedule> schedule = state.schedule;
  [(HostCommandBuffer*)root
      addWork:{
                  .run = [=] { run_schedule(*schedule, kept_inputs.get(), kept_results.get()); },
                  .cancel = [=] { fill(kept_results.get(), 0); },
              }];
  return results;
}

- (NSArray<MPSGraphTensorData*>*)
    runAsyncWithMTLCommandQueue:(id<MTLCommandQueue>)commandQueue
                    inputsArray:(NSArray<MPSGraphTensorData*>*)inputsArray
                   resultsArray:(NSArray<MPSGraphTensorData*>*)resultsArray
            executionDescriptor:(MPSGraphExecutableExecutionDescriptor*)executionDescriptor {
  MPSCommandBuffer* const buffer = [MPSCommandBuffer commandBufferFromCommandQueue:commandQueue];
  NSArray<MPSGraphTensorData*>* const results = [self encodeToCommandBuffer:buffer
                                                                inputsArray:inputsArray
                                                               resultsArray:resultsArray
                                                        executionDescriptor:executionDescriptor];
  [buffer commit];
  if ([executionDescriptor waitUntilCompleted]) [buffer waitUntilCompleted];
  return results;
}

- (NSArray<MPSGraphTensorData*>*)runWithMTLCommandQueue:(id<MTLCommandQueue>)commandQueue
                                            inputsArray:(NSArray<MPSGraphTensorData*>*)inputsArray
                                           resultsArray:(NSArray<MPSGraphTensorData*>*)resultsArray
                                    executionDescriptor:(MPSGraphExecutableExecutionDescriptor*)
                                                            executionDescriptor {
  MPSGraphExecutableExecutionDescriptor* const waiting =
      executionDescriptor != nil
          ? [[executionDescriptor copy] autorelease]
          : [[[MPSGraphExecutableExecutionDescriptor alloc] init] autorelease];
  [waiting setWaitUntilCompleted:YES];
  return [self runAsyncWithMTLCommandQueue:commandQueue
                               inputsArray:inputsArray
                              resultsArray:resultsArray
                       executionDescriptor:waiting];
}
@end

namespace {

// The order of a dictionary is nobody's promise: here it is the reverse of creation.
NSArray<MPSGraphTensor*>* feeds_in_order(MPSGraph* graph,
                                         MPSGraphTensorShapedTypeDictionary* feeds) {
  NSMutableArray<MPSGraphTensor*>* const placeholders = [NSMutableArray array];
  for (MPSGraphTensor* tensor in [[graph placeholderTensors] reverseObjectEnumerator]) {
    MPSGraphShapedType* const type = [feeds objectForKey:tensor];
    if (type == nil) continue;
    require_match(
        "feeds", [placeholders count],
        { static_cast<metalhost::DataType>([type dataType]), metalhost::shape_from([type shape]) },
        metalhost::type_of(tensor));
    [placeholders addObject:tensor];
  }
  if ([placeholders count] != [feeds count]) {
    fail_assertion("MPSGraph.mm", "Error: a feed is not a placeholder of this graph");
  }
  return placeholders;
}

void report(MPSGraphExecutable* executable, MPSGraphCompilationCompletionHandler handler) {
  const std::optional<std::string> reason = metalhost::take_compilation_error();
  if (!reason) return handler(executable, nil);
  NSDictionary* const info =
      @{NSLocalizedDescriptionKey : [NSString stringWithUTF8String:reason->c_str()]};
  handler(executable, [NSError errorWithDomain:@"MPSGraphErrorDomain" code:1 userInfo:info]);
}

}  // namespace

namespace metalhost {

MPSGraphExecutable* compile_graph(MPSGraph* graph, MPSGraphTensorShapedTypeDictionary* feeds,
                                  NSArray<MPSGraphTensor*>* targets,
                                  MPSGraphCompilationDescriptor* descriptor) {
  if ([targets count] == 0) {
    fail_assertion("MPSGraph.mm", "Error: no target tensors or operations");
  }
  NSArray<MPSGraphTensor*>* const placeholders = feeds_in_order(graph, feeds);
  NSArray<MPSGraphTensor*>* const outputs = [[targets reverseObjectEnumerator] allObjects];
  MPSGraphExecutable* const executable = [[[MPSGraphExecutable alloc] init] autorelease];
  auto* const state = new ExecutableState;
  executable->host_state_ = state;
  state->feeds = Ref<NSArray*>([[placeholders copy] autorelease]);
  state->targets = Ref<NSArray*>(outputs);
  state->schedule = std::make_shared<Schedule>(values_of(outputs), values_of(placeholders));
  state->feed_types = value_types(state->schedule->feeds());
  state->target_types = value_types(state->schedule->targets());
  count_compilation();
  for (const auto& node : state_of<GraphState>(graph).nodes) node->op.infers_late = false;
  const MPSGraphCompilationCompletionHandler handler = [descriptor compilationCompletionHandler];
  if (handler != nil) report(executable, handler);
  return executable;
}

}  // namespace metalhost

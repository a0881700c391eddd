// Queues, errors, memory and object counts.
#include <atomic>
#include <chrono>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <thread>

#include "running.h"

using selftest::floats;
using selftest::is_close;
using selftest::numbers;
using selftest::Pool;

namespace {

/// y = x * x + x and z = x + 1 of four floats, and the buffers of one run.
struct Program {
  Program() {
    const Pool pool;
    MPSGraph* const graph = [[[MPSGraph alloc] init] autorelease];
    MPSGraphTensor* const x = [graph placeholderWithShape:@[ @4 ]
                                                 dataType:MPSDataTypeFloat32
                                                     name:nil];
    MPSGraphTensor* const w = [graph placeholderWithShape:@[ @1 ]
                                                 dataType:MPSDataTypeFloat32
                                                     name:nil];
    MPSGraphTensor* const square = [graph squareWithTensor:x name:nil];
    MPSGraphTensor* const y = [graph additionWithPrimaryTensor:square secondaryTensor:x name:nil];
    MPSGraphTensor* const z = [graph additionWithPrimaryTensor:x secondaryTensor:w name:nil];
    MPSGraphShapedType* const four =
        [[[MPSGraphShapedType alloc] initWithShape:@[ @4 ]
                                          dataType:MPSDataTypeFloat32] autorelease];
    MPSGraphShapedType* const one =
        [[[MPSGraphShapedType alloc] initWithShape:@[ @1 ]
                                          dataType:MPSDataTypeFloat32] autorelease];
    executable = [[graph compileWithDevice:[MPSGraphDevice deviceWithMTLDevice:selftest::device()]
                                     feeds:@{x : four, w : one}
                             targetTensors:@[ y, z ]
                          targetOperations:nil
                     compilationDescriptor:nil] retain];
    input = buffer({1, 2, 3, 4});
    weight = buffer({1});
    y_buffer = buffer({-1, -1, -1, -1});
    z_buffer = buffer({-1, -1, -1, -1});
    feeds_are_reversed = [[executable feedTensors] objectAtIndex:0] == w &&
                         [[executable feedTensors] objectAtIndex:1] == x;
    targets_are_reversed = [[executable targetTensors] objectAtIndex:0] == z &&
                           [[executable targetTensors] objectAtIndex:1] == y;
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    [executable release];
    for (id<MTLBuffer> each : {input, weight, y_buffer, z_buffer}) [each release];
  }

  static id<MTLBuffer> buffer(const std::vector<float>& values) {
    return [selftest::device() newBufferWithBytes:values.data()
                                           length:values.size() * sizeof(float)
                                          options:MTLResourceStorageModeShared];
  }
  static MPSGraphTensorData* data(id<MTLBuffer> buffer) {
    return [[[MPSGraphTensorData alloc]
        initWithMTLBuffer:buffer
                    shape:@[ [NSNumber numberWithUnsignedLong:[buffer length] / sizeof(float)] ]
                 dataType:MPSDataTypeFloat32] autorelease];
  }
  void encode(MPSCommandBuffer* commands) const {
    [executable encodeToCommandBuffer:commands
                          inputsArray:@[ data(weight), data(input) ]
                         resultsArray:@[ data(z_buffer), data(y_buffer) ]
                  executionDescriptor:nil];
  }
  static bool holds(id<MTLBuffer> buffer, const std::vector<float>& values) {
    return std::memcmp([buffer contents], values.data(), values.size() * sizeof(float)) == 0;
  }

  MPSGraphExecutable* executable;
  id<MTLBuffer> input, weight, y_buffer, z_buffer;
  bool feeds_are_reversed, targets_are_reversed;
};

void test_order() {
  const Program program;
  CHECK(program.feeds_are_reversed);
  CHECK(program.targets_are_reversed);
}

void test_results_come_after_the_wait() {
  const Pool pool;
  const Program program;
  id<MTLCommandQueue> const queue = [[selftest::device() newCommandQueue] autorelease];
  MPSCommandBuffer* const commands = [MPSCommandBuffer commandBufferFromCommandQueue:queue];
  id<MTLCommandBuffer> const first = [commands rootCommandBuffer];
  program.encode(commands);
  CHECK([commands rootCommandBuffer] != first);  // the framework split the work
  metalhost_hold(1);
  [commands commit];
  CHECK([commands status] == MTLCommandBufferStatusCommitted);
  CHECK(Program::holds(program.y_buffer, {-1, -1, -1, -1}));
  metalhost_hold(0);
  [commands waitUntilCompleted];
  CHECK([commands status] == MTLCommandBufferStatusCompleted);
  CHECK([commands error] == nil);
  CHECK(Program::holds(program.y_buffer, {2, 6, 12, 20}));
  CHECK(Program::holds(program.z_buffer, {2, 3, 4, 5}));
}

void test_handlers_run_before_the_wait_ends() {
  const Pool pool;
  id<MTLCommandQueue> const queue = [[selftest::device() newCommandQueue] autorelease];
  id<MTLCommandBuffer> const commands = [queue commandBuffer];
  __block int calls = 0;
  [commands addScheduledHandler:^(id<MTLCommandBuffer>) {
    calls += 1;
  }];
  [commands addCompletedHandler:^(id<MTLCommandBuffer> done) {
    if ([done status] == MTLCommandBufferStatusCompleted) calls += 10;
  }];
  [commands commit];
  [commands waitUntilCompleted];
  CHECK(calls == 11);
}

// A queue hands out no more command buffers than it may; one that completes makes room.
void test_number_of_command_buffers() {
  const Pool pool;
  id<MTLCommandQueue> const queue =
      [[selftest::device() newCommandQueueWithMaxCommandBufferCount:2] autorelease];
  id<MTLCommandBuffer> const first = [queue commandBuffer];
  {
    const Pool dropped;
    [queue commandBuffer];  // never committed
  }
  id<MTLCommandBuffer> const second = [queue commandBuffer];
  metalhost_hold(1);
  [first commit];
  [second commit];
  std::atomic<bool> is_late = false;
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    is_late = true;
    metalhost_hold(0);
  });
  id<MTLCommandBuffer> const third = [queue commandBuffer];
  CHECK(is_late.load());
  release.join();
  [third commit];
  [third waitUntilCompleted];
  CHECK([first status] == MTLCommandBufferStatusCompleted);
}

void test_injected_error() {
  const Pool pool;
  const Program program;
  id<MTLCommandQueue> const queue = [[selftest::device() newCommandQueue] autorelease];
  const auto run = [&](id<MTLCommandQueue> on) {
    MPSCommandBuffer* const commands = [MPSCommandBuffer commandBufferFromCommandQueue:on];
    program.encode(commands);
    [commands commit];
    [commands waitUntilCompleted];
    return commands;
  };
  metalhost_fail_next_command_buffer_with_code("caused GPU hang", MTLCommandBufferErrorTimeout);
  MPSCommandBuffer* const failed = run(queue);
  CHECK([failed status] == MTLCommandBufferStatusError);
  CHECK([[failed error] code] == MTLCommandBufferErrorTimeout);
  CHECK([[[failed error] domain] isEqualToString:MTLCommandBufferErrorDomain]);
  CHECK([[[failed error] localizedDescription] isEqualToString:@"caused GPU hang"]);
  CHECK(Program::holds(program.y_buffer, {-1, -1, -1, -1}));
  MPSCommandBuffer* const ignored = run(queue);
  CHECK([[ignored error] code] == MTLCommandBufferErrorAccessRevoked);
  CHECK(Program::holds(program.y_buffer, {-1, -1, -1, -1}));
  MPSCommandBuffer* const good = run([[selftest::device() newCommandQueue] autorelease]);
  CHECK([good status] == MTLCommandBufferStatusCompleted);
  CHECK(Program::holds(program.y_buffer, {2, 6, 12, 20}));
}

void test_memory_limit() {
  const Pool pool;
  const Program program;
  id<MTLCommandQueue> const queue = [[selftest::device() newCommandQueue] autorelease];
  MPSCommandBuffer* const commands = [MPSCommandBuffer commandBufferFromCommandQueue:queue];
  program.encode(commands);
  const uint64_t allocated = metalhost_allocated_bytes();
  metalhost_limit_device_memory(allocated + 8);  // below one temporary
  CHECK([selftest::device() newBufferWithLength:4 options:0] == nil);
  [commands commit];
  [commands waitUntilCompleted];
  metalhost_limit_device_memory(0);
  CHECK([[commands error] code] == MTLCommandBufferErrorOutOfMemory);
  CHECK(Program::holds(program.y_buffer, {0, 0, 0, 0}));
  CHECK(metalhost_allocated_bytes() == allocated);
}

// A buffer that is an input and a result has no order between reader and writer.
void test_aliased_result() {
  const Pool pool;
  const Program program;
  id<MTLCommandQueue> const queue = [[selftest::device() newCommandQueue] autorelease];
  [program.executable
      runWithMTLCommandQueue:queue
                 inputsArray:@[ Program::data(program.weight), Program::data(program.input) ]
                resultsArray:@[ Program::data(program.z_buffer), Program::data(program.input) ]
         executionDescriptor:nil];
  CHECK(!Program::holds(program.input, {2, 6, 12, 20}));
}

void test_compilation_error() {
  const Pool pool;
  MPSGraph* const graph = [[[MPSGraph alloc] init] autorelease];
  MPSGraphTensor* const one = [graph constantWithScalar:1
                                                  shape:@[ @1 ]
                                               dataType:MPSDataTypeFloat32];
  MPSGraphCompilationDescriptor* const descriptor =
      [[[MPSGraphCompilationDescriptor alloc] init] autorelease];
  __block int calls = 0;
  [descriptor setCompilationCompletionHandler:^(MPSGraphExecutable*, NSError* error) {
    calls += [[error localizedDescription] isEqualToString:@"no space"] ? 10 : 1;
  }];
  for (int i = 0; i < 2; ++i) {
    if (i == 0) metalhost_fail_next_compilation("no space");
    [graph compileWithDevice:[MPSGraphDevice deviceWithMTLDevice:selftest::device()]
                        feeds:@{}
                targetTensors:@[ one ]
             targetOperations:nil
        compilationDescriptor:[[descriptor copy] autorelease]];
  }
  CHECK(calls == 11);
}

void test_device() {
  id<MTLDevice> const device = selftest::device();
  CHECK([device supportsFamily:MTLGPUFamilyApple7]);
  CHECK(![device supportsFamily:MTLGPUFamilyApple9]);
  metalhost_set_device_absent(1);
  CHECK(MTLCreateSystemDefaultDevice() == nil);
  metalhost_set_device_absent(0);
  id<MTLBuffer> const buffer = [device newBufferWithLength:3 options:0];
  CHECK(static_cast<uint8_t*>([buffer contents])[2] == 0xa5);
  CHECK([buffer allocatedSize] == 16384);
  [buffer release];
  CHECK([device newBufferWithLength:[device maxBufferLength] + 1 options:0] == nil);
}

sigjmp_buf after_fault;
void on_fault(int) { siglongjmp(after_fault, 1); }

// Reading a dead buffer faults at once.
void test_released_buffer() {
  id<MTLBuffer> const buffer = [selftest::device() newBufferWithLength:64 options:0];
  volatile char* const contents = static_cast<volatile char*>([buffer contents]);
  contents[0] = 1;
  [buffer release];
  struct sigaction action = {};
  struct sigaction previous = {};
  action.sa_handler = on_fault;
  sigaction(SIGSEGV, &action, &previous);
  bool faulted = true;
  if (sigsetjmp(after_fault, 1) == 0) {
    contents[0] = 2;
    faulted = false;
  }
  sigaction(SIGSEGV, &previous, nullptr);
  CHECK(faulted);
}

void test_borrowed_buffer() {
  alignas(4096) static char bytes[4096];
  __block int calls = 0;
  id<MTLBuffer> const buffer =
      [selftest::device() newBufferWithBytesNoCopy:bytes
                                            length:sizeof bytes
                                           options:0
                                       deallocator:^(void* pointer, NSUInteger length) {
                                         if (pointer == bytes && length == sizeof bytes) ++calls;
                                       }];
  CHECK([buffer contents] == bytes);
  CHECK(calls == 0);
  [buffer release];
  CHECK(calls == 1);
}

}  // namespace

int main() {
  selftest::device();
  void (*const tests[])() = {test_order,
                             test_results_come_after_the_wait,
                             test_handlers_run_before_the_wait_ends,
                             test_number_of_command_buffers,
                             test_injected_error,
                             test_memory_limit,
                             test_aliased_result,
                             test_compilation_error,
                             test_device,
                             test_released_buffer,
                             test_borrowed_buffer};
  for (const auto test : tests) {
    {
      const Pool pool;
      test();
    }
    CHECK(metalhost_live_objects() == 0);
    CHECK(metalhost_allocated_bytes() == 0);
  }
  return selftest::failures() == 0 ? 0 : 1;
}

#include "running.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace selftest {
namespace {

NSUInteger bytes_of(MPSGraphTensor* tensor) {
  NSUInteger bytes = (static_cast<uint32_t>([tensor dataType]) & 0xffff) >> 3;
  for (NSNumber* length in [tensor shape]) bytes *= [length unsignedIntegerValue];
  return bytes;
}

}  // namespace

std::vector<Data> run(const std::vector<Data>& inputs, Builder builder) {
  const Pool pool;
  MPSGraph* const graph = [[[MPSGraph alloc] init] autorelease];
  NSMutableArray<MPSGraphTensor*>* const placeholders = [NSMutableArray array];
  NSMutableDictionary* const feeds = [NSMutableDictionary dictionary];
  for (const Data& input : inputs) {
    MPSGraphTensor* const tensor = [graph placeholderWithShape:numbers(input.shape)
                                                      dataType:input.type
                                                          name:nil];
    MPSGraphShapedType* const type =
        [[[MPSGraphShapedType alloc] initWithShape:numbers(input.shape)
                                          dataType:input.type] autorelease];
    [placeholders addObject:tensor];
    [feeds setObject:type forKey:tensor];
  }
  NSArray<MPSGraphTensor*>* const targets = builder(graph, placeholders);
  MPSGraphExecutable* const executable =
      [graph compileWithDevice:[MPSGraphDevice deviceWithMTLDevice:device()]
                          feeds:feeds
                  targetTensors:targets
               targetOperations:nil
          compilationDescriptor:nil];
  NSMutableArray<MPSGraphTensorData*>* const fed = [NSMutableArray array];
  for (MPSGraphTensor* tensor in [executable feedTensors]) {
    const Data& input = inputs[[placeholders indexOfObjectIdenticalTo:tensor]];
    id<MTLBuffer> const buffer =
        [[device() newBufferWithBytes:input.bytes.data()
                               length:input.bytes.size()
                              options:MTLResourceStorageModeShared] autorelease];
    [fed addObject:[[[MPSGraphTensorData alloc] initWithMTLBuffer:buffer
                                                            shape:[tensor shape]
                                                         dataType:[tensor dataType]] autorelease]];
  }
  std::vector<id<MTLBuffer>> buffers(static_cast<size_t>([targets count]), nil);
  NSMutableArray<MPSGraphTensorData*>* const results = [NSMutableArray array];
  for (MPSGraphTensor* tensor in [executable targetTensors]) {
    id<MTLBuffer> const buffer =
        [[device() newBufferWithLength:bytes_of(tensor)
                               options:MTLResourceStorageModeShared] autorelease];
    buffers[[targets indexOfObjectIdenticalTo:tensor]] = buffer;
    // A rank-0 result is bound as a vector of one element by reshaping in the graph.
    [results
        addObject:[[[MPSGraphTensorData alloc] initWithMTLBuffer:buffer
                                                           shape:[tensor shape]
                                                        dataType:[tensor dataType]] autorelease]];
  }
  id<MTLCommandQueue> const queue = [[device() newCommandQueue] autorelease];
  MPSCommandBuffer* const commands = [MPSCommandBuffer commandBufferFromCommandQueue:queue];
  [executable encodeToCommandBuffer:commands
                        inputsArray:fed
                       resultsArray:results
                executionDescriptor:nil];
  [commands commit];
  [commands waitUntilCompleted];
  CHECK([commands status] == MTLCommandBufferStatusCompleted);
  std::vector<Data> outputs;
  for (size_t i = 0; i < buffers.size(); ++i) {
    MPSGraphTensor* const tensor = [targets objectAtIndex:i];
    Data data{[tensor dataType], {}, {}};
    for (NSNumber* length in [tensor shape]) data.shape.push_back([length longLongValue]);
    const auto* bytes = static_cast<const uint8_t*>([buffers[i] contents]);
    data.bytes.assign(bytes, bytes + bytes_of(tensor));
    outputs.push_back(std::move(data));
  }
  return outputs;
}

bool aborts_with(const char* text, void (^attempt)()) {
  int ends[2];
  if (pipe(ends) != 0) return false;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    attempt();
    _exit(0);
  }
  close(ends[1]);
  std::string printed;
  char chunk[512];
  for (ssize_t count = 0; (count = read(ends[0], chunk, sizeof chunk)) > 0;) {
    printed.append(chunk, static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  const bool aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
  if (aborted && printed.find(text) != std::string::npos) return true;
  std::fprintf(stderr, "expected an abort with '%s', found status %d and '%s'\n", text, status,
               printed.c_str());
  return false;
}

bool is_close(const Data& found, const std::vector<float>& expected, float tolerance) {
  const std::vector<float> values = values_of<float>(found);
  bool is_equal = values.size() == expected.size();
  for (size_t i = 0; is_equal && i < values.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(values[i])) continue;
    if (values[i] == expected[i]) continue;
    is_equal = std::fabs(values[i] - expected[i]) <= tolerance;
  }
  if (is_equal) return true;
  std::fprintf(stderr, "found:");
  for (const float value : values) std::fprintf(stderr, " %.9g", static_cast<double>(value));
  std::fprintf(stderr, "\nexpected:");
  for (const float value : expected) std::fprintf(stderr, " %.9g", static_cast<double>(value));
  std::fprintf(stderr, "\n");
  return false;
}

}  // namespace selftest

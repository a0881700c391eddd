// Builds a graph from blocks, runs it on the double, and compares.
#pragma once

#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "metalhost.h"

namespace selftest {

/// Failures so far; what main() returns is whether there were any.
inline int& failures() {
  static int count = 0;
  return count;
}

inline void check(bool condition, const char* what, const char* file, int line) {
  if (condition) return;
  ++failures();
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what);
}
#define CHECK(condition) selftest::check((condition), #condition, __FILE__, __LINE__)

/// RAII, since @autoreleasepool is not drained when an exception leaves it.
class Pool {
 public:
  Pool() : pool_([[NSAutoreleasePool alloc] init]) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() { [pool_ drain]; }

 private:
  NSAutoreleasePool* pool_;
};

/// Bytes with a type, as fed and as read back.
struct Data {
  MPSDataType type;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
};

template <class T>
Data data_of(MPSDataType type, std::vector<int64_t> shape, const std::vector<T>& values) {
  Data data{type, std::move(shape), std::vector<uint8_t>(values.size() * sizeof(T))};
  std::memcpy(data.bytes.data(), values.data(), data.bytes.size());
  return data;
}

inline Data floats(std::vector<int64_t> shape, const std::vector<float>& values) {
  return data_of(MPSDataTypeFloat32, std::move(shape), values);
}
inline Data ints(std::vector<int64_t> shape, const std::vector<int32_t>& values) {
  return data_of(MPSDataTypeInt32, std::move(shape), values);
}
inline Data bools(std::vector<int64_t> shape, const std::vector<uint8_t>& values) {
  return data_of(MPSDataTypeBool, std::move(shape), values);
}

template <class T>
std::vector<T> values_of(const Data& data) {
  std::vector<T> values(data.bytes.size() / sizeof(T));
  std::memcpy(values.data(), data.bytes.data(), data.bytes.size());
  return values;
}

inline NSArray<NSNumber*>* numbers(const std::vector<int64_t>& list) {
  NSMutableArray<NSNumber*>* const result = [NSMutableArray array];
  for (const int64_t value : list) [result addObject:[NSNumber numberWithLongLong:value]];
  return result;
}

inline id<MTLDevice> device() {
  static id<MTLDevice> const shared = MTLCreateSystemDefaultDevice();
  return shared;
}

using Builder = NSArray<MPSGraphTensor*>* (^)(MPSGraph* graph, NSArray<MPSGraphTensor*>* inputs);

/// Compiles what the builder makes of placeholders for `inputs`, runs it once and reads the
/// results.
std::vector<Data> run(const std::vector<Data>& inputs, Builder builder);

/// True if `attempt` ends its process by abort() with `text` in what it prints.
bool aborts_with(const char* text, void (^attempt)());

/// Equal, or both NaN; floats within `tolerance`.
bool is_close(const Data& found, const std::vector<float>& expected, float tolerance = 0);

}  // namespace selftest

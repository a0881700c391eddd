// What a test may ask of the double of Metal; plain C, no Objective-C types.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Python's tests call them through ctypes.
#pragma GCC visibility push(default)

/// The next command buffer that starts ends with MTLCommandBufferStatusError and an error of this
/// text; its results stay as they were. Later buffers of that queue are ignored, as by macOS.
void metalhost_fail_next_command_buffer(const char* reason);
/// The same with a code of MTLCommandBufferError.
void metalhost_fail_next_command_buffer_with_code(const char* reason, long code);

/// The completion handler of the next compilation gets an error of this text.
void metalhost_fail_next_compilation(const char* reason);

/// While held, committed work does not start.
void metalhost_hold(int held);

/// Bytes that buffers and the temporaries of a running graph may take together; 0 is no limit.
/// A buffer above it is nil, a graph above it fails with MTLCommandBufferErrorOutOfMemory.
void metalhost_limit_device_memory(uint64_t bytes);

/// Largest tensor that a graph may hold; 0 restores the framework's limits (2^31 elements,
/// 2^32 bytes).
void metalhost_limit_tensor(uint64_t elements, uint64_t bytes);

/// Makes supportsFamily: answer so for one value of MTLGPUFamily.
void metalhost_set_family(long family, int supported);

/// While absent, MTLCreateSystemDefaultDevice returns nil.
void metalhost_set_device_absent(int absent);

/// Graphs compiled, packages loaded, executables encoded and buffers made since the process began.
long metalhost_num_compilations(void);
long metalhost_num_encodings(void);
long metalhost_num_buffers_made(void);
long metalhost_num_package_loads(void);

/// Loaded packages take their feeds and targets in the reverse order.
void metalhost_rearrange_packages(int rearranged);

/// Objects that are alive.
typedef struct {
  long buffers;
  long command_queues;
  long command_buffers;
  long graphs;
  long tensors;
  long tensor_data;
  long executables;
  long others;
} MetalhostCounts;
MetalhostCounts metalhost_live_object_counts(void);
/// Their sum.
long metalhost_live_objects(void);
/// Bytes of the buffers that are alive.
uint64_t metalhost_allocated_bytes(void);
#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

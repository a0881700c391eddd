// What the double keeps for the whole process: the counts of live objects, limits, injected errors.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

namespace metalhost {

enum class Kind {
  kBuffer,
  kCommandQueue,
  kCommandBuffer,
  kGraph,
  kTensor,
  kTensorData,
  kExecutable,
  kOther,
};
constexpr int kNumKinds = 8;

/// Counts its owner as alive.
class Counted {
 public:
  explicit Counted(Kind kind);
  Counted(const Counted& other);
  Counted& operator=(const Counted&) = delete;
  ~Counted();

 private:
  Kind kind_;
};

struct TensorLimits {
  uint64_t elements;
  uint64_t bytes;
};
TensorLimits tensor_limits();

/// Reserves device memory; false above the limit.
bool reserve_bytes(uint64_t bytes);
void release_bytes(uint64_t bytes);
uint64_t allocated_bytes();
/// 0: none.
uint64_t device_memory_limit();

struct InjectedError {
  std::string reason;
  long code;
};
/// The error that the next command buffer shall end with, once.
std::optional<InjectedError> take_injected_error();

/// What the next compilation shall report, once.
std::optional<std::string> take_compilation_error();

/// Counts of what was done since the process began.
void count_compilation();
void count_package_load();
void count_encoding();
bool rearranges_packages();

bool is_held();
bool is_device_absent();
bool supports_family(long family);

}  // namespace metalhost

#include "process.h"

#include <map>
#include <mutex>
#include <utility>

#include "metalhost.h"

namespace metalhost {
namespace {

constexpr uint64_t kMaxElements = uint64_t{1} << 31;
constexpr uint64_t kMaxBytes = uint64_t{1} << 32;
constexpr long kInternalError = 1;  // MTLCommandBufferErrorInternal

std::atomic<long> live[kNumKinds];
std::atomic<uint64_t> allocated;
std::atomic<uint64_t> memory_limit;
std::atomic<uint64_t> max_elements = kMaxElements;
std::atomic<uint64_t> max_bytes = kMaxBytes;
std::atomic<long> compilations;
std::atomic<long> package_loads;
std::atomic<long> encodings;
std::atomic<long> buffers_made;
std::atomic<bool> rearranging;
std::atomic<bool> held;
std::atomic<bool> device_absent;

std::mutex mutex;  // guards what follows
std::optional<InjectedError> injected_error;
std::optional<std::string> compilation_error;

// An M1: Apple7 and what it includes.
std::map<long, bool>& families() {
  static std::map<long, bool> known = {{1001, true}, {1002, true}, {1003, true}, {1004, true},
                                       {1005, true}, {1006, true}, {1007, true}, {2001, true},
                                       {2002, true}, {3001, true}, {3002, true}, {3003, true},
                                       {5001, true}};
  return known;
}

std::atomic<long>& count_of(Kind kind) { return live[static_cast<int>(kind)]; }

}  // namespace

Counted::Counted(Kind kind) : kind_(kind) {
  count_of(kind_).fetch_add(1);
  if (kind_ == Kind::kBuffer) buffers_made.fetch_add(1);
}
Counted::Counted(const Counted& other) : Counted(other.kind_) {}
Counted::~Counted() { count_of(kind_).fetch_sub(1); }

TensorLimits tensor_limits() { return {max_elements.load(), max_bytes.load()}; }

bool reserve_bytes(uint64_t bytes) {
  const uint64_t limit = memory_limit.load();
  const uint64_t after = allocated.fetch_add(bytes) + bytes;
  if (limit == 0 || after <= limit) return true;
  allocated.fetch_sub(bytes);
  return false;
}

void release_bytes(uint64_t bytes) { allocated.fetch_sub(bytes); }
uint64_t allocated_bytes() { return allocated.load(); }
uint64_t device_memory_limit() { return memory_limit.load(); }

std::optional<InjectedError> take_injected_error() {
  const std::lock_guard lock(mutex);
  return std::exchange(injected_error, std::nullopt);
}

std::optional<std::string> take_compilation_error() {
  const std::lock_guard lock(mutex);
  return std::exchange(compilation_error, std::nullopt);
}

void count_compilation() { compilations.fetch_add(1); }
void count_package_load() { package_loads.fetch_add(1); }
void count_encoding() { encodings.fetch_add(1); }
bool rearranges_packages() { return rearranging.load(); }

bool is_held() { return held.load(); }
bool is_device_absent() { return device_absent.load(); }

bool supports_family(long family) {
  const std::lock_guard lock(mutex);
  const auto found = families().find(family);
  return found != families().end() && found->second;
}

}  // namespace metalhost

extern "C" {

void metalhost_fail_next_command_buffer(const char* reason) {
  metalhost_fail_next_command_buffer_with_code(reason, metalhost::kInternalError);
}

void metalhost_fail_next_command_buffer_with_code(const char* reason, long code) {
  const std::lock_guard lock(metalhost::mutex);
  metalhost::injected_error = {reason, code};
}

void metalhost_fail_next_compilation(const char* reason) {
  const std::lock_guard lock(metalhost::mutex);
  metalhost::compilation_error = reason;
}

void metalhost_hold(int held) { metalhost::held.store(held != 0); }
void metalhost_limit_device_memory(uint64_t bytes) { metalhost::memory_limit.store(bytes); }

void metalhost_limit_tensor(uint64_t elements, uint64_t bytes) {
  metalhost::max_elements.store(elements == 0 ? metalhost::kMaxElements : elements);
  metalhost::max_bytes.store(bytes == 0 ? metalhost::kMaxBytes : bytes);
}

void metalhost_set_family(long family, int supported) {
  const std::lock_guard lock(metalhost::mutex);
  metalhost::families()[family] = supported != 0;
}

void metalhost_set_device_absent(int absent) { metalhost::device_absent.store(absent != 0); }

long metalhost_num_compilations(void) { return metalhost::compilations.load(); }
long metalhost_num_package_loads(void) { return metalhost::package_loads.load(); }
long metalhost_num_encodings(void) { return metalhost::encodings.load(); }
long metalhost_num_buffers_made(void) { return metalhost::buffers_made.load(); }
void metalhost_rearrange_packages(int rearranged) { metalhost::rearranging.store(rearranged != 0); }

MetalhostCounts metalhost_live_object_counts(void) {
  using metalhost::Kind;
  const auto count = [](Kind kind) { return metalhost::count_of(kind).load(); };
  return {count(Kind::kBuffer),     count(Kind::kCommandQueue), count(Kind::kCommandBuffer),
          count(Kind::kGraph),      count(Kind::kTensor),       count(Kind::kTensorData),
          count(Kind::kExecutable), count(Kind::kOther)};
}

long metalhost_live_objects(void) {
  long total = 0;
  for (const auto& count : metalhost::live) total += count.load();
  return total;
}

uint64_t metalhost_allocated_bytes(void) { return metalhost::allocated_bytes(); }
}

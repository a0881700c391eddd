// The team of threads that kernels share: one parallel loop, nothing else.
#pragma once

#include <cstdint>
#include <type_traits>

namespace lucid::cpu {

/// Non-owning reference to a callable `void(int64_t begin, int64_t end)`.
class RangeFn {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, RangeFn>)
      RangeFn(F&& body)  // NOLINT(google-explicit-constructor): call sites pass lambdas
      : object_(const_cast<void*>(static_cast<const void*>(&body))),
        call_([](void* object, int64_t begin, int64_t end) {
          (*static_cast<std::remove_reference_t<F>*>(object))(begin, end);
        }) {}
  void operator()(int64_t begin, int64_t end) const { call_(object_, begin, end); }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int64_t);
};

/// Calls body on ranges of at most `grain` indices that cover [0, count), on the team. Which
/// thread takes which range is not fixed; the ranges are (multiples of grain). `cost_ns` is the
/// estimated work of one index on one core: below about 20 us in all it runs on the caller.
/// Inside a parallel_for a nested call runs on the caller. The first exception is rethrown.
void parallel_for(int64_t count, int64_t grain, double cost_ns, RangeFn body);

/// Number of threads that parallel_for uses; at least 1.
int num_threads();
/// Throws UserError unless 1 <= count <= 1024. Takes effect at the next parallel_for.
void set_num_threads(int64_t count);

}  // namespace lucid::cpu

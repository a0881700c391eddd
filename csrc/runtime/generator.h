// Generator: seed and offset of the Philox counters that random operations draw.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "runtime/tensor/variable.h"

namespace lucid::runtime {

/// Counters drawn by a random node with that many output elements.
constexpr int64_t counters_of(int64_t num_elements) { return (num_elements + 3) / 4; }

class Generator {
 public:
  struct State {
    int64_t seed = 0;
    int64_t offset = 0;
  };

  explicit Generator(int64_t seed) : state_{seed, 0} {}

  State state() const;
  void set_state(State state);
  /// Advances by `count` counters and returns the state before.
  State draw(int64_t count);
  /// Takes back a draw whose run failed, unless somebody drew after it.
  void take_back(State before, int64_t count);

 private:
  mutable std::mutex mutex_;
  State state_;
};

using GeneratorRef = std::shared_ptr<Generator>;

/// The generator of functions that are given none.
const GeneratorRef& default_generator();

/// The operand of random operations: int64[2] with seed and offset.
Value to_value(Generator::State state);

}  // namespace lucid::runtime

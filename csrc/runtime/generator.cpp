#include "runtime/generator.h"

#include "backends/backend.h"

namespace lucid::runtime {

Generator::State Generator::state() const {
  const std::scoped_lock lock(mutex_);
  return state_;
}

void Generator::set_state(State state) {
  const std::scoped_lock lock(mutex_);
  state_ = state;
}

Generator::State Generator::draw(int64_t count) {
  const std::scoped_lock lock(mutex_);
  const State before = state_;
  state_.offset += count;
  return before;
}

void Generator::take_back(State before, int64_t count) {
  const std::scoped_lock lock(mutex_);
  const bool is_last = state_.seed == before.seed && state_.offset == before.offset + count;
  if (is_last) state_ = before;
}

const GeneratorRef& default_generator() {
  static const GeneratorRef instance = std::make_shared<Generator>(0x5eed);
  return instance;
}

Value to_value(Generator::State state) {
  Value value{.type = {DType::kInt64, Shape{2}}};
  value.buffer = backends::backend_for(Device::kCpu).allocate(value.type.size_bytes());
  auto* words = static_cast<int64_t*>(value.buffer->data());
  words[0] = state.seed;
  words[1] = state.offset;
  return value;
}

}  // namespace lucid::runtime

// Several threads that run one compiled step, eager operations and backwards at once.
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "runtime_testing.h"

namespace lucid {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): a test file
using compile::CompiledStep;
using runtime::Number;
using runtime::Recorder;
using runtime::Trace;

constexpr int kNumThreads = 4;
constexpr int kNumRounds = 50;

// Runs `body(thread)` on several threads that start together. Returns the number of exceptions.
int on_threads(const std::function<void(int)>& body) {
  std::atomic<int> num_ready{0};
  std::atomic<int> num_thrown{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kNumThreads; ++i) {
    threads.emplace_back([&, i] {
      num_ready.fetch_add(1);
      while (num_ready.load() < kNumThreads) std::this_thread::yield();
      try {
        body(i);
      } catch (const std::exception& error) {
        num_thrown.fetch_add(1);
        std::cerr << error.what() << '\n';
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return num_thrown.load();
}

Floats ramp(int count) {
  Floats elements;
  for (int i = 0; i < count; ++i) elements.push_back(static_cast<float>(i % 17) * 0.25f - 2);
  return elements;
}

struct Shared {
  TensorRef w = parameter(ramp(5000));
  TensorRef x = floats(ramp(5000));
  TensorRef counter = floats({0});
  runtime::GeneratorRef generator = std::make_shared<runtime::Generator>(1);
  std::shared_ptr<CompiledStep> step;
  std::vector<TensorRef> captures;

  explicit Shared(bool counts) {
    Trace trace;
    {
      Recorder recorder;
      const TensorRef proxy = recorder.argument(x);
      const TensorRef y = call("tanh", {call("mul", {proxy, w})});
      if (counts) counter->assign(call("add", {counter, Number{1.0}})->operand());
      call("uniform", {generator}, {ir::Ints{8}, DType::kFloat32, int64_t{0}});
      trace = recorder.finish({{sum(y)}});
    }
    for (const auto& capture : trace.captures) captures.push_back(capture.tensor);
    step = CompiledStep::make(std::move(trace), true, Device::kCpu);
  }

  TensorRef run() const { return step->run({.arguments = {{x}}, .captures = captures}).front(); }
};

}  // namespace

TEST(threads_run_one_step) {
  const Shared shared(false);
  const Floats expected = elements_of(shared.run());
  std::atomic<int> num_wrong{0};
  const int num_thrown = on_threads([&](int) {
    for (int round = 0; round < kNumRounds; ++round) {
      if (elements_of(shared.run()) != expected) num_wrong.fetch_add(1);
    }
  });
  CHECK_EQ(num_thrown, 0);
  CHECK_EQ(num_wrong.load(), 0);
  CHECK_EQ(shared.generator->state().offset, 2 * (1 + kNumThreads * kNumRounds));
}

TEST(threads_write_the_state_of_one_step) {
  const Shared shared(true);
  const int num_thrown = on_threads([&](int) {
    for (int round = 0; round < kNumRounds; ++round) shared.run();
  });
  CHECK_EQ(num_thrown, 0);
  // Two runs that overlap may read the same value: at least one round's worth counts.
  const float counted = elements_of(shared.counter).front();
  CHECK(counted >= kNumRounds && counted <= kNumThreads * kNumRounds);
}

TEST(threads_go_backward_with_seeds_of_their_own) {
  const Shared shared(false);
  const int num_thrown = on_threads([&](int thread) {
    const TensorRef mine = parameter({2});
    const TensorRef seed =
        tensor_of(DType::kFloat32, Shape{}, Floats{static_cast<float>(thread + 1)});
    for (int round = 0; round < kNumRounds; ++round) {
      // Gradients go to a leaf of this thread; the step's own are only asked for.
      const TensorRef loss = shared.run();
      runtime::grad({{loss}}, {{seed}}, {{shared.w}}, {}, false);
      backward(sum(call("mul", {mine, mine})));
    }
    if (grad_of(mine) != Floats{4.0f * kNumRounds}) throw std::runtime_error("wrong gradient");
  });
  CHECK_EQ(num_thrown, 0);
}

TEST(threads_fill_the_eager_cache) {
  const TensorRef x = floats(ramp(5000));
  const Floats expected = elements_of(sum(call("exp", {call("neg", {x})})));
  const int num_thrown = on_threads([&](int thread) {
    for (int round = 0; round < kNumRounds; ++round) {
      const TensorRef own = floats(ramp(1 + (round * 7 + thread) % 40));
      call("tanh", {call("mul", {own, Number{0.5}})});
      const Floats found = elements_of(sum(call("exp", {call("neg", {x})})));
      if (found != expected) throw std::runtime_error("wrong sum");
    }
  });
  CHECK_EQ(num_thrown, 0);
}

TEST(threads_compile_steps) {
  const int num_thrown = on_threads([&](int thread) {
    for (int round = 0; round < 10; ++round) {
      const TensorRef w = parameter(ramp(1 + round));
      Trace trace;
      {
        Recorder recorder;
        trace = recorder.finish({{sum(call("mul", {w, w}))}});
      }
      const std::vector<TensorRef> captures = {w};
      const auto step = CompiledStep::make(std::move(trace), true, Device::kCpu);
      backward(step->run({.arguments = {}, .captures = captures}).front());
      if (!w->has_grad())
        throw std::runtime_error("no gradient on thread " + std::to_string(thread));
    }
  });
  CHECK_EQ(num_thrown, 0);
}

}  // namespace lucid

// Work in flight: asynchrony, errors of the device, lifetimes. Most of it needs the test double,
// which can be told to wait and to fail.
#include "metal_testing.h"

#if defined(LUCID_METAL_HOST)
#include <atomic>
#include <thread>

#include "metalhost.h"

namespace lucid::testing {
namespace {

backends::Backend& metal() { return backends::backend_for(Device::kMetal); }

/// y = x + x as an executable for `size` elements.
backends::ExecutableRef twice(int64_t size) {
  ir::Graph graph;
  const ir::ValueId x = graph.add_input(ir::Role::kArgument, {DType::kFloat32, Shape{size}});
  ir::Node add;
  add.op = &ops::get("add");
  add.inputs = {x, x};
  const auto y = graph.add_node(std::move(add), {{graph.type(x)}});
  ir::Node copy;
  copy.op = &ops::get("detach");
  copy.inputs = {y[0]};
  graph.set_outputs(graph.add_node(std::move(copy), {{graph.type(x)}}));
  return metal().compile(graph);
}

BufferRef filled(int64_t size, float value) {
  BufferRef buffer = metal().allocate(size * 4);
  std::fill_n(static_cast<float*>(buffer->data()), size, value);
  return buffer;
}

float first_of(const BufferRef& buffer) { return *static_cast<const float*>(buffer->data()); }

BufferRef run(const backends::ExecutableRef& executable, const BufferRef& input) {
  return executable->run({&input, 1}, nullptr).front();
}

/// Lets held work go, at the latest at its end.
struct Hold {
  Hold() { metalhost_hold(1); }
  ~Hold() { metalhost_hold(0); }
};

// If run() waited, it would hang here.
TEST(run_returns_before_the_work_is_done) {
  const auto executable = twice(4);
  BufferRef output;
  {
    const Hold hold;
    output = run(executable, filled(4, 1.5f));
    output = run(executable, output);
  }
  CHECK_EQ(first_of(output), 6.0f);
}

// Places that sort made are indices without a check, so the run is not waited for.
TEST(indices_that_operations_make_need_no_wait) {
  const ir::ValueType type{DType::kFloat32, Shape{3}};
  ir::Graph graph;
  ir::Node sort;
  sort.op = &ops::get("sort");
  sort.inputs = {graph.add_input(ir::Role::kArgument, type)};
  sort.attrs = {int64_t{0}, false};
  const auto sorted = graph.add_node(std::move(sort), {{type, {DType::kInt64, Shape{3}}}});
  ir::Node gather;
  gather.op = &ops::get("gather");
  gather.inputs = {sorted[0], sorted[1]};
  gather.attrs = {int64_t{0}};
  graph.set_outputs(graph.add_node(std::move(gather), {{type}}));
  const auto executable = metal().compile(graph);
  const BufferRef input = filled(3, 0.0f);
  const float values[3] = {3.0f, 1.0f, 2.0f};
  std::memcpy(input->data(), values, sizeof(values));
  BufferRef output;
  {
    const Hold hold;
    output = run(executable, input);
  }
  const auto* found = static_cast<const float*>(output->data());  // [1, 2, 3] at places 1, 2, 0
  CHECK_EQ(found[0], 2.0f);
  CHECK_EQ(found[1], 3.0f);
  CHECK_EQ(found[2], 1.0f);
}

TEST(buffers_live_until_the_work_is_done) {
  const auto executable = twice(64);
  BufferRef output;
  {
    const Hold hold;
    BufferRef middle = run(executable, filled(64, 1.0f));
    output = run(executable, middle);
    middle.reset();
    // Fresh buffers must not be those that the held work uses.
    for (int i = 0; i < 8; ++i) filled(64, -1.0f);
  }
  CHECK_EQ(first_of(output), 4.0f);
}

TEST(an_executable_lives_until_its_work_is_done) {
  BufferRef output;
  {
    const Hold hold;
    output = run(twice(8), filled(8, 2.0f));
  }
  CHECK_EQ(first_of(output), 4.0f);
}

TEST(an_error_of_the_device_belongs_to_its_results) {
  const auto executable = twice(4);
  const BufferRef input = filled(4, 1.0f);
  metalhost_fail_next_command_buffer("out of luck");
  const BufferRef spoiled = run(executable, input);
  CHECK_THROWS(spoiled->data(), Error, "metal: the device failed: out of luck");
  CHECK_THROWS(spoiled->data(), Error, "out of luck");  // as often as it is read
  CHECK_THROWS(run(executable, spoiled), Error, "out of luck");
  CHECK_EQ(first_of(run(executable, input)), 2.0f);
  metal().synchronize();
}

TEST(an_error_spreads_to_what_was_computed_from_it) {
  const auto executable = twice(4);
  BufferRef output;
  {
    const Hold hold;
    metalhost_fail_next_command_buffer("out of luck");
    const BufferRef spoiled = run(executable, filled(4, 1.0f));
    output = run(executable, spoiled);
  }
  CHECK_THROWS(output->data(), Error, "out of luck");
  CHECK_EQ(first_of(run(executable, filled(4, 3.0f))), 6.0f);
  metal().synchronize();
}

// The queue is renewed for what is submitted after the failure was seen.
TEST(runs_in_flight_behind_a_failed_one_tell_its_reason) {
  const auto executable = twice(4);
  metal().synchronize();
  BufferRef lost;
  {
    const Hold hold;
    metalhost_fail_next_command_buffer("out of luck");
    run(executable, filled(4, 1.0f));
    lost = run(executable, filled(4, 2.0f));  // reads nothing of the failed run
  }
  CHECK_THROWS(
      lost->data(), Error,
      "metal: the device failed: it ignored a run behind one that failed: out of luck; the "
      "results of that run are lost");
  CHECK_EQ(first_of(run(executable, filled(4, 3.0f))), 6.0f);
  CHECK_THROWS(metal().synchronize(), Error, "metal: the device failed: out of luck");
  metal().synchronize();
}

TEST(synchronize_reports_an_error_once) {
  metalhost_fail_next_command_buffer("out of luck");
  run(twice(4), filled(4, 1.0f));
  CHECK_THROWS(metal().synchronize(), Error, "out of luck");
  metal().synchronize();
}

TEST(no_memory_on_the_device_is_an_error_of_memory) {
  metalhost_fail_next_command_buffer_with_code("no memory", 8);
  const BufferRef spoiled = run(twice(4), filled(4, 1.0f));
  try {
    spoiled->data();
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kOutOfMemory);
  }
}

TEST(a_buffer_that_does_not_fit_is_refused_with_its_size) {
  metalhost_limit_device_memory(1 << 20);
  CHECK_THROWS(metal().allocate(8 << 20), Error, "out of memory: 8388608 bytes asked on metal");
  metalhost_limit_device_memory(0);
}

// More than that would hold memory without end where Python runs ahead.
TEST(work_in_flight_is_bounded) {
  constexpr int kMaxInFlight = 16;
  const auto executable = twice(4);
  metal().synchronize();
  std::atomic<int> num_submitted = 0;
  metalhost_hold(1);
  std::thread submitter([&] {
    for (int i = 0; i < 64; ++i) {
      run(executable, filled(4, 1.0f));
      ++num_submitted;
    }
  });
  while (num_submitted < kMaxInFlight) std::this_thread::yield();
  // Time enough for many more, if nothing held them back.
  for (int i = 0; i < 200000 && num_submitted == kMaxInFlight; ++i) std::this_thread::yield();
  CHECK_EQ(num_submitted.load(), kMaxInFlight);
  metalhost_hold(0);
  submitter.join();
  CHECK_EQ(num_submitted.load(), 64);
  metal().synchronize();
}

TEST(nothing_is_left_behind) {
  const auto executable = twice(4);
  const auto settle = [] {
    metal().synchronize();
    metal().empty_cache();
    return metalhost_live_object_counts();
  };
  const MetalhostCounts before = settle();
  for (int i = 0; i < 50; ++i) run(executable, filled(4, 1.0f));
  for (int i = 0; i < 5; ++i) run(twice(4 + i), filled(4 + i, 1.0f));
  const MetalhostCounts after = settle();
  CHECK_EQ(after.buffers, before.buffers);
  CHECK_EQ(after.tensor_data, before.tensor_data);
  CHECK_EQ(after.command_buffers, before.command_buffers);
  CHECK_EQ(after.graphs, before.graphs);
  CHECK_EQ(after.tensors, before.tensors);
  CHECK_EQ(after.executables, before.executables);
}

TEST(threads_may_submit_and_read) {
  const auto executable = twice(16);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const auto value = static_cast<float>(t * 100 + i);
        if (first_of(run(executable, filled(16, value))) != 2 * value) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace lucid::testing

#endif

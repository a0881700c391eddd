// Which outputs a plan lets a run write into the buffers of its inputs; what runs last for that;
// who waits for such a run.
#include <functional>
#include <string>
#include <vector>

#include "backends/cpu/sink.h"
#include "graph_testing.h"
#include "planner/plan.h"
#include "runtime_testing.h"

namespace lucid {
namespace {

/// Pairs of output and input that the plan takes, as "0<1 2<3".
std::string donations(std::string_view text, const std::vector<planner::Given>& given,
                      const planner::MayOverwrite& may_overwrite = {}) {
  const ir::Graph graph = testing::parse_graph(text);
  const std::vector<int64_t> scratch(graph.nodes().size(), 0);
  std::string found;
  for (const planner::Donation& taken :
       planner::plan(graph, scratch, may_overwrite, given).donations) {
    CHECK_EQ(graph.producer(graph.outputs()[taken.output]), static_cast<int>(taken.node));
    found += (found.empty() ? "" : " ") + std::to_string(taken.output) + '<' +
             std::to_string(taken.input);
  }
  return found;
}

constexpr std::string_view kUpdate = R"(
graph {
  %0 = input parameter float32[16]
  %1 = input argument float32[16]
  %2 = tanh(%1) : float32[16]
  %3 = sub(%0, %2) : float32[16]
  return %3
}
)";

}  // namespace

TEST(plan_gives_an_input_that_dies_where_the_output_is_written) {
  CHECK_EQ(donations(kUpdate, {{0, 0}}), std::string("0<0"));
  CHECK_EQ(donations(kUpdate, {}), std::string());
}

TEST(plan_gives_an_input_that_died_before) {
  CHECK_EQ(donations(kUpdate, {{0, 1}}), std::string("0<1"));
}

TEST(plan_gives_nothing_that_is_read_later) {
  CHECK_EQ(donations(R"(
graph {
  %0 = input parameter float32[16]
  %1 = neg(%0) : float32[16]
  %2 = sum(%0) {dims=[0], keepdim=false} : float32[]
  return %1, %2
}
)",
                     {{0, 0}}),
           std::string());
  // Also not through an alias.
  CHECK_EQ(donations(R"(
graph {
  %0 = input parameter float32[16]
  %1 = reshape(%0) {shape=[4, 4]} : float32[4, 4]
  %2 = neg(%0) : float32[16]
  %3 = sum(%1) {dims=[0, 1], keepdim=false} : float32[]
  return %2, %3
}
)",
                     {{0, 0}}),
           std::string());
}

TEST(plan_gives_an_input_that_is_read_as_an_alias) {
  CHECK_EQ(donations(R"(
graph {
  %0 = input parameter float32[16]
  %1 = reshape(%0) {shape=[4, 4]} : float32[4, 4]
  %2 = neg(%1) : float32[4, 4]
  %3 = reshape(%2) {shape=[16]} : float32[16]
  return %2, %3
}
)",
                     {{0, 0}}),
           std::string("0<0"));
  // Two reads with other places of the elements.
  CHECK_EQ(donations(R"(
graph {
  %0 = input parameter float32[4, 1]
  %1 = reshape(%0) {shape=[1, 4]} : float32[1, 4]
  %2 = mul(%0, %1) : float32[4, 4]
  %3 = sum(%2) {dims=[1], keepdim=true} : float32[4, 1]
  %4 = add(%3, %0) : float32[4, 1]
  return %4
}
)",
                     {{0, 0}}),
           std::string("0<0"));
}

TEST(plan_gives_nothing_that_is_returned) {
  CHECK_EQ(donations(R"(
graph {
  %0 = input parameter float32[16]
  %1 = neg(%0) : float32[16]
  return %1, %0
}
)",
                     {{0, 0}}),
           std::string());
  CHECK_EQ(donations(R"(
graph {
  %0 = input parameter float32[16]
  %1 = reshape(%0) {shape=[4, 4]} : float32[4, 4]
  %2 = neg(%0) : float32[16]
  return %2, %1
}
)",
                     {{0, 0}}),
           std::string());
}

TEST(plan_gives_nothing_to_an_output_that_is_copied) {
  // The second output is copied from the first; an input goes to nobody.
  CHECK_EQ(donations(R"(
graph {
  %0 = input parameter float32[16]
  %1 = input parameter float32[16]
  %2 = add(%0, %1) : float32[16]
  return %2, %2, %0
}
)",
                     {{1, 1}, {2, 0}, {2, 1}}),
           std::string());
}

TEST(plan_gives_each_input_and_each_output_once) {
  constexpr std::string_view kTwo = R"(
graph {
  %0 = input parameter float32[16]
  %1 = input parameter float32[16]
  %2 = add(%0, %1) : float32[16]
  %3 = mul(%2, %2) : float32[16]
  return %2, %3
}
)";
  CHECK_EQ(donations(kTwo, {{0, 0}, {1, 0}}), std::string("0<0"));
  CHECK_EQ(donations(kTwo, {{0, 0}, {0, 1}}), std::string("0<0"));
  CHECK_EQ(donations(kTwo, {{1, 1}, {0, 0}}), std::string("1<1 0<0"));
}

TEST(plan_gives_no_input_of_another_size_or_dtype_and_none_that_must_not_be_overwritten) {
  CHECK_EQ(donations(R"(
graph {
  %0 = input parameter float32[16]
  %1 = input parameter float32[]
  %2 = eq(%0, %1) : bool[16]
  %3 = add(%0, %1) : float32[16]
  return %2, %3
}
)",
                     {{0, 0}, {1, 1}}),
           std::string());
  CHECK_EQ(donations(R"(
graph {
  %0 = input parameter float32[16]
  %1 = cast(%0) {dtype=int32} : int32[16]
  return %1
}
)",
                     {{0, 0}}),
           std::string());
  const auto nothing = [](size_t, size_t, size_t) { return false; };
  CHECK_EQ(donations(kUpdate, {{0, 0}}, nothing), std::string());
  CHECK_EQ(donations(kUpdate, {{0, 1}}, nothing), std::string("0<1"));  // dead by then
}

namespace {

std::string sunk(std::string_view text, const std::vector<planner::Given>& given) {
  return ir::to_string(cpu::sink_updates(testing::parse_graph(text), given));
}

// %2 and %3 only make the given output; what follows them can fail.
constexpr std::string_view kStatistics = R"(
graph {
  %0 = input captured float32[4]
  %1 = input argument float32[2, 4]
  %2 = sum(%1) {dims=[0], keepdim=false} : float32[4]
  %3 = mul(%2, %2) : float32[4]
  %4 = add(%0, %3) : float32[4]
  %5 = neg(%1) : float32[2, 4]
  %6 = sum(%5) {dims=[0, 1], keepdim=false} : float32[]
  return %6, %4
}
)";

}  // namespace

TEST(updates_of_given_buffers_sink) {
  CHECK_EQ(sunk(kStatistics, {{1, 0}}), std::string(R"(graph {
  %0 = input captured float32[4]
  %1 = input argument float32[2, 4]
  %2 = sum(%1) {dims=[0], keepdim=false} : float32[4]
  %3 = neg(%1) : float32[2, 4]
  %4 = sum(%3) {dims=[0, 1], keepdim=false} : float32[]
  %5 = mul(%2, %2) : float32[4]
  %6 = add(%0, %5) : float32[4]
  return %4, %6
}
)"));
  CHECK_EQ(sunk(kStatistics, {}), ir::to_string(testing::parse_graph(kStatistics)));
}

TEST(what_others_read_and_what_keeps_much_alive_does_not_sink) {
  const std::string_view read_again = R"(graph {
  %0 = input captured float32[4]
  %1 = neg(%0) : float32[4]
  %2 = sum(%1) {dims=[0], keepdim=false} : float32[]
  return %2, %1
}
)";
  CHECK_EQ(sunk(read_again, {{1, 0}}), std::string(read_again));
  const std::string_view much = R"(graph {
  %0 = input captured float32[9000]
  %1 = cumsum(%0) {dim=0} : float32[9000]
  %2 = neg(%1) : float32[9000]
  %3 = cumsum(%0) {dim=0} : float32[9000]
  return %3, %2
}
)";
  CHECK_EQ(sunk(much, {{1, 0}}), std::string(much));
}

namespace {

/// Does what other threads would do while this one waits.
class WaitingHost final : public runtime::Host {
 public:
  explicit WaitingHost(std::function<void()> meanwhile) : meanwhile_(std::move(meanwhile)) {
    previous_ = std::exchange(runtime::process_state().host, this);
  }
  ~WaitingHost() override { runtime::process_state().host = previous_; }
  ir::LocationRef caller() const override { return nullptr; }
  void* pause() const override {
    ++num_pauses;
    meanwhile_();
    return &num_pauses;
  }
  void resume(void*) const override {}

  mutable int num_pauses = 0;

 private:
  std::function<void()> meanwhile_;
  const runtime::Host* previous_;
};

}  // namespace

TEST(who_waits_for_a_buffer_lets_others_run) {
  const testing::TensorRef tensor = testing::floats({1, 2});
  const backends::BufferRef buffer = tensor->value().buffer;
  const testing::TensorRef other = testing::floats({3, 4});
  buffer->begin_change();
  const WaitingHost host([&] {
    tensor->assign({.value = other->value()});
    buffer->end_change();
  });
  CHECK_EQ(testing::elements_of(tensor), (std::vector<float>{3, 4}));  // the value put in meanwhile
  CHECK_EQ(host.num_pauses, 1);
  CHECK_EQ(testing::elements_of(tensor), (std::vector<float>{3, 4}));
  CHECK_EQ(host.num_pauses, 1);
}

}  // namespace lucid

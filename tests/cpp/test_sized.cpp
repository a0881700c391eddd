// SizedTrace: what two traces at two sizes tell of a third.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compile/sized.h"
#include "ir/graph.h"
#include "runtime_testing.h"

namespace lucid {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): a test file
using compile::SizedTrace;
using runtime::Recorder;
using runtime::Trace;

using Body = std::function<TensorRef(const TensorRef&)>;

constexpr int64_t kLarge = 1000003;

TensorRef rows(int64_t size) { return tensor_of<float>(DType::kFloat32, Shape{size, 3}, {}); }

/// The trace of `body` at a size of the first axis.
Trace trace_at(int64_t size, const Body& body) {
  Recorder recorder("compile");
  const TensorRef argument = recorder.argument(rows(2), size);
  return recorder.finish({{body(argument)}});
}

SizedTrace sized(int64_t size, const Body& body) {
  return {trace_at(size, body), size, trace_at(kLarge, body), kLarge};
}

/// The trace at `other` is what follows from those at `size` and far from it.
void check_follows(const Body& body, int64_t size, int64_t other) {
  const SizedTrace family = sized(size, body);
  CHECK_EQ(family.sized_arguments(), std::vector<bool>{true});
  CHECK_EQ(ir::to_string(family.at(other).graph), ir::to_string(trace_at(other, body).graph));
}

int64_t size_of(const TensorRef& x) { return x->type().shape[0]; }

TensorRef flat(const TensorRef& x) { return view("reshape", x, {ir::Ints{3 * size_of(x)}}); }

TensorRef full(double value) { return call("full", {}, {ir::Ints{}, DType::kFloat32, value}); }

}  // namespace

TEST(shapes_follow) {
  const Body body = [](const TensorRef& x) { return call("tanh", {call("mul", {x, x})}); };
  check_follows(body, 4, 7);
  CHECK(sized(4, body).is_certain());
}

TEST(sizes_among_the_attributes_follow) {
  const Body body = [](const TensorRef& x) { return slice(flat(x), 1, 3 * size_of(x) - 2); };
  check_follows(body, 4, 7);
}

TEST(whole_numbers_follow) {
  const Body body = [](const TensorRef& x) {
    return call("div", {sum(x), full(static_cast<double>(3 * size_of(x)))});
  };
  check_follows(body, 4, 7);
}

TEST(other_numbers_do_not) {
  const Body body = [](const TensorRef& x) {
    return call("mul", {sum(x), full(1.0 / static_cast<double>(size_of(x)))});
  };
  CHECK_THROWS(sized(4, body), Error, "full: attribute 2 differs");
}

TEST(the_offsets_of_random_numbers_follow) {
  const auto generator = std::make_shared<runtime::Generator>(9);
  const ir::Attrs attrs = {0.5, int64_t{0}};
  const Body body = [&](const TensorRef& x) {
    return call("dropout", {call("dropout", {x, generator}, attrs), generator}, attrs);
  };
  check_follows(body, 4, 7);
  const Trace made = sized(4, body).at(100);
  CHECK_EQ(made.draws.size(), 1);
  CHECK_EQ(made.draws[0].counters, trace_at(100, body).draws[0].counters);
}

TEST(a_square_takes_a_third_trace) {
  const Body body = [](const TensorRef& x) {
    return call("mul", {sum(x), full(static_cast<double>(size_of(x) * size_of(x)))});
  };
  const SizedTrace family = sized(4, body);
  CHECK(!family.is_certain());
  CHECK_THROWS(family.check(trace_at(500009, body), 500009), Error,
               "shapes at 500009 are not those that follow from 4");
}

TEST(half_of_the_size_does_not_follow) {
  const Body body = [](const TensorRef& x) { return slice(flat(x), 0, 3 * size_of(x) / 2); };
  CHECK_THROWS(sized(4, body), Error, "slice: attribute 1 is 6 at 4, 1500004 at 1000003");
}

TEST(another_number_of_operations) {
  const Body body = [](const TensorRef& x) {
    return size_of(x) < 10 ? call("tanh", {call("mul", {x, x})}) : call("mul", {x, x});
  };
  CHECK_THROWS(sized(4, body), Error, "2 operations at 4, 1 at 1000003");
}

TEST(another_operation) {
  const Body body = [](const TensorRef& x) { return call(size_of(x) < 10 ? "tanh" : "exp", {x}); };
  CHECK_THROWS(sized(4, body), Error, "tanh: another operation or operand");
}

TEST(another_tensor) {
  const TensorRef a = floats({1, 2, 3});
  const TensorRef b = floats({1, 2, 3});
  const Body body = [&](const TensorRef& x) { return call("mul", {x, size_of(x) < 10 ? a : b}); };
  CHECK_THROWS(sized(4, body), Error, "other tensors are read, written or returned");
}

TEST(a_window_fits_some_sizes) {
  const Body body = [](const TensorRef& x) { return slice(flat(x), 0, 50); };
  check_follows(body, 64, 70);
  CHECK_THROWS(sized(64, body).at(16), Error, "window out of range");
}

}  // namespace lucid

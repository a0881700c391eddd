// What Metal would compute wrongly, or abort on, is split, composed or refused by name.
#include "metal_testing.h"

#if defined(LUCID_METAL_HOST)
#include "metalhost.h"
#endif

namespace lucid::testing {
namespace {

#if defined(LUCID_METAL_HOST)
// An M1: its products of long inner sizes read past their operands. Set before the device is used.
const bool is_m1 = [] {
  metalhost_set_family(1007, 1);
  metalhost_set_family(1009, 0);
  return true;
}();
#endif

void refuses(std::string_view op, const std::vector<std::optional<Operand>>& inputs, Attrs attrs,
             std::string_view message) {
  const ir::Graph graph = graph_of(op, inputs, std::move(attrs));
  CHECK_THROWS(backends::backend_for(Device::kMetal).compile(graph), Error, message);
}

TEST(long_products_are_added_up_from_parts) {
  // Whole numbers, whose sums are exact in any order.
  const auto whole = [](const Shape& shape) { return low(DType::kFloat32, shape, 4); };
  const auto check = [](std::string_view op, std::vector<std::optional<Operand>> inputs,
                        Attrs attrs) { check_node(__FILE__, __LINE__, op, inputs, attrs); };
  check("matmul", {whole({17, 40000}), whole({40000, 16})}, {false, false});
  check("matmul", {whole({40000, 17}), whole({16, 40000})}, {true, true});
  check("linear", {whole({16, 32767}), whole({16, 32767}), whole({16})}, {});
}

TEST(weight_gradients_of_large_batches_are_added_up) {
  const Attrs attrs = {Ints{1, 1, 1, 1}, Ints{1, 1}, Ints{0, 0},
                       Ints{0, 0},       Ints{1, 1}, int64_t{1}};
  check_node(__FILE__, __LINE__, "convolution_weight_grad",
             {f32({65537, 1, 1, 1}), f32({65537, 1, 1, 1})}, attrs);
}

TEST(tensors_that_no_device_holds_are_refused) {
  refuses("broadcast_to", {f32({1})}, {Ints{1 << 16, 1 << 16}},
          "broadcast_to: tensor is too large for metal: float32[65536, 65536]; keep it under 2^31 "
          "elements and 4 GiB, split it or use device cpu");
  refuses("broadcast_to", {low(DType::kInt64, {1}, 2)}, {Ints{1 << 30}}, "too large for metal");
  refuses("broadcast_to", {bools({1})}, {Ints{int64_t{1} << 31}}, "too large for metal");
}

TEST(too_many_channels_are_refused) {
  refuses("convolution", {f32({1, 70000, 1, 1}), f32({1, 70000, 1, 1}), std::nullopt},
          {Ints{1, 1}, Ints{0, 0}, Ints{0, 0}, Ints{1, 1}, int64_t{1}},
          "convolution: more than 65536 channels");
}

TEST(float64_is_refused) {
  refuses("add", {of(DType::kFloat64, {2}), of(DType::kFloat64, {2})}, {},
          "float64 does not exist on metal: float64[2]; cast to float32, or use device cpu");
}

TEST(gaps_are_refused_by_name) {
  const Operand whole = low(DType::kInt32, {3, 3}, 5);
  for (const char* op : {"fmod", "remainder", "floor_divide", "pow"}) {
    refuses(op, {whole, whole}, {}, std::string(op) + ": no metal lowering for int32");
  }
  refuses("matmul", {whole, whole}, {false, false}, "matmul: no metal lowering for int32");
  refuses("index_add", {whole, low(DType::kInt64, {3}, 3), whole}, {int64_t{0}},
          "index_add: no metal lowering for int32");
  refuses("scatter_add", {whole, low(DType::kInt64, {3, 3}, 3), whole}, {int64_t{0}},
          "scatter_add: no metal lowering for int32");
  refuses("cumsum", {low(DType::kInt64, {3}, 3)}, {int64_t{0}},
          "cumsum: no metal lowering for int64");
  refuses("sort", {f32({5000})}, {int64_t{0}, false}, "sort: too long to be sorted stably");
  refuses("max_pool", {f32({1, 1, 2, 2, 2})},
          {Ints{2, 2, 2}, Ints{1, 1, 1}, Ints{0, 0, 0}, Ints{1, 1, 1}, false},
          "max_pool: no metal lowering for three spatial axes");
  refuses("arange", {}, {int64_t{0}, int64_t{1}, int64_t{1} << 23, DType::kInt32},
          "arange: more than 2^22 elements in a graph");
}

// A single node is an eager call: the cpu runs it over the shared memory.
TEST(gaps_of_eager_calls_run_on_the_host) {
  ir::Graph graph;
  const ir::ValueType type{DType::kInt32, Shape{2, 2}};
  ir::Node node;
  node.op = &ops::get("matmul");
  node.inputs = {graph.add_input(ir::Role::kArgument, type),
                 graph.add_input(ir::Role::kArgument, type)};
  node.attrs = {false, false};
  graph.set_outputs(graph.add_node(std::move(node), {{type}}));
  const Operand a = numbers(DType::kInt32, {2, 2}, {1, 2, 3, 4});
  const auto found = run_on(Device::kMetal, graph, {a, a});
  CHECK(found[0]->device() == Device::kMetal);
  const std::vector<double> expected = {7, 10, 15, 22};
  for (int64_t i = 0; i < 4; ++i) {
    CHECK_EQ(load(found[0]->data(), DType::kInt32, i), expected[static_cast<size_t>(i)]);
  }
}

TEST(masks_of_minus_infinity_do_not_make_nan) {
  const double inf = INFINITY;
  const Operand mask = numbers(DType::kFloat32, {2, 3}, {-inf, -inf, -inf, 0, -inf, 0});
  check_node(__FILE__, __LINE__, "attention", {f32({2, 4}), f32({3, 4}), f32({3, 2}), mask},
             {false, 0.5});
  check_node(__FILE__, __LINE__, "attention_grad",
             {f32({2, 2}), f32({2, 4}), f32({3, 4}), f32({3, 2}), f32({2, 2}),
              numbers(DType::kFloat32, {2}, {-inf, 0.25}), mask},
             {false, 0.5});
}

TEST(repeated_writes_keep_the_last) {
  check_node(__FILE__, __LINE__, "scatter",
             {f32({3, 2}), numbers(DType::kInt64, {4, 2}, {0, 0, 1, 0, 0, 0, 0, 1}), f32({4, 2})},
             {int64_t{0}});
}

#if defined(LUCID_METAL_HOST)
TEST(a_compilation_that_fails_raises_its_reason) {
  metalhost_fail_next_compilation("pass manager failed");
  refuses("neg", {f32({2})}, {}, "metal: the graph did not compile: pass manager failed");
  check_node(__FILE__, __LINE__, "neg", {f32({2})}, {});
}
#endif

}  // namespace
}  // namespace lucid::testing

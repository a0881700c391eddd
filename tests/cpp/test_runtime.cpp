// Tensors, dispatch and the gradient tape.
#include <string>
#include <vector>

#include "runtime/dispatch/eager_cache.h"
#include "runtime_testing.h"

namespace lucid {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): a test file
using runtime::BackwardMode;
using runtime::GradMode;
using runtime::Number;

DType dtype_of(std::string_view op, const std::vector<Operand>& operands) {
  return call(op, operands)->type().dtype;
}

TensorRef zeros(DType dtype, const Shape& shape) {
  return tensor_of(dtype, shape, std::vector<char>(64, 0));
}

// A leaf on a device that this build does not have; only its type is looked at.
TensorRef metal_tensor() {
  runtime::Value value = floats({1, 2})->value();
  value.device = Device::kMetal;
  return runtime::make_tensor(value);
}

}  // namespace

// ---- cells

TEST(detach_shares_the_cell) {
  const TensorRef x = parameter({1, 2});
  const TensorRef d = x->detach();
  CHECK(!d->requires_grad());
  CHECK(d->is_leaf());
  assign(d, floats({3, 4}));
  CHECK_EQ(elements_of(x), (Floats{3, 4}));
  CHECK(x->requires_grad());
}

TEST(detach_of_a_result_hides_its_history) {
  const TensorRef y = call("tanh", {parameter({1})});
  CHECK(!y->is_leaf());
  CHECK(!y->detach()->requires_grad());
  CHECK(!call("exp", {y->detach()})->requires_grad());
}

TEST(a_detached_tensor_may_get_a_history_of_its_own) {
  const TensorRef w = parameter({5});
  const TensorRef x = floats({2});
  const TensorRef d = x->detach();
  assign(d, call("mul", {d, w}));
  CHECK(d->requires_grad());
  CHECK(!d->is_leaf());
  CHECK(!x->requires_grad());
  backward(sum(d));
  CHECK_EQ(grad_of(w), (Floats{2}));
}

TEST(assign_counts_versions_and_checks_types) {
  const TensorRef x = floats({1, 2});
  const uint64_t version = x->cell()->version;
  assign(x, floats({3, 4}));
  CHECK_EQ(x->cell()->version, version + 1);
  CHECK_THROWS(assign(x, floats({3})), Error,
               "in-place change: the tensor is float32[2], the new value float32[1]");
  CHECK_THROWS(assign(x, metal_tensor()), Error,
               "in-place change: the tensor is on cpu, the new value on metal");
  CHECK_EQ(x->cell()->version, version + 1);
  CHECK_EQ(elements_of(x), (Floats{3, 4}));
}

TEST(leaves_that_require_gradients_are_not_changed_in_place) {
  const TensorRef x = parameter({1, 2});
  CHECK_THROWS(assign(x, floats({3, 4})), Error,
               "in-place change: the tensor is a leaf that requires a gradient");
  CHECK_THROWS(assign(slice(x, 0, 1), floats({3})), Error, "in-place change: the tensor is a leaf");
  CHECK_EQ(elements_of(x), (Floats{1, 2}));
  const GradMode no_grad(false);
  assign(x, floats({3, 4}));
  CHECK_EQ(elements_of(x), (Floats{3, 4}));
}

TEST(requires_grad_rules) {
  const TensorRef y = call("tanh", {parameter({1})});
  CHECK_THROWS(y->set_requires_grad(false), Error, "only a leaf can stop requiring a gradient");
  CHECK_THROWS(indices({1})->set_requires_grad(true), Error,
               "requires_grad_: only floating dtypes have gradients: got int64");
  const TensorRef x = parameter({1});
  x->set_requires_grad(false);
  CHECK(!call("tanh", {x})->requires_grad());
}

TEST(data_drops_history_and_takes_any_type) {
  const TensorRef y = call("tanh", {parameter({1})});
  y->set_data(floats({1, 2, 3})->value());
  CHECK(!y->requires_grad());
  CHECK_EQ(elements_of(y), (Floats{1, 2, 3}));
}

// ---- views

TEST(views_write_through) {
  const TensorRef x = floats({1, 2, 3, 4});
  assign(slice(x, 1, 2), floats({20, 30}));
  CHECK_EQ(elements_of(x), (Floats{1, 20, 30, 4}));
  const TensorRef square = view("reshape", x, {ir::Ints{2, 2}});
  const TensorRef turned = view("permute", square, {ir::Ints{1, 0}});
  CHECK_EQ(elements_of(turned), (Floats{1, 30, 20, 4}));
  assign(turned, tensor_of(DType::kFloat32, Shape{2, 2}, Floats{5, 6, 7, 8}));
  CHECK_EQ(elements_of(x), (Floats{5, 7, 6, 8}));
}

TEST(views_are_taken_again) {
  const TensorRef x = floats({1, 2, 3, 4});
  const TensorRef part = slice(x, 1, 2);
  const TensorRef part_of_part = slice(part, 1, 1);
  const TensorRef other = slice(x, 2, 2);
  assign(x, floats({5, 6, 7, 8}));
  CHECK_EQ(elements_of(part_of_part), (Floats{7}));
  assign(part_of_part, floats({70}));
  CHECK_EQ(elements_of(x), (Floats{5, 6, 70, 8}));
  CHECK_EQ(elements_of(part), (Floats{6, 70}));
  CHECK_EQ(elements_of(other), (Floats{70, 8}));
}

TEST(a_permuted_view_of_three_axes_writes_back) {
  const TensorRef x = tensor_of(DType::kFloat32, Shape{1, 2, 3}, Floats{0, 1, 2, 3, 4, 5});
  const TensorRef turned = view("permute", x, {ir::Ints{2, 0, 1}});
  const Floats before = elements_of(turned);
  assign(turned, call("neg", {turned}));
  CHECK_EQ(elements_of(x), (Floats{-0.0f, -1, -2, -3, -4, -5}));
  CHECK_EQ(before, (Floats{0, 3, 1, 4, 2, 5}));
}

TEST(gradients_flow_through_writes_to_views) {
  const TensorRef w = parameter({10});
  const TensorRef x = floats({1, 2});
  assign(slice(x, 1, 1), call("mul", {w, w}));
  CHECK(x->requires_grad());
  backward(sum(x));
  CHECK_EQ(grad_of(w), (Floats{20}));
}

TEST(a_view_taken_under_no_grad_still_has_its_base_s_history) {
  const TensorRef base = call("mul", {parameter({1, 2}), Number{2.0}});
  const TensorRef part = slice(base, 0, 1);
  {
    const GradMode no_grad(false);
    assign(base, floats({7, 8}));
    CHECK_EQ(elements_of(part), (Floats{7}));
  }
  CHECK(part->requires_grad());
}

TEST(very_deep_views_are_refused) {
  TensorRef x = floats({1, 2});
  for (int i = 0; i < 1000; ++i) x = view("reshape", x, {ir::Ints{2}});
  CHECK_EQ(elements_of(x), (Floats{1, 2}));
  CHECK_THROWS(view("reshape", x, {ir::Ints{2}}), Error,
               "reshape: view of a view, 1001 deep; clone() it first");
}

// ---- dispatch

TEST(promotion_follows_classes_then_ranks) {
  const TensorRef i32 = zeros(DType::kInt32, Shape{2});
  const TensorRef i64 = zeros(DType::kInt64, Shape{});
  const TensorRef f16 = zeros(DType::kFloat16, Shape{2});
  const TensorRef f64 = zeros(DType::kFloat64, Shape{});
  const TensorRef flag = zeros(DType::kBool, Shape{2});
  CHECK_EQ(dtype_of("add", {i32, i64}), DType::kInt32);  // same class: axes before 0-d
  CHECK_EQ(dtype_of("add", {f16, f64}), DType::kFloat16);
  CHECK_EQ(dtype_of("add", {i32, f64}), DType::kFloat64);  // a higher class wins
  CHECK_EQ(dtype_of("add", {i32, Number{int64_t{1}}}), DType::kInt32);
  CHECK_EQ(dtype_of("add", {i32, Number{1.5}}), DType::kFloat32);  // the default
  CHECK_EQ(dtype_of("add", {f16, Number{1.5}}), DType::kFloat16);
  CHECK_EQ(dtype_of("add", {flag, Number{int64_t{1}}}), DType::kInt64);
  CHECK_EQ(dtype_of("div", {i32, i32}), DType::kFloat32);
  CHECK_EQ(dtype_of("exp", {i32}), DType::kFloat32);
  CHECK_EQ(dtype_of("eq", {i32, f16}), DType::kBool);
  CHECK_EQ(dtype_of("where", {flag, i32, Number{2.0}}), DType::kFloat32);
}

TEST(the_default_dtype_decides_for_integers) {
  auto& default_dtype = runtime::process_state().default_dtype;
  default_dtype = DType::kFloat64;
  const DType found = dtype_of("exp", {indices({1})});
  default_dtype = DType::kFloat32;
  CHECK_EQ(found, DType::kFloat64);
}

TEST(two_devices_are_refused) {
  CHECK_THROWS(call("add", {floats({1, 2}), metal_tensor()}), Error,
               "add: tensors on two devices: ");
}

TEST(bad_operands_are_refused) {
  const auto& generator = runtime::default_generator();
  CHECK_THROWS(call("reshape", {}, {ir::Ints{1}}), Error, "reshape: takes 1 input: got 0");
  CHECK_THROWS(call("reshape", {std::monostate{}}, {ir::Ints{1}}), Error,
               "reshape: input 0 is missing");
  CHECK_THROWS(call("add", {floats({1}), std::monostate{}}), Error, "add: input 1 is missing");
  CHECK_THROWS(call("add", {indices({1, 2}), generator}), Error,
               "add: input 1 is a generator; pass a tensor");
  CHECK_THROWS(call("dropout", {generator, floats({1})}, {0.5, int64_t{0}}), Error,
               "dropout: input 0 is a generator; pass a tensor");
  runtime::Recorder recorder;
  CHECK_THROWS(call("add", {indices({1, 2}), generator}), Error,
               "add: input 1 is a generator; pass a tensor");
}

TEST(eager_calls_are_cached_by_shape_and_attributes) {
  const TensorRef x = floats({1, 2, 3, 4, 5, 6, 7});
  const auto misses = [](auto body) {
    const size_t before = runtime::eager_cache_size();
    body();
    return runtime::eager_cache_size() - before;
  };
  runtime::clear_eager_cache();
  CHECK_EQ(misses([&] { call("tanh", {x}); }), 1);
  CHECK_EQ(misses([&] { call("tanh", {x}); }), 0);
  CHECK_EQ(misses([&] { call("tanh", {floats({1})}); }), 1);
  CHECK_EQ(misses([&] { call("sum", {x}, {ir::Ints{0}, false}); }), 1);
  CHECK_EQ(misses([&] { call("sum", {x}, {ir::Ints{0}, true}); }), 1);
  // Starts are run-time attributes: another start is the same executable.
  const auto at = [&](int64_t start) {
    return elements_of(call("slice", {x}, {ir::Ints{start}, ir::Ints{2}, ir::Ints{1}}));
  };
  CHECK_EQ(at(0), (Floats{1, 2}));
  CHECK_EQ(misses([&] { CHECK_EQ(at(3), (Floats{4, 5})); }), 0);
  CHECK_THROWS(at(6), Error, "slice");
}

TEST(a_failed_draw_gives_its_numbers_back) {
  const auto generator = std::make_shared<runtime::Generator>(3);
  const ir::Attrs attrs = {ir::Ints{8}, DType::kFloat32, int64_t{0}};
  const Floats first = elements_of(call("uniform", {generator}, attrs));
  CHECK_EQ(generator->state().offset, 2);
  generator->set_state({3, 0});
  CHECK_THROWS(call("uniform", {generator}, {ir::Ints{8}, DType::kInt32, int64_t{0}}), Error,
               "uniform: ");
  // 2^56 elements cannot be had; the draw itself was made before.
  CHECK_THROWS(
      call("uniform", {generator}, {ir::Ints{int64_t{1} << 56}, DType::kFloat32, int64_t{0}}),
      Error, "out of memory: 288230376151711744 bytes asked on cpu");
  CHECK_EQ(generator->state().offset, 0);
  CHECK_EQ(elements_of(call("uniform", {generator}, attrs)), first);
}

TEST(a_draw_is_not_taken_back_after_another) {
  runtime::Generator generator(3);
  const auto before = generator.draw(5);
  generator.draw(2);
  generator.take_back(before, 5);
  CHECK_EQ(generator.state().offset, 7);
}

// ---- the tape

TEST(backward_adds_to_leaves) {
  const TensorRef x = parameter({1, 2});
  backward(sum(call("mul", {x, x})));
  CHECK_EQ(grad_of(x), (Floats{2, 4}));
  backward(sum(x));
  CHECK_EQ(grad_of(x), (Floats{3, 5}));
  x->set_grad(nullptr);
  CHECK(!x->has_grad());
}

TEST(contributions_are_added_newest_first) {
  // 2^24 + 1 - 2^24 in float32: the order of the additions shows.
  const TensorRef x = parameter({1});
  const TensorRef a = call("mul", {x, Number{1.0}});
  const TensorRef b = call("mul", {x, Number{16777216.0}});
  const TensorRef c = call("mul", {x, Number{-16777216.0}});
  backward(sum(call("add", {call("add", {a, b}), c})));
  CHECK_EQ(grad_of(x), (Floats{1}));  // ((-2^24) + 2^24) + 1
}

TEST(absent_gradients_stay_absent_in_the_tape) {
  const TensorRef x = parameter({1});
  const TensorRef unused = parameter({1});
  call("tanh", {unused});
  backward(sum(x));
  CHECK(!unused->has_grad());
}

TEST(a_second_backward_needs_retain_graph) {
  const TensorRef x = parameter({2});
  const TensorRef y = sum(call("mul", {x, x}));
  backward(y, BackwardMode{.retain_graph = true});
  backward(y);
  CHECK_EQ(grad_of(x), (Floats{8}));
  CHECK_THROWS(backward(y), Error, "pass retain_graph=True to that one");
  CHECK_EQ(grad_of(x), (Floats{8}));
}

TEST(saved_values_are_freed_by_backward) {
  const TensorRef x = parameter({2});
  TensorRef y = call("exp", {x});
  const std::weak_ptr<backends::Buffer> saved = y->value().buffer;
  const TensorRef loss = sum(y);
  y.reset();
  CHECK(!saved.expired());
  backward(loss);
  CHECK(saved.expired());
}

TEST(values_that_no_rule_reads_are_not_saved) {
  TensorRef y = call("exp", {parameter({2})});
  const TensorRef z = call("add", {y, y});
  const std::weak_ptr<backends::Buffer> added = z->value().buffer;
  const TensorRef loss = sum(z);
  const_cast<TensorRef&>(z).reset();
  CHECK(added.expired());
}

TEST(nothing_leaks_after_a_step) {
  const int64_t before = backends::allocated_bytes();
  {
    const TensorRef x = parameter({1, 2, 3});
    const TensorRef y = call("tanh", {x});
    const TensorRef loss = sum(call("mul", {y, x}));
    backward(loss, BackwardMode{.create_graph = true});
    backward(sum(x->grad()), BackwardMode{.create_graph = true});
  }
  const int64_t unit_bytes = 4;  // the shared 1 of an implicit seed
  CHECK(backends::allocated_bytes() - before <= unit_bytes);
}

TEST(a_leaf_may_be_gone) {
  TensorRef y;
  {
    const TensorRef x = parameter({2});
    y = sum(call("mul", {x, x}));
  }
  backward(y);
}

TEST(backward_of_the_root_itself) {
  const TensorRef x = parameter({2});
  backward(x);
  CHECK_EQ(grad_of(x), (Floats{1}));
}

TEST(backward_refusals) {
  const TensorRef x = parameter({1, 2});
  CHECK_THROWS(backward(floats({1})), Error, "backward: the tensor does not require a gradient");
  CHECK_THROWS(backward(x), Error,
               "backward: a gradient can be implied only for one element: the tensor has shape "
               "(2,); reduce it to a scalar or pass gradient=");
  CHECK_THROWS(backward(x, {}, floats({1})), Error,
               "backward: gradient has shape (1,), the tensor (2,)");
  CHECK_THROWS(backward(x, {}, indices({1, 2})), Error,
               "backward: gradient is int64, the tensor float32");
  CHECK(!x->has_grad());
}

TEST(long_chains_end_without_recursion) {
  const TensorRef x = parameter({1});
  TensorRef y = x;
  for (int i = 0; i < 200000; ++i) y = call("neg", {y});
  backward(sum(y));
  CHECK_EQ(grad_of(x), (Floats{1}));
  y = x;
  for (int i = 0; i < 200000; ++i) y = call("mul", {y, y});  // saves its inputs
  y.reset();
}

TEST(hooks_replace_gradients) {
  const TensorRef x = parameter({1});
  const TensorRef y = call("mul", {x, Number{3.0}});
  const uint64_t id = y->add_hook([](const TensorRef& grad) {
    return call("mul", {grad, Number{10.0}});
  });
  int num_seen = 0;
  x->add_hook([&](const TensorRef&) {
    ++num_seen;
    return nullptr;
  });
  const TensorRef loss = sum(y);
  backward(loss, BackwardMode{.retain_graph = true});
  CHECK_EQ(grad_of(x), (Floats{30}));
  y->remove_hook(id);
  backward(loss);
  CHECK_EQ(grad_of(x), (Floats{33}));
  CHECK_EQ(num_seen, 2);
}

TEST(a_leaf_hook_sees_the_sum) {
  const TensorRef x = parameter({2});
  Floats seen;
  x->add_hook([&](const TensorRef& grad) {
    seen = elements_of(grad);
    return nullptr;
  });
  backward(sum(call("mul", {x, x})));
  CHECK_EQ(seen, (Floats{4}));
}

TEST(a_hook_that_fails_changes_no_gradient) {
  const TensorRef x = parameter({1});
  const TensorRef z = parameter({1});
  x->add_hook([](const TensorRef&) -> TensorRef { throw Error(ErrorKind::kUser, "stop here"); });
  CHECK_THROWS(backward(sum(call("mul", {x, z}))), Error, "stop here");
  CHECK(!x->has_grad());
  CHECK(!z->has_grad());
}

TEST(a_hook_of_another_type_is_refused) {
  const TensorRef x = parameter({1, 2});
  x->add_hook([](const TensorRef&) { return floats({1}); });
  CHECK_THROWS(backward(sum(x)), Error,
               "gradient hook: returned float32[1] for a gradient float32[2]");
}

TEST(retained_gradients_of_results) {
  const TensorRef x = parameter({3});
  const TensorRef y = call("mul", {x, x});
  y->retain_grad();
  backward(sum(call("mul", {y, Number{2.0}})));
  CHECK_EQ(grad_of(y), (Floats{2}));
  CHECK_EQ(grad_of(x), (Floats{12}));
}

TEST(grad_gives_and_accumulates_nothing) {
  const TensorRef x = parameter({3});
  const TensorRef y = call("mul", {x, x});
  const TensorRef z = call("mul", {y, x});
  const auto found =
      runtime::grad({{sum(z)}}, {{nullptr}}, {{x, y}}, BackwardMode{.create_graph = true}, false);
  CHECK_EQ(elements_of(found[0]), (Floats{27}));
  CHECK_EQ(elements_of(found[1]), (Floats{3}));
  CHECK(!x->has_grad());
  const auto second = runtime::grad({{sum(found[0])}}, {{nullptr}}, {{x}}, {}, false);
  CHECK_EQ(elements_of(second[0]), (Floats{18}));
}

TEST(grad_of_an_unused_input) {
  const TensorRef x = parameter({3});
  const TensorRef other = parameter({3});
  const auto grads = [&](bool allow_unused) {
    return runtime::grad({{sum(x)}}, {{nullptr}}, {{other}}, {}, allow_unused);
  };
  CHECK(grads(true)[0] == nullptr);
  CHECK_THROWS(grads(false), Error, "grad: input 0 is not part of the graph");
}

TEST(no_history_under_no_grad) {
  const GradMode no_grad(false);
  CHECK(!call("tanh", {parameter({1})})->requires_grad());
}

}  // namespace lucid

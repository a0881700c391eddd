// Element-wise, creation and random kernels: broadcasting against an element by element reference,
// Philox's published answers, and independence of the draws from slicing.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/cpu/kernels/families.h"
#include "backends/cpu/simd/random.h"
#include "backends/cpu/threads/team.h"
#include "ops/families.h"
#include "testing.h"

namespace {

using namespace lucid;
using namespace lucid::cpu;
using ir::ValueType;

/// The operation's record; found without the whole registry.
const ir::Op& op_named(std::string_view name) {
  static const auto all = [] {
    std::vector<ir::Op> rows;
    for (const auto family :
         {ops::pointwise_ops, ops::comparison_ops, ops::create_ops, ops::random_ops}) {
      for (ir::Op& op : family()) rows.push_back(std::move(op));
    }
    return rows;
  }();
  return *std::ranges::find(all, name, &ir::Op::name);
}

MakeKernelFn maker_of(std::string_view name) {
  for (const auto rows : {pointwise_kernels(), create_kernels(), random_kernels()}) {
    for (const KernelRow& row : rows) {
      if (row.op == name) return row.make;
    }
  }
  return nullptr;
}

/// A graph of one node and its kernel.
class OneNode {
 public:
  OneNode(std::string_view name, const std::vector<ValueType>& inputs, ir::Attrs attrs)
      : attrs_(attrs) {
    ir::Node node;
    node.op = &op_named(name);
    node.attrs = std::move(attrs);
    std::vector<std::optional<ValueType>> types(inputs.begin(), inputs.end());
    for (const ValueType& type : inputs) {
      node.inputs.push_back(graph_.add_input(ir::Role::kArgument, type));
    }
    output_types_ = ir::infer(*node.op, types, node.attrs, nullptr);
    graph_.add_node(std::move(node), output_types_);
    kernel_ = maker_of(name)(NodeView{graph_.nodes()[0], graph_});
  }

  bool has_kernel() const { return kernel_ != nullptr; }
  ir::Attrs& attrs() { return attrs_; }
  const ValueType& output_type(size_t index) const { return output_types_[index]; }

  /// Bytes of each output.
  std::vector<std::vector<char>> run(const std::vector<const void*>& inputs) const {
    std::vector<std::vector<char>> outputs;
    std::vector<void*> pointers;
    for (const ValueType& type : output_types_) {
      outputs.emplace_back(static_cast<size_t>(type.size_bytes()), char{0x55});
    }
    for (auto& output : outputs) pointers.push_back(output.data());
    kernel_->run({inputs.data(), pointers.data(), nullptr, &attrs_});
    return outputs;
  }

  template <class T>
  std::vector<T> values(const std::vector<const void*>& inputs, size_t output = 0) const {
    const std::vector<char> bytes = run(inputs)[output];
    std::vector<T> result(bytes.size() / sizeof(T));
    if (bytes.empty()) return result;
    std::memcpy(result.data(), bytes.data(), bytes.size());
    return result;
  }

 private:
  ir::Attrs attrs_;
  ir::Graph graph_;
  ir::ValueTypes output_types_;
  std::unique_ptr<Kernel> kernel_;
};

/// Element of a dense operand at the output's linear index.
size_t broadcast_index(const Shape& output, const Shape& operand, int64_t index) {
  int64_t offset = 0;
  const auto strides = operand.strides();
  for (int axis = output.rank() - 1; axis >= 0; --axis) {
    const int64_t at = index % output[axis];
    index /= output[axis];
    const int own = axis - (output.rank() - operand.rank());
    if (own >= 0 && operand[own] != 1) offset += at * strides[static_cast<size_t>(own)];
  }
  return static_cast<size_t>(offset);
}

std::vector<float> numbered(const Shape& shape, float first) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  return values;
}

TEST(broadcasting_matches_element_by_element) {
  const std::vector<std::pair<Shape, Shape>> pairs = {{{}, {}},
                                                      {{5}, {}},
                                                      {{1}, {1, 1}},
                                                      {{7, 3}, {3}},
                                                      {{3}, {7, 3}},
                                                      {{7, 3}, {7, 1}},
                                                      {{1000, 10}, {10}},
                                                      {{1000, 10}, {1000, 1}},
                                                      {{5000, 1}, {1, 7}},
                                                      {{3, 5000}, {5000}},
                                                      {{3, 5000}, {3, 1}},
                                                      {{2, 3, 4, 5}, {3, 1, 5}},
                                                      {{2, 3, 4, 5}, {2, 1, 4, 1}},
                                                      {{8, 1, 6, 1}, {7, 1, 5}},
                                                      {{64, 32, 33}, {32, 1}},
                                                      {{64, 32, 33}, {1, 32, 1}},
                                                      {{0, 3}, {3}},
                                                      {{0}, {1}},
                                                      {{1, 1, 70000}, {}},
                                                      {{300, 700}, {700}},
                                                      {{2, 2049}, {2049}},
                                                      {{100, 3000}, {100, 1}},
                                                      {{1}, {100000}},
                                                      {{17, 1, 19, 1, 3}, {17, 5, 1, 2, 1}}};
  for (const auto& [a_shape, b_shape] : pairs) {
    const OneNode node("sub", {{DType::kFloat32, a_shape}, {DType::kFloat32, b_shape}}, {});
    const std::vector<float> a = numbered(a_shape, 1.0f);
    const std::vector<float> b = numbered(b_shape, 0.25f);
    const std::vector<float> y = node.values<float>({a.data(), b.data()});
    const Shape& shape = node.output_type(0).shape;
    int differ = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      const int64_t index = static_cast<int64_t>(i);
      differ += y[i] != a[broadcast_index(shape, a_shape, index)] -
                            b[broadcast_index(shape, b_shape, index)];
    }
    if (differ != 0) std::cerr << to_string(a_shape) << " and " << to_string(b_shape) << '\n';
    CHECK_EQ(differ, 0);
  }
}

TEST(two_biases_of_unlike_length) {
  const Shape shape{90, 70, 30};
  const OneNode node(
      "clamp", {{DType::kInt64, shape}, {DType::kInt64, {30}}, {DType::kInt64, {70, 30}}}, {});
  std::vector<int64_t> x(static_cast<size_t>(shape.num_elements()));
  std::vector<int64_t> low(30);
  std::vector<int64_t> high(2100);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<int64_t>(i * 7919 % 4000) - 1000;
  for (size_t i = 0; i < low.size(); ++i) low[i] = static_cast<int64_t>(i);
  for (size_t i = 0; i < high.size(); ++i) high[i] = static_cast<int64_t>(i + 40);
  const std::vector<int64_t> y = node.values<int64_t>({x.data(), low.data(), high.data()});
  int differ = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    differ += y[i] != std::min(std::max(x[i], low[i % 30]), high[i % 2100]);
  }
  CHECK_EQ(differ, 0);
}

TEST(where_and_cast_and_parameters) {
  const uint8_t condition[] = {1, 0};
  const uint16_t a[] = {0x3c00, 0x4000, 0x4200, 0x4400};
  const uint16_t b[] = {0x7e00};
  const OneNode where(
      "where", {{DType::kBool, {2, 1}}, {DType::kFloat16, {2, 2}}, {DType::kFloat16, {}}}, {});
  CHECK_EQ(where.values<uint16_t>({condition, a, b}),
           (std::vector<uint16_t>{0x3c00, 0x4000, 0x7e00, 0x7e00}));
  const OneNode cast("cast", {{DType::kFloat16, {4}}}, {DType::kInt8});
  CHECK_EQ(cast.values<int8_t>({a}), (std::vector<int8_t>{1, 2, 3, 4}));
  const float x[] = {-2.0f, 4.0f};
  const OneNode leaky("leaky_relu", {{DType::kFloat32, {2}}}, {0.25});
  CHECK_EQ(leaky.values<float>({x}), (std::vector<float>{-0.5f, 4.0f}));
  const OneNode exact("gelu", {{DType::kFloat32, {2}}}, {std::string("none")});
  const OneNode by_tanh("gelu", {{DType::kFloat32, {2}}}, {std::string("tanh")});
  CHECK_EQ(exact.values<float>({x})[0], -0.0455002636f);
  CHECK(std::abs(by_tanh.values<float>({x})[0] + 0.0454023059f) < 1e-8f);
}

TEST(dtypes_without_meaning_have_no_kernel) {
  const DType b = DType::kBool;
  CHECK(OneNode("add", {{b, {2}}, {b, {2}}}, {}).has_kernel());
  CHECK(maker_of("sub") != nullptr);
  CHECK(maker_of("matmul") == nullptr);
}

TEST(every_elementwise_operation_has_a_kernel) {
  for (const auto family :
       {ops::pointwise_ops, ops::comparison_ops, ops::create_ops, ops::random_ops}) {
    for (const ir::Op& op : family()) {
      if (maker_of(op.name) == nullptr) std::cerr << op.name << " has no kernel\n";
      CHECK(maker_of(op.name) != nullptr);
    }
  }
}

TEST(creation) {
  const OneNode full("full", {}, {ir::Ints{2, 2}, DType::kInt16, int64_t{-3}});
  CHECK_EQ(full.values<int16_t>({}), (std::vector<int16_t>{-3, -3, -3, -3}));
  const OneNode half("full", {}, {ir::Ints{1}, DType::kBFloat16, 1.0});
  CHECK_EQ(half.values<uint16_t>({}), (std::vector<uint16_t>{0x3f80}));
  const OneNode whole("arange", {}, {int64_t{5}, int64_t{-2}, int64_t{4}, DType::kInt64});
  CHECK_EQ(whole.values<int64_t>({}), (std::vector<int64_t>{5, 3, 1, -1}));
  const OneNode real("arange", {}, {0.0, 0.1, int64_t{5000}, DType::kFloat64});
  const std::vector<double> steps = real.values<double>({});
  CHECK_EQ(steps[4999], 4999 * 0.1);
  const std::string data = "\x01\x02\x03";
  const OneNode constant("constant", {}, {data, ir::Ints{3}, DType::kUInt8});
  CHECK_EQ(constant.values<uint8_t>({}), (std::vector<uint8_t>{1, 2, 3}));
}

using Words4 = std::array<uint32_t, 4>;

/// Philox-4x32-10 as the paper writes it, for any counter.
Words4 philox(Words4 counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

TEST(philox_known_answers) {
  // Random123 1.14, kat_vectors, philox4x32 10.
  constexpr uint32_t kOnes = 0xffffffffu;
  CHECK(philox({0, 0, 0, 0}, {0, 0}) == Words4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}) ==
        Words4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  constexpr uint64_t kSeed = 0x123456789abcdef0u;
  constexpr uint64_t kCounter = 0x7fffffff0u;  // the lower word overflows on the way
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (!supports(isa)) continue;
    uint32_t words[4 * 37];
    random_functions(isa).words(kSeed, kCounter, 37, words);
    for (uint64_t i = 0; i < 37; ++i) {
      const uint64_t at = kCounter + i;
      const Words4 want = philox({static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), 0, 0},
                                 {0x9abcdef0u, 0x12345678u});
      CHECK(std::equal(want.begin(), want.end(), words + 4 * i));
    }
  }
}

TEST(draws_have_equal_bits_on_all_instruction_sets) {
  constexpr int64_t kCount = 4096;
  std::vector<uint32_t> words(kCount);
  random_functions(Isa::kBaseline).words(11, 5, kCount / 4, words.data());
  words[0] = 0;
  words[1] = 0xffffffffu;
  words[2] = 0xffffffffu;
  std::vector<std::vector<char>> results;
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (!supports(isa)) continue;
    const RandomFunctions functions = random_functions(isa);
    std::vector<char> bytes(kCount * 8 * 4 + kCount * 4);
    double* doubles = reinterpret_cast<double*>(bytes.data());
    functions.normal(words.data(), kCount, doubles);
    functions.uniform_double(words.data(), kCount, doubles + kCount);
    int64_t* whole = reinterpret_cast<int64_t*>(doubles + 2 * kCount);
    functions.integers(words.data(), kCount, -5, 1000, whole);
    functions.integers(words.data(), kCount, -5, uint64_t{1} << 60, whole + kCount);
    functions.uniform_float(words.data(), kCount, 24, reinterpret_cast<float*>(whole + 2 * kCount));
    results.push_back(std::move(bytes));
  }
  for (const auto& result : results) CHECK(result == results[0]);
}

TEST(uniform_and_normal_moments) {
  const int64_t rng[2] = {42, 7};
  const int64_t count = 400001;
  const OneNode uniform("uniform", {{DType::kInt64, {2}}},
                        {ir::Ints{count}, DType::kFloat32, int64_t{3}});
  const OneNode normal("normal", {{DType::kInt64, {2}}},
                       {ir::Ints{count}, DType::kFloat32, int64_t{3}});
  double sums[4] = {};
  bool in_range = true;
  for (const float u : uniform.values<float>({rng})) {
    in_range = in_range && u >= 0.0f && u < 1.0f;
    sums[0] += static_cast<double>(u);
    sums[1] += static_cast<double>(u * u);
  }
  for (const float z : normal.values<float>({rng})) {
    in_range = in_range && std::isfinite(z);
    sums[2] += static_cast<double>(z);
    sums[3] += static_cast<double>(z * z);
  }
  const double n = static_cast<double>(count);
  CHECK(in_range);
  // Five standard deviations of each mean.
  CHECK(std::abs(sums[0] / n - 0.5) < 5.0 * 0.2887 / std::sqrt(n));
  CHECK(std::abs(sums[1] / n - 1.0 / 3.0) < 5.0 * 0.2981 / std::sqrt(n));
  CHECK(std::abs(sums[2] / n) < 5.0 / std::sqrt(n));
  CHECK(std::abs(sums[3] / n - 1.0) < 5.0 * 1.4142 / std::sqrt(n));
}

TEST(draws_do_not_depend_on_slicing_or_threads) {
  const int64_t rng[2] = {-9, 100};
  for (const std::string_view op : {"uniform", "normal"}) {
    for (const DType dtype : {DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
      const OneNode all(op, {{DType::kInt64, {2}}}, {ir::Ints{100000}, dtype, int64_t{0}});
      const std::vector<char> whole = all.run({rng})[0];
      const OneNode part(op, {{DType::kInt64, {2}}}, {ir::Ints{4099}, dtype, int64_t{12345}});
      const std::vector<char> piece = part.run({rng})[0];
      CHECK(std::equal(piece.begin(), piece.end(), whole.begin() + 4 * 12345 * size_bytes(dtype)));
      const int threads = num_threads();
      set_num_threads(1);
      CHECK(all.run({rng})[0] == whole);
      set_num_threads(threads);
    }
  }
}

TEST(run_time_offset_is_read_at_each_run) {
  const int64_t rng[2] = {1, 10};
  const int64_t later[2] = {1, 15};
  OneNode node("uniform", {{DType::kInt64, {2}}}, {ir::Ints{9}, DType::kFloat32, int64_t{5}});
  const std::vector<float> first = node.values<float>({rng});
  node.attrs()[2] = int64_t{0};
  CHECK(node.values<float>({rng}) != first);
  CHECK(node.values<float>({later}) == first);
}

TEST(random_int_covers_its_range) {
  const int64_t rng[2] = {3, 0};
  const OneNode dice("random_int", {{DType::kInt64, {2}}},
                     {int64_t{-1}, int64_t{5}, ir::Ints{60001}, DType::kInt8, int64_t{0}});
  std::vector<int64_t> seen(6);
  for (const int8_t value : dice.values<int8_t>({rng})) {
    CHECK(value >= -1 && value < 5);
    ++seen[static_cast<size_t>(value + 1)];
  }
  for (const int64_t times : seen) CHECK(std::abs(times - 10000) < 500);
}

TEST(dropout_keeps_and_scales) {
  const int64_t rng[2] = {5, 0};
  const int64_t count = 100003;
  const std::vector<float> x(static_cast<size_t>(count), 3.0f);
  const OneNode node("dropout", {{DType::kFloat32, {count}}, {DType::kInt64, {2}}},
                     {0.25, int64_t{0}});
  const OneNode uniform("uniform", {{DType::kInt64, {2}}},
                        {ir::Ints{count}, DType::kFloat32, int64_t{0}});
  const auto y = node.values<float>({x.data(), rng});
  const auto mask = node.values<uint8_t>({x.data(), rng}, 1);
  const auto draws = uniform.values<float>({rng});
  int differ = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    differ += (mask[i] == 1) != (draws[i] >= 0.25f);
    differ += y[i] != (mask[i] == 1 ? 3.0f * static_cast<float>(1.0 / 0.75) : 0.0f);
  }
  CHECK_EQ(differ, 0);
  const OneNode none("dropout", {{DType::kFloat32, {count}}, {DType::kInt64, {2}}},
                     {1.0, int64_t{0}});
  const OneNode all("dropout", {{DType::kFloat32, {count}}, {DType::kInt64, {2}}},
                    {0.0, int64_t{0}});
  CHECK(none.values<float>({x.data(), rng}) == std::vector<float>(x.size(), 0.0f));
  CHECK(none.values<uint8_t>({x.data(), rng}, 1) == std::vector<uint8_t>(x.size(), 0));
  CHECK(all.values<float>({x.data(), rng}) == x);
}

}  // namespace

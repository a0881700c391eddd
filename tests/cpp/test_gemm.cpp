// Products against plain loops, and their bits over threads, cuts and batches.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "backends/cpu/engine/block_product.h"
#include "backends/cpu/engine/gemm.h"
#include "backends/cpu/engine/self_check.h"
#include "backends/cpu/threads/team.h"
#include "support/errors.h"
#include "testing.h"

namespace lucid::cpu {
namespace {

template <class T>
std::vector<T> numbers(int64_t count, uint32_t seed) {
  std::vector<T> result;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    result.push_back(static_cast<T>(seed >> 8) / static_cast<T>(1 << 23) - T{1});
  }
  return result;
}

struct AlignedBytes {
  explicit AlignedBytes(size_t size)
      : data(size == 0 ? nullptr : ::operator new(size, std::align_val_t(64))) {}
  ~AlignedBytes() { ::operator delete(data, std::align_val_t(64)); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  void* data;
};

/// Operands of a product, and the number of the matrices that they hold.
template <class T>
struct Case {
  GemmSpec spec;
  std::vector<T> a;
  std::vector<T> b;
  std::vector<T> bias;
  int64_t count = 1;

  explicit Case(const GemmSpec& of) : spec(of) {
    spec.dtype = sizeof(T) == 8 ? DType::kFloat64 : DType::kFloat32;
    int64_t last_a = 0;
    int64_t last_b = 0;
    for (size_t i = 0; i < spec.batch.size(); ++i) {
      count *= spec.batch[i];
      last_a += (spec.batch[i] - 1) * spec.a_steps[i];
      last_b += (spec.batch[i] - 1) * spec.b_steps[i];
    }
    a = numbers<T>((last_a + 1) * spec.m * spec.k, 1);
    b = numbers<T>((last_b + 1) * spec.k * spec.n, 2);
    bias = numbers<T>(spec.n, 3);
  }

  std::vector<T> run() const {
    const auto gemm = make_gemm(spec);
    const AlignedBytes scratch(gemm->scratch_bytes());
    std::vector<T> c(static_cast<size_t>(count * spec.m * spec.n), T{-7});
    gemm->run(a.data(), b.data(), spec.bias ? bias.data() : nullptr, c.data(), scratch.data);
    return c;
  }

  /// One chain of multiply-adds an element, in the arithmetic of R.
  template <class R>
  R expected(int64_t item, int64_t i, int64_t j) const {
    int64_t a_item = 0;
    int64_t b_item = 0;
    for (size_t axis = spec.batch.size(); axis-- > 0;) {
      a_item += item % spec.batch[axis] * spec.a_steps[axis];
      b_item += item % spec.batch[axis] * spec.b_steps[axis];
      item /= spec.batch[axis];
    }
    R sum = 0;
    for (int64_t p = 0; p < spec.k; ++p) {
      const int64_t in_a = spec.transpose_a ? p * spec.m + i : i * spec.k + p;
      const int64_t in_b = spec.transpose_b ? j * spec.k + p : p * spec.n + j;
      sum = std::fma(static_cast<R>(a[static_cast<size_t>(a_item * spec.m * spec.k + in_a)]),
                     static_cast<R>(b[static_cast<size_t>(b_item * spec.k * spec.n + in_b)]), sum);
    }
    return spec.bias ? sum + static_cast<R>(bias[static_cast<size_t>(j)]) : sum;
  }
};

std::string describe(const GemmSpec& spec) {
  return std::to_string(spec.m) + "x" + std::to_string(spec.n) + "x" + std::to_string(spec.k) +
         (spec.transpose_a ? "T" : "N") + (spec.transpose_b ? "T" : "N");
}

/// Checks some elements of every product. A chain of k terms of magnitude 1/3 reaches about
/// sqrt(k) / 3, and its k roundings add up like a random walk: k epsilons bound the error well.
template <class T>
void check_close(const GemmSpec& spec) {
  const double bound = std::numeric_limits<T>::epsilon() * static_cast<double>(spec.k + 2);
  const Case<T> given(spec);
  const std::vector<T> c = given.run();
  const int64_t step = 1 + static_cast<int64_t>(c.size()) / 3000;
  double worst = 0;
  for (int64_t at = 0; at < static_cast<int64_t>(c.size()); at += step) {
    const int64_t item = at / (spec.m * spec.n);
    const auto expected = given.template expected<double>(item, at / spec.n % spec.m, at % spec.n);
    const double error = std::abs(static_cast<double>(c[static_cast<size_t>(at)]) - expected);
    worst = std::isnan(error) ? error : std::max(worst, error / bound);
  }
  if (!(worst <= 1.0)) {
    testing::fail(__FILE__, __LINE__,
                  describe(spec) + " is off by " + std::to_string(worst) + " bounds");
  }
}

std::vector<GemmSpec> all_forms(int64_t m, int64_t n, int64_t k) {
  std::vector<GemmSpec> result;
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const bool bias : {false, true}) {
        result.push_back({.m = m,
                          .n = n,
                          .k = k,
                          .transpose_a = transpose_a,
                          .transpose_b = transpose_b,
                          .bias = bias});
      }
    }
  }
  return result;
}

template <class T>
bool same_bits(const std::vector<T>& lhs, const std::vector<T>& rhs) {
  return lhs.size() == rhs.size() &&
         (lhs.empty() || std::memcmp(lhs.data(), rhs.data(), lhs.size() * sizeof(T)) == 0);
}

/// Checks that 1 to 4 threads give the same bits.
template <class T>
void check_threads(const GemmSpec& spec) {
  const Case<T> given(spec);
  const int before = num_threads();
  set_num_threads(1);
  const std::vector<T> alone = given.run();
  for (int threads = 2; threads <= 4; ++threads) {
    set_num_threads(threads);
    if (!same_bits(given.run(), alone)) {
      testing::fail(__FILE__, __LINE__,
                    describe(spec) + " differs with " + std::to_string(threads) + " threads");
    }
  }
  set_num_threads(before);
}

TEST(small_products_are_right) {
  const int64_t sizes[][3] = {{1, 1, 1},    {1, 17, 5},   {2, 3, 4},    {7, 13, 5},    {12, 32, 16},
                              {13, 33, 17}, {32, 10, 64}, {5, 1, 300},  {1, 100, 257}, {100, 1, 77},
                              {65, 31, 9},  {3, 70, 513}, {200, 40, 30}};
  for (const auto& size : sizes) {
    for (const GemmSpec& spec : all_forms(size[0], size[1], size[2])) {
      check_close<float>(spec);
      check_close<double>(spec);
    }
  }
}

TEST(large_products_are_right) {
  const int64_t sizes[][3] = {
      {300, 257, 260}, {130, 1030, 1100}, {1024, 130, 513}, {600, 1100, 300}};
  for (const auto& size : sizes) {
    for (const GemmSpec& spec : all_forms(size[0], size[1], size[2])) {
      check_close<float>(spec);
      check_close<double>(spec);
    }
  }
}

TEST(threads_do_not_change_bits) {
  const int64_t sizes[][3] = {{64, 256, 784},  {257, 300, 260}, {130, 520, 1100},
                              {700, 530, 600}, {1, 4000, 600},  {4000, 1, 600}};
  for (const auto& size : sizes) {
    for (const GemmSpec& spec : all_forms(size[0], size[1], size[2])) {
      check_threads<float>(spec);
      check_threads<double>(spec);
    }
  }
}

TEST(small_products_are_one_chain_of_fma) {
  if (active_isa() == Isa::kBaseline) return;  // x86-64 without fma rounds twice
  for (const GemmSpec& spec : all_forms(29, 45, 300)) {
    const Case<float> given(spec);
    const std::vector<float> c = given.run();
    int wrong = 0;
    for (int64_t i = 0; i < spec.m; ++i) {
      for (int64_t j = 0; j < spec.n; ++j) {
        wrong += given.expected<float>(0, i, j) != c[static_cast<size_t>(i * spec.n + j)];
      }
    }
    CHECK_EQ(wrong, 0);
  }
}

TEST(a_slice_of_a_block_product_has_the_bits_of_the_whole) {
  constexpr int64_t kM = 50;
  constexpr int64_t kN = 70;
  constexpr int64_t kK = 530;
  const auto a = numbers<float>(kM * kK, 1);
  const auto b = numbers<float>(kK * kN, 2);
  std::vector<float> whole(kM * kN);
  std::vector<float> sliced(kM * kN);
  BlockProduct<float> product{.a = a.data(),
                              .a_row = kK,
                              .a_depth = 1,
                              .b = b.data(),
                              .b_depth = 1,
                              .b_column = kK,
                              .c = whole.data(),
                              .c_row = kN,
                              .m = kM,
                              .n = kN,
                              .k = kK};
  block_product(product);
  for (int64_t column = 0; column < kN; column += 9) {
    for (int64_t depth = 0; depth < kK; depth += 100) {  // the chains go on in c
      BlockProduct<float> part = product;
      part.a += depth;
      part.b += depth + column * kK;
      part.c = sliced.data() + column;
      part.n = std::min<int64_t>(9, kN - column);
      part.k = std::min<int64_t>(100, kK - depth);
      part.accumulate = depth > 0;
      block_product(part);
    }
  }
  CHECK(same_bits(sliced, whole));
}

// Where rows of c are whole lines of memory and where they are not.
TEST(results_past_the_caches_have_the_bits_of_a_slice) {
  constexpr int64_t kM = 2050;
  constexpr int64_t kK = 20;
  constexpr int64_t kRows = 40;  // the last ones: too few to go past the caches
  for (const int64_t n : {2064, 2051}) {
    const Case<float> given({.m = kM, .n = n, .k = kK, .transpose_b = true, .bias = true});
    const auto gemm = make_gemm(given.spec);
    const AlignedBytes scratch(gemm->scratch_bytes());
    const AlignedBytes memory(static_cast<size_t>(kM * n + 1) * sizeof(float));
    BlockProduct<float> slice{.a = given.a.data() + (kM - kRows) * kK,
                              .a_row = kK,
                              .a_depth = 1,
                              .b = given.b.data(),
                              .b_depth = 1,
                              .b_column = kK,
                              .c = nullptr,
                              .c_row = n,
                              .m = kRows,
                              .n = n,
                              .k = kK};
    std::vector<float> expected(static_cast<size_t>(kRows * n));
    slice.c = expected.data();
    slice.bias = given.bias.data();
    block_product(slice);
    for (const int64_t offset : {0, 1}) {
      float* const c = static_cast<float*>(memory.data) + offset;
      gemm->run(given.a.data(), given.b.data(), given.bias.data(), c, scratch.data);
      CHECK(std::equal(expected.begin(), expected.end(), c + (kM - kRows) * n));
    }
  }
}

TEST(batches_broadcast) {
  const int64_t sizes[][3] = {{5, 7, 9}, {40, 33, 20}, {150, 140, 1100}};
  for (const auto& size : sizes) {
    for (GemmSpec spec : all_forms(size[0], size[1], size[2])) {
      spec.batch = {2, 1, 3};
      spec.a_steps = {3, 0, 1};  // (2, 1, 3) matrices against (3,), (2, 1, 1) and one
      for (const std::vector<int64_t>& b_steps :
           {std::vector<int64_t>{0, 0, 1}, {1, 0, 0}, {0, 0, 0}}) {
        spec.b_steps = b_steps;
        check_close<float>(spec);
        check_threads<float>(spec);
      }
    }
  }
}

TEST(panels_kept_in_a_workspace_give_the_same_bits) {
  constexpr int64_t kM = 450;  // three or four blocks of rows
  constexpr int64_t kN = 75;
  constexpr int64_t kK = 1060;  // two blocks of the depth
  const auto a = numbers<float>(kM * kK, 1);
  const auto b = numbers<float>(kK * kN, 2);
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      std::vector<float> c[2] = {std::vector<float>(kM * kN), std::vector<float>(kM * kN)};
      const int64_t columns = (kN + kMaxPanelColumns - 1) / kMaxPanelColumns * kMaxPanelColumns;
      constexpr int64_t kDepth = kPanelDepthBytes / sizeof(float);
      std::vector<float> workspace(static_cast<size_t>(columns * kDepth) + 1, -7.0f);
      for (const bool kept : {false, true}) {
        block_product(BlockProduct<float>{.a = a.data(),
                                          .a_row = transpose_a ? 1 : kK,
                                          .a_depth = transpose_a ? kM : 1,
                                          .b = b.data(),
                                          .b_depth = transpose_b ? 1 : kN,
                                          .b_column = transpose_b ? kK : 1,
                                          .c = c[kept ? 1 : 0].data(),
                                          .c_row = kN,
                                          .m = kM,
                                          .n = kN,
                                          .k = kK,
                                          .workspace = kept ? workspace.data() : nullptr});
      }
      CHECK(same_bits(c[0], c[1]));
      CHECK(workspace[0] != -7.0f);       // it was used
      CHECK_EQ(workspace.back(), -7.0f);  // and not overrun
    }
  }
}

TEST(depth_zero_gives_zeros_or_bias) {
  const Case<float> plain({.m = 3, .n = 5, .k = 0});
  CHECK(plain.run() == std::vector<float>(15, 0.0f));
  const Case<double> with_bias({.m = 20, .n = 3, .k = 0, .bias = true});
  const std::vector<double> c = with_bias.run();
  for (size_t i = 0; i < c.size(); ++i) CHECK_EQ(c[i], with_bias.bias[i % 3]);
}

TEST(empty_products_write_nothing) {
  CHECK(Case<float>({.m = 0, .n = 5, .k = 3}).run().empty());
  CHECK(Case<float>({.m = 5, .n = 0, .k = 3}).run().empty());
  CHECK(Case<float>({.m = 5, .n = 4, .k = 3, .batch = {0}, .a_steps = {1}, .b_steps = {1}})
            .run()
            .empty());
}

TEST(other_dtypes_are_refused) {
  CHECK_THROWS(make_gemm({.m = 1, .n = 1, .k = 1, .dtype = DType::kInt32}), Error,
               "matmul: no product of dtype int32");
}

TEST(the_engine_has_a_name) {
  CHECK(!engine_name().empty());
  CHECK_EQ(library_products_are_sound(), engine_name().starts_with("oneDNN"));
}

}  // namespace
}  // namespace lucid::cpu

#include "backends/cpu/engine/self_check.h"

#if defined(LUCID_HAS_ONEDNN)
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "backends/cpu/engine/onednn.h"
#endif

namespace lucid::cpu {

#if defined(LUCID_HAS_ONEDNN)
namespace {

// Depth beyond the library's longest chain (1024), and tails in every direction.
constexpr int64_t kRows = 24;
constexpr int64_t kFirstSlicedRow = 13;
constexpr int64_t kColumns = 24;
constexpr int64_t kDepth = 1100;
constexpr double kTolerance = 1e-5;  // relative to the sum of the terms' magnitudes

/// Numbers between -1 and 1 from a linear congruential generator (Knuth, TAOCP 2, 3.3.4, table 1).
std::vector<float> numbers(int64_t count, uint32_t seed) {
  std::vector<float> result;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    result.push_back(static_cast<float>(seed >> 8) * 0x1p-23f - 1.0f);
  }
  return result;
}

struct Operands {
  std::vector<float> a = numbers(kRows * kDepth, 1);
  std::vector<float> b = numbers(kDepth * kColumns, 2);
  std::vector<float> bias = numbers(kColumns, 3);
};

/// Empty if the library has no kernel for it that keeps the bits of rows.
std::vector<float> run_rows(const Operands& x, int64_t first, bool transpose_b) {
  const onednn::Product product(kRows - first, kColumns, kDepth, transpose_b, true);
  if (!product.keeps_bits_of_rows()) return {};
  std::vector<float> c(static_cast<size_t>((kRows - first) * kColumns));
  std::vector<char> scratch(product.scratch_bytes() + 64);
  void* aligned = scratch.data();
  size_t space = scratch.size();
  std::align(64, product.scratch_bytes(), aligned, space);
  const onednn::OneThread guard;
  product.run(x.a.data() + first * kDepth, x.b.data(), x.bias.data(), c.data(), aligned);
  return c;
}

bool is_close(const Operands& x, const std::vector<float>& c, bool transpose_b) {
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kColumns; ++j) {
      double sum = x.bias[static_cast<size_t>(j)];
      double magnitude = std::abs(sum);
      for (int64_t p = 0; p < kDepth; ++p) {
        const int64_t at = transpose_b ? j * kDepth + p : p * kColumns + j;
        const double term = static_cast<double>(x.a[static_cast<size_t>(i * kDepth + p)]) *
                            static_cast<double>(x.b[static_cast<size_t>(at)]);
        sum += term;
        magnitude += std::abs(term);
      }
      const double error =
          std::abs(sum - static_cast<double>(c[static_cast<size_t>(i * kColumns + j)]));
      if (!(error <= kTolerance * magnitude)) return false;
    }
  }
  return true;
}

bool is_sound(const Operands& x, bool transpose_b) {
  const std::vector<float> whole = run_rows(x, 0, transpose_b);
  const std::vector<float> slice = run_rows(x, kFirstSlicedRow, transpose_b);
  if (whole.empty() || slice.empty()) return false;
  return std::memcmp(slice.data(), whole.data() + kFirstSlicedRow * kColumns,
                     slice.size() * sizeof(float)) == 0 &&
         is_close(x, whole, transpose_b);
}

bool check() {
  if (!onednn::runs_on_one_thread()) return false;
  try {
    const Operands operands;
    return is_sound(operands, false) && is_sound(operands, true);
  } catch (const dnnl::error&) {
    return false;  // the library cannot work here; engine_name() tells
  }
}

}  // namespace

bool library_products_are_sound() {
  static const bool sound = check();
  return sound;
}
#else
bool library_products_are_sound() { return false; }
#endif

}  // namespace lucid::cpu

#if defined(LUCID_HAS_CBLAS)
#include "backends/cpu/engine/cblas.h"

#include <algorithm>
#include <limits>

#include "backends/cpu/engine/batch_offsets.h"
#include "backends/cpu/engine/sizes.h"
#include "backends/cpu/threads/team.h"

#define LUCID_JOIN_NAMES(a, b) a##b
#define LUCID_PREFIXED(prefix, name) LUCID_JOIN_NAMES(prefix, name)
#if !defined(LUCID_CBLAS_PREFIX)
#define LUCID_CBLAS_PREFIX
#endif
#define LUCID_SGEMM LUCID_PREFIXED(LUCID_CBLAS_PREFIX, cblas_sgemm)
#define LUCID_BLAS_THREADS LUCID_PREFIXED(LUCID_CBLAS_PREFIX, openblas_set_num_threads)

// The C interface of BLAS (netlib.org/blas/blast-forum, appendix B.2.3), with its enums as int.
extern "C" void LUCID_SGEMM(int order, int transpose_a, int transpose_b, int m, int n, int k,
                            float alpha, const float* a, int lda, const float* b, int ldb,
                            float beta, float* c, int ldc);
// OpenBLAS only: its bits depend on its number of threads.
extern "C" __attribute__((weak)) void LUCID_BLAS_THREADS(int count);

namespace lucid::cpu {
namespace {

constexpr int kRowMajor = 101;
constexpr int kNoTranspose = 111;
constexpr int kTranspose = 112;
constexpr int64_t kSliceRows = 256;  // fixed: BLAS may give a row other bits in another slice
constexpr double kFlopsPerNs = 50.0;

class CblasGemm final : public Gemm {
 public:
  explicit CblasGemm(const GemmSpec& spec)
      : spec_(spec), offsets_(spec), slices_(divide_up(spec.m, kSliceRows)) {
    if (LUCID_BLAS_THREADS != nullptr) LUCID_BLAS_THREADS(1);
  }

  void run(const void* a, const void* b, const void* bias, void* c, void*) const override {
    const double slice_ns = 2.0 * static_cast<double>(std::min(spec_.m, kSliceRows) * spec_.n) *
                            static_cast<double>(spec_.k) / kFlopsPerNs;
    parallel_for(offsets_.count() * slices_, 1, slice_ns, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        run_slice(static_cast<const float*>(a), static_cast<const float*>(b),
                  spec_.bias ? static_cast<const float*>(bias) : nullptr, static_cast<float*>(c),
                  task);
      }
    });
  }

 private:
  void run_slice(const float* a, const float* b, const float* bias, float* c, int64_t task) const {
    const int64_t item = task / slices_;
    const int64_t row = task % slices_ * kSliceRows;
    const int64_t rows = std::min(kSliceRows, spec_.m - row);
    const int m = static_cast<int>(rows);
    const int n = static_cast<int>(spec_.n);
    const int k = static_cast<int>(spec_.k);
    a += offsets_.a(item) * spec_.m * spec_.k + row * (spec_.transpose_a ? 1 : spec_.k);
    b += offsets_.b(item) * spec_.k * spec_.n;
    c += (item * spec_.m + row) * spec_.n;
    LUCID_SGEMM(kRowMajor, spec_.transpose_a ? kTranspose : kNoTranspose,
                spec_.transpose_b ? kTranspose : kNoTranspose, m, n, k, 1.0f, a,
                spec_.transpose_a ? static_cast<int>(spec_.m) : k, b, spec_.transpose_b ? k : n,
                0.0f, c, n);
    if (bias == nullptr) return;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < spec_.n; ++j) c[i * spec_.n + j] += bias[j];
    }
  }

  GemmSpec spec_;
  BatchOffsets offsets_;
  int64_t slices_;
};

}  // namespace

std::unique_ptr<Gemm> make_cblas_gemm(const GemmSpec& spec) {
  constexpr int64_t kMaxSize = std::numeric_limits<int>::max();
  if (std::max({spec.m, spec.n, spec.k}) > kMaxSize) return nullptr;
  return std::make_unique<CblasGemm>(spec);
}

}  // namespace lucid::cpu
#endif

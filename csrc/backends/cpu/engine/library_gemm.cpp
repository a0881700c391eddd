#include "backends/cpu/engine/library_gemm.h"

#include <algorithm>
#include <utility>

#include "backends/cpu/engine/batch_offsets.h"
#include "backends/cpu/engine/self_check.h"
#include "backends/cpu/engine/sizes.h"
#include "backends/cpu/engine/slots.h"
#if defined(LUCID_HAS_ONEDNN)
#include "backends/cpu/engine/onednn.h"
#elif defined(LUCID_HAS_CBLAS)
#include "backends/cpu/engine/cblas.h"
#endif

namespace lucid::cpu {

#if defined(LUCID_HAS_ONEDNN)
namespace {

constexpr double kFlopsPerNs = 80.0;
constexpr int64_t kGoodRows = 256;  // b is packed for each slice: 5 % of the work at 128 rows
constexpr int64_t kMinRows = 64;
constexpr int64_t kRowUnit = 16;
constexpr int64_t kSlicesPerThread = 2;
constexpr int64_t kLongSums = 2;  // depth over columns

/// The library gains 2 to 5 % where few columns take long sums; elsewhere our own engine is as fast
/// and ready at once. A transposed operand it would have to copy.
bool gains(const GemmSpec& spec) {
  return !spec.transpose_a && !spec.transpose_b && spec.k >= kLongSums * spec.n;
}

/// Rows of a slice. The library gives a row the same bits in any slice.
int64_t choose_rows(int64_t m, int64_t batch) {
  if (num_threads() == 1) return m;
  const int64_t good =
      std::clamp<int64_t>(m / kGoodRows, 1, divide_up(num_threads() * kSlicesPerThread, batch));
  const int64_t needed = std::clamp<int64_t>(m / kMinRows, 1, divide_up(num_threads(), batch));
  const int64_t rows = divide_up(m, std::max(good, needed));
  return std::min(m, divide_up(rows, kRowUnit) * kRowUnit);
}

/// Slices of the rows of a dense a, each by a primitive of one thread.
class OneDnnGemm final : public Gemm {
 public:
  explicit OneDnnGemm(const GemmSpec& spec)
      : spec_(spec),
        offsets_(spec),
        rows_(choose_rows(spec.m, std::max<int64_t>(offsets_.count(), 1))),
        slices_(divide_up(spec.m, rows_)),
        whole_(rows_, spec.n, spec.k, spec.transpose_b, spec.bias),
        last_(spec.m - (slices_ - 1) * rows_, spec.n, spec.k, spec.transpose_b, spec.bias) {
    slot_bytes_ = aligned(std::max(whole_.scratch_bytes(), last_.scratch_bytes()));
    num_slots_ = static_cast<int>(
        std::min<int64_t>(num_threads(), std::max<int64_t>(slices_ * offsets_.count(), 1)));
  }

  bool keeps_bits_of_rows() const {
    return whole_.keeps_bits_of_rows() && last_.keeps_bits_of_rows();
  }
  size_t scratch_bytes() const override { return slot_bytes_ * static_cast<size_t>(num_slots_); }

  void run(const void* a, const void* b, const void* bias, void* c, void* scratch) const override {
    const double slice_ns =
        2.0 * static_cast<double>(rows_ * spec_.n) * static_cast<double>(spec_.k) / kFlopsPerNs;
    for_each_in_slots(
        offsets_.count() * slices_, num_slots_, slice_ns, [&](int64_t slot, int64_t task) {
          run_slice(static_cast<const float*>(a), static_cast<const float*>(b),
                    spec_.bias ? static_cast<const float*>(bias) : nullptr, static_cast<float*>(c),
                    static_cast<char*>(scratch) + static_cast<size_t>(slot) * slot_bytes_, task);
        });
  }

 private:
  void run_slice(const float* a, const float* b, const float* bias, float* c, char* scratch,
                 int64_t task) const {
    const int64_t item = task / slices_;
    const int64_t slice = task % slices_;
    const int64_t row = slice * rows_;
    a += (offsets_.a(item) * spec_.m + row) * spec_.k;
    b += offsets_.b(item) * spec_.k * spec_.n;
    c += (item * spec_.m + row) * spec_.n;
    const onednn::OneThread guard;
    const onednn::Product& product = slice + 1 == slices_ ? last_ : whole_;
    product.run(a, b, bias, c, scratch);
  }

  GemmSpec spec_;
  BatchOffsets offsets_;
  int64_t rows_;
  int64_t slices_;
  onednn::Product whole_;
  onednn::Product last_;
  size_t slot_bytes_ = 0;
  int num_slots_ = 1;
};

}  // namespace

std::unique_ptr<Gemm> make_library_gemm(const GemmSpec& spec) {
  if (!gains(spec) || !library_products_are_sound()) return nullptr;
  auto gemm = std::make_unique<OneDnnGemm>(spec);
  if (!gemm->keeps_bits_of_rows()) return nullptr;
  return gemm;
}

std::string library_name() {
  return library_products_are_sound() ? onednn::version()
                                      : "own (" + onednn::version() + " failed its self-check)";
}

#elif defined(LUCID_HAS_CBLAS)

std::unique_ptr<Gemm> make_library_gemm(const GemmSpec& spec) { return make_cblas_gemm(spec); }
std::string library_name() { return "CBLAS"; }

#else

std::unique_ptr<Gemm> make_library_gemm(const GemmSpec&) { return nullptr; }
std::string library_name() { return "own"; }

#endif

}  // namespace lucid::cpu

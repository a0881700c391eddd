#include "backends/cpu/engine/gemm.h"

#include <string>
#include <utility>

#include "backends/cpu/engine/batch_offsets.h"
#include "backends/cpu/engine/library_gemm.h"
#include "backends/cpu/engine/own_gemm.h"
#include "support/errors.h"

namespace lucid::cpu {
namespace {

// Below, preparing a product of a library costs more than it can gain.
constexpr double kLibraryFlops = 32e6;
constexpr int64_t kLibraryRows = 128;
constexpr int64_t kLibraryColumns = 32;
constexpr int64_t kLibraryDepth = 32;

bool is_for_library(const GemmSpec& spec) {
  const double flops =
      2.0 * static_cast<double>(spec.m) * static_cast<double>(spec.n) * static_cast<double>(spec.k);
  return spec.dtype == DType::kFloat32 && flops >= kLibraryFlops && spec.m >= kLibraryRows &&
         spec.n >= kLibraryColumns && spec.k >= kLibraryDepth;
}

/// Rows of all items in one matrix, where b is the same for all.
GemmSpec merge_rows(GemmSpec spec) {
  const BatchOffsets offsets(spec);
  if (spec.transpose_a || !offsets.is_one_tall_product()) return spec;
  spec.m *= offsets.count();
  spec.batch.clear();
  spec.a_steps.clear();
  spec.b_steps.clear();
  return spec;
}

}  // namespace

std::unique_ptr<Gemm> make_gemm(GemmSpec spec) {
  if (spec.dtype != DType::kFloat32 && spec.dtype != DType::kFloat64) {
    throw Error(ErrorKind::kUnsupported, "matmul: no product of dtype " +
                                             std::string(name(spec.dtype)) +
                                             "; cast to float32 or float64");
  }
  spec = merge_rows(std::move(spec));
  if (is_for_library(spec)) {
    if (std::unique_ptr<Gemm> gemm = make_library_gemm(spec)) return gemm;
  }
  return make_own_gemm(spec);
}

std::string_view engine_name() {
  static const std::string name = library_name();
  return name;
}

}  // namespace lucid::cpu

// Prepared matrix products: the choice of engine, and how the team shares the work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "support/dtype.h"

namespace lucid::cpu {

/// c[i] = op(a[i]) op(b[i]) + bias for every item i of a batch, op being nothing or a
/// transposition. op(a) is (m, k), op(b) is (k, n), bias is (n,); every matrix is dense and
/// row-major.
struct GemmSpec {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  bool bias = false;
  DType dtype = DType::kFloat32;
  /// Sizes of the batch's axes; c is dense over them.
  std::vector<int64_t> batch = {};
  /// Matrices of a (and b) from one index of an axis to the next; 0 where the axis is broadcast.
  std::vector<int64_t> a_steps = {};
  std::vector<int64_t> b_steps = {};
};

/// A product made ready for its shape. The bits of c depend on the spec and the operands only,
/// never on threads or on where the operands lie. Our own engine gives an element the same bits in
/// every batch and slice; a library, which takes large products, may sum in other chunks.
class Gemm {
 public:
  virtual ~Gemm() = default;
  /// Pointers to the first elements; `bias` may be null unless the spec has one. `scratch` has
  /// scratch_bytes() bytes, 64-byte aligned. May be called from several threads at once.
  virtual void run(const void* a, const void* b, const void* bias, void* c,
                   void* scratch) const = 0;
  virtual size_t scratch_bytes() const { return 0; }
};

/// Prepares a product of float32 or float64. Throws UnsupportedError for other dtypes.
std::unique_ptr<Gemm> make_gemm(GemmSpec spec);

/// What computes large float32 products: "oneDNN 3.2.0", "CBLAS" or "own".
std::string_view engine_name();

}  // namespace lucid::cpu

// What all uses of oneDNN share. Included only where LUCID_HAS_ONEDNN is defined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <dnnl.hpp>
#include <string>

namespace lucid::cpu::onednn {

/// The one engine of the process.
dnnl::engine& engine();

/// True if primitives can be held to one thread: by OpenMP's setting, or in a sequential build.
bool runs_on_one_thread();

/// "oneDNN 3.2.0".
std::string version();

/// While it lives, primitives that this thread makes or runs use this thread alone: a primitive's
/// bits depend on the number of threads, and inside a team it may hang with more than one.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = 0;
};

/// Memory seen through a descriptor. The library does not write through inputs.
dnnl::memory wrap(const dnnl::memory::desc& desc, const void* data);

/// A matrix product of static shape, made for one thread with dense operands.
class Product {
 public:
  /// c (m, n) = a (m, k) b (k, n), plus bias (n,) if wanted; b is stored transposed on demand.
  Product(int64_t m, int64_t n, int64_t k, bool transpose_b, bool bias);

  size_t scratch_bytes() const;
  /// True if an element's bits do not depend on how many rows are computed at once. It holds for
  /// the blocked kernels; the general one ("gemm:jit", all that AVX2 has) blocks by the size of a.
  bool keeps_bits_of_rows() const;
  /// Call under a OneThread. `scratch` is 64-byte aligned.
  void run(const float* a, const float* b, const float* bias, float* c, void* scratch) const;

 private:
  dnnl::matmul::primitive_desc desc_;
  dnnl::matmul primitive_;
};

}  // namespace lucid::cpu::onednn

#if defined(LUCID_HAS_ONEDNN)
#include "backends/cpu/engine/onednn.h"

#include "backends/cpu/simd/isa.h"

#include <dlfcn.h>

#include <unordered_map>

namespace lucid::cpu::onednn {
namespace {

using dnnl::memory;

/// The settings of the OpenMP library that oneDNN uses, found by name: we do not link it.
struct OpenMp {
  void (*set_num_threads)(int) = nullptr;
  int (*get_max_threads)() = nullptr;
};

const OpenMp& openmp() {
  static const OpenMp functions = {
      reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads")),
      reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"))};
  return functions;
}

bool uses_openmp() { return dnnl_version()->cpu_runtime == DNNL_RUNTIME_OMP; }

/// Keeps the library to the instruction set of this process, which LUCID_ISA can lower. It listens
/// until its first primitive is made; on other processors than x86-64 it has no such setting.
void limit_isa() {
  const Isa isa = active_isa();
  if (isa == Isa::kAvx512) return;
  dnnl::set_max_cpu_isa(isa == Isa::kAvx2 ? dnnl::cpu_isa::avx2 : dnnl::cpu_isa::sse41);
}

memory::desc dense(int64_t rows, int64_t columns, bool transposed) {
  return {{rows, columns},
          memory::data_type::f32,
          transposed ? memory::format_tag::ba : memory::format_tag::ab};
}

}  // namespace

dnnl::engine& engine() {
  static dnnl::engine instance = [] {
    limit_isa();
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return instance;
}

bool runs_on_one_thread() {
  if (dnnl_version()->cpu_runtime == DNNL_RUNTIME_SEQ) return true;
  return uses_openmp() && openmp().set_num_threads != nullptr &&
         openmp().get_max_threads != nullptr;
}

std::string version() {
  const dnnl_version_t& v = *dnnl_version();
  return "oneDNN " + std::to_string(v.major) + "." + std::to_string(v.minor) + "." +
         std::to_string(v.patch);
}

OneThread::OneThread() {
  if (!uses_openmp()) return;
  before_ = openmp().get_max_threads();
  if (before_ != 1) openmp().set_num_threads(1);
}

OneThread::~OneThread() {
  if (before_ > 1) openmp().set_num_threads(before_);
}

memory wrap(const memory::desc& desc, const void* data) {
  return memory(desc, engine(), const_cast<void*>(data));
}

Product::Product(int64_t m, int64_t n, int64_t k, bool transpose_b, bool bias) {
  const OneThread guard;
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const memory::desc a = dense(m, k, false);
  const memory::desc b = dense(k, n, transpose_b);
  const memory::desc c = dense(m, n, false);
  desc_ = bias ? dnnl::matmul::primitive_desc(engine(), a, b, dense(1, n, false), c, attr)
               : dnnl::matmul::primitive_desc(engine(), a, b, c, attr);
  primitive_ = dnnl::matmul(desc_);
}

size_t Product::scratch_bytes() const { return desc_.scratchpad_desc().get_size(); }

bool Product::keeps_bits_of_rows() const {
  return std::string_view(desc_.impl_info_str()).starts_with("brg");
}

void Product::run(const float* a, const float* b, const float* bias, float* c,
                  void* scratch) const {
  std::unordered_map<int, memory> args = {
      {DNNL_ARG_SRC, wrap(desc_.src_desc(), a)},
      {DNNL_ARG_WEIGHTS, wrap(desc_.weights_desc(), b)},
      {DNNL_ARG_DST, wrap(desc_.dst_desc(), c)},
      {DNNL_ARG_SCRATCHPAD, wrap(desc_.scratchpad_desc(), scratch)}};
  if (bias != nullptr) args.emplace(DNNL_ARG_BIAS, wrap(desc_.bias_desc(), bias));
  dnnl::stream stream(engine());
  primitive_.execute(stream, args);
  stream.wait();
}

}  // namespace lucid::cpu::onednn
#endif

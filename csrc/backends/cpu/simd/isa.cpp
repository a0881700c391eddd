#include "backends/cpu/simd/isa.h"

#include <cstdlib>
#include <string_view>

namespace lucid::cpu {
namespace {

Isa find_active() {
  Isa best = supports(Isa::kAvx512) ? Isa::kAvx512
             : supports(Isa::kAvx2) ? Isa::kAvx2
                                    : Isa::kBaseline;
  const char* text = std::getenv("LUCID_ISA");
  if (text == nullptr) return best;
  const std::string_view wanted = text;
  if (wanted == "baseline") best = Isa::kBaseline;
  if (wanted == "avx2" && best > Isa::kAvx2) best = Isa::kAvx2;
  return best;
}

}  // namespace

bool supports(Isa isa) {
  if (isa == Isa::kBaseline) return true;
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi2");
  if (isa == Isa::kAvx2) return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

Isa active_isa() {
  static const Isa isa = find_active();
  return isa;
}

}  // namespace lucid::cpu

// The instruction sets that vectorised files are compiled for, and the one of this process.
#pragma once

#include <cstdint>

namespace lucid::cpu {

/// Order is from least to most capable. On other processors than x86-64 only kBaseline exists.
enum class Isa : uint8_t { kBaseline, kAvx2, kAvx512 };

/// True if this processor can run code of that set and the build holds it.
bool supports(Isa isa);

/// The best supported set; the environment variable LUCID_ISA (baseline, avx2, avx512), read
/// once, can lower it.
Isa active_isa();

}  // namespace lucid::cpu

/// Calls `function` of the namespace of an instruction set: LUCID_ISA_CALL(isa, table()).
/// Each vectorised file (*.isa.cpp) defines its functions in namespace lucid::cpu::LUCID_ISA and
/// is compiled once a set with -DLUCID_ISA=baseline, avx2 or avx512.
#if defined(__x86_64__)
#define LUCID_ISA_CALL(isa, function)                                   \
  ((isa) == ::lucid::cpu::Isa::kAvx512 ? ::lucid::cpu::avx512::function \
   : (isa) == ::lucid::cpu::Isa::kAvx2 ? ::lucid::cpu::avx2::function   \
                                       : ::lucid::cpu::baseline::function)
/// Declares functions in the namespace of every instruction set.
#define LUCID_ISA_DECLARE(...)     \
  namespace lucid::cpu::baseline { \
  __VA_ARGS__                      \
  }                                \
  namespace lucid::cpu::avx2 {     \
  __VA_ARGS__                      \
  }                                \
  namespace lucid::cpu::avx512 {   \
  __VA_ARGS__                      \
  }
#else
#define LUCID_ISA_CALL(isa, function) ((void)(isa), ::lucid::cpu::baseline::function)
#define LUCID_ISA_DECLARE(...)     \
  namespace lucid::cpu::baseline { \
  __VA_ARGS__                      \
  }
#endif

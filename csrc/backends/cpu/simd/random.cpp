#include "backends/cpu/simd/random.h"

namespace lucid::cpu {

RandomFunctions random_functions(Isa isa) { return LUCID_ISA_CALL(isa, random_table()); }

}  // namespace lucid::cpu

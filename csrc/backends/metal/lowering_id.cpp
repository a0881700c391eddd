#include "backends/metal/lowering_id.h"

namespace lucid::metal {

const char* lowering_id() { return LUCID_LOWERING_ID; }

}  // namespace lucid::metal

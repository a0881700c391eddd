#include "refuse.h"

#include <cstdio>
#include <cstdlib>
#include <limits>

#include "process.h"

namespace metalhost {

void refuse(const std::string& op, const std::string& what) {
  std::fprintf(stderr,
               "-:0:0: error: 'mps.%s' op %s\n"
               "LLVM ERROR: Failed to infer result type(s).\n",
               op.c_str(), what.c_str());
  std::abort();
}

void fail_assertion(const std::string& where, const std::string& what) {
  std::fprintf(stderr, "%s: failed assertion `%s'\n", where.c_str(), what.c_str());
  std::abort();
}

void check_tensor(const std::string& op, const Type& type) {
  constexpr int64_t kMaxRank = 16;
  if (!is_known(type.data_type)) refuse(op, "has an element type that the double does not know");
  if (type.rank() > kMaxRank) {
    fail_assertion("MPSNDArray.mm",
                   "[MPSNDArrayDescriptor] Error: more than 16 dimensions: " + text_of(type));
  }
  double elements = 1;
  for (const int64_t length : type.shape) {
    if (length == 0) {
      fail_assertion("MPSNDArray.mm",
                     "[MPSNDArray initWithDevice:descriptor:] Error: zero-size "
                     "dimension in " +
                         text_of(type) + " of mps." + op);
    }
    if (length < 0) refuse(op, "has a dynamic shape, which the double does not take");
    if (length > std::numeric_limits<int32_t>::max()) {
      fail_assertion("MPSNDArray.mm",
                     "[MPSNDArray initWithDevice:descriptor:] Error: NDArray "
                     "dimension length > INT_MAX");
    }
    elements *= static_cast<double>(length);
  }
  const TensorLimits limits = tensor_limits();
  if (elements > static_cast<double>(limits.elements)) {
    fail_assertion("MPSNDArray.mm",
                   "[MPSNDArray initWithDevice:descriptor:] Error: product of "
                   "dimension sizes > 2**31");
  }
  if (elements * static_cast<double>(size_of(type.data_type)) > static_cast<double>(limits.bytes)) {
    fail_assertion("MPSNDArray.mm",
                   "[MPSNDArray initWithDevice:descriptor:] Error: total bytes "
                   "of NDArray > 2**32");
  }
}

}  // namespace metalhost

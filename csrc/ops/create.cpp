// Tensors made from attributes alone.
#include <string>
#include <vector>

#include "ops/families.h"
#include "ops/infer.h"

namespace lucid::ops {
namespace {

using ir::InferArgs;
using ir::ValueType;
using ir::ValueTypes;

ValueTypes infer_full(const InferArgs& args) {
  return {{args.dtype_attr("dtype"), shape_attr(args, "shape")}};
}

ValueTypes infer_arange(const InferArgs& args) {
  const DType dtype = args.dtype_attr("dtype");
  const int64_t count = args.integer("count");
  if (dtype == DType::kBool) {
    args.fail(ErrorKind::kDType, "dtype is not a number: bool; use an integer or floating dtype");
  }
  if (count < 0) {
    args.fail(ErrorKind::kUser, "count is negative: " + std::to_string(count) + "; use 0 or more");
  }
  return {{dtype, Shape{count}}};
}

ValueTypes infer_constant(const InferArgs& args) {
  const ValueType type{args.dtype_attr("dtype"), shape_attr(args, "shape")};
  const std::string& data = args.string("data");
  if (static_cast<int64_t>(data.size()) != type.size_bytes()) {
    args.fail(ErrorKind::kUser, "data has another size: " + std::to_string(data.size()) +
                                    " bytes for " + ir::to_string(type) + "; give " +
                                    std::to_string(type.size_bytes()));
  }
  return {type};
}

}  // namespace

std::vector<ir::Op> create_ops() {
  using ir::AttrType;
  return {
      {.name = "full",
       .doc = "one value everywhere",
       .min_inputs = 0,
       .max_inputs = 0,
       .attrs = {{"shape", AttrType::kInts},
                 {"dtype", AttrType::kDType},
                 {"value", AttrType::kNumber}},
       .traits = ir::kPure | ir::kCheap,
       .infer = infer_full,
       .vjp_reads_inputs = 0,
       .vjp_reads_outputs = 0,
       .nondifferentiable_outputs = 1},
      {.name = "arange",
       .doc = "start + i step for i in 0 .. count - 1",
       .min_inputs = 0,
       .max_inputs = 0,
       .attrs = {{"start", AttrType::kNumber},
                 {"step", AttrType::kNumber},
                 {"count", AttrType::kInt},
                 {"dtype", AttrType::kDType}},
       .traits = ir::kPure | ir::kCheap,
       .infer = infer_arange,
       .vjp_reads_inputs = 0,
       .vjp_reads_outputs = 0,
       .nondifferentiable_outputs = 1},
      {.name = "constant",
       .doc = "elements given as bytes, row-major, in the machine's byte order",
       .min_inputs = 0,
       .max_inputs = 0,
       .attrs = {{"data", AttrType::kString},
                 {"shape", AttrType::kInts},
                 {"dtype", AttrType::kDType}},
       .traits = ir::kPure | ir::kCheap,
       .infer = infer_constant,
       .vjp_reads_inputs = 0,
       .vjp_reads_outputs = 0,
       .nondifferentiable_outputs = 1},
  };
}

}  // namespace lucid::ops

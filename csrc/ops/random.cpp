// Draws from a counter-based generator (Philox-4x32-10: Salmon and others 2011, "Parallel random
// numbers: as easy as 1, 2, 3"). The state (seed, base offset) is the last input; the attribute
// `offset` is added to the base, and a node of n elements uses ceil(n / 4) counters.
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/families.h"
#include "ops/infer.h"
#include "ops/vjp.h"

namespace lucid::ops {
namespace {

using ir::AttrSpec;
using ir::AttrType;
using ir::InferArgs;
using ir::ValueTypes;

constexpr AttrSpec kOffset{.name = "offset", .type = AttrType::kInt, .run_time = true};

ValueTypes infer_real_draw(const InferArgs& args) {
  require_generator(args, 0);
  const DType dtype = args.dtype_attr("dtype");
  if (!is_floating(dtype)) {
    args.fail(ErrorKind::kDType, "dtype is not floating: " + std::string(name(dtype)) +
                                     "; draw float32 and cast, or use random_int");
  }
  return {{dtype, shape_attr(args, "shape")}};
}

struct Range {
  int64_t low;
  int64_t high;
};

/// Least and greatest value of an integer dtype.
Range values_of(DType dtype) {
  if (dtype == DType::kUInt8) return {0, std::numeric_limits<uint8_t>::max()};
  const int64_t bits = 8 * size_bytes(dtype);
  const int64_t high = std::numeric_limits<int64_t>::max() >> (64 - bits);
  return {-high - 1, high};
}

ValueTypes infer_random_int(const InferArgs& args) {
  require_generator(args, 0);
  const DType dtype = args.dtype_attr("dtype");
  const Range range{args.integer("low"), args.integer("high")};
  const std::string given = std::to_string(range.low) + " to " + std::to_string(range.high);
  if (!is_integer(dtype)) {
    args.fail(ErrorKind::kDType,
              "dtype is not an integer: " + std::string(name(dtype)) + "; draw int64 and cast");
  }
  if (range.low >= range.high) {
    args.fail(ErrorKind::kUser, "range is empty: " + given + "; low must be less than high");
  }
  const Range values = values_of(dtype);
  if (range.low < values.low || range.high - 1 > values.high) {
    args.fail(ErrorKind::kUser, "range does not fit " + std::string(name(dtype)) + ": " + given +
                                    "; use a wider dtype");
  }
  return {{dtype, shape_attr(args, "shape")}};
}

ValueTypes infer_dropout(const InferArgs& args) {
  require_floating(args, 0);
  require_generator(args, 1);
  const double probability = args.real("p");
  if (!(probability >= 0.0 && probability <= 1.0)) {
    args.fail(ErrorKind::kUser,
              "probability out of range: " + ir::to_string(probability) + "; use 0 to 1");
  }
  return {args.input(0), {DType::kBool, args.shape(0)}};
}

// The kept elements have the gradient, scaled as the forward scales them; p = 1 keeps none.
Grads dropout_vjp(Builder& b, const Node& node, const Grads& grads,
                  const std::vector<bool>& wanted) {
  Grads result = absent(node);
  if (!grads[0] || !wants(b, node, wanted, 0)) return result;
  const double kept = 1.0 - node.real("p");
  const ValueId scale = b.number(kept > 0.0 ? 1.0 / kept : 0.0, *grads[0]);
  const ValueId none = b.number(0.0, *grads[0]);
  const ValueId scaled = b.mul(*grads[0], scale);
  result[0] = b.where(node.outputs[1], scaled, none);
  return result;
}

ir::Op draw(std::string_view name, std::string_view doc, std::vector<AttrSpec> attrs,
            ir::InferFn infer) {
  return {.name = name,
          .doc = doc,
          .attrs = std::move(attrs),
          .traits = ir::kPure | ir::kRandom,
          .infer = infer,
          .vjp_reads_inputs = 0,
          .vjp_reads_outputs = 0,
          .nondifferentiable_outputs = 1};
}

}  // namespace

std::vector<ir::Op> random_ops() {
  const AttrSpec shape{"shape", AttrType::kInts};
  const AttrSpec dtype{"dtype", AttrType::kDType};
  const AttrSpec low{"low", AttrType::kInt};
  const AttrSpec high{"high", AttrType::kInt};
  return {
      draw("uniform", "uniform in [0, 1)", {shape, dtype, kOffset}, infer_real_draw),
      draw("normal", "normal of mean 0 and variance 1", {shape, dtype, kOffset}, infer_real_draw),
      draw("random_int", "uniform integers low .. high - 1", {low, high, shape, dtype, kOffset},
           infer_random_int),
      {.name = "dropout",
       .doc = "x / (1 - p) with probability 1 - p, else 0; and the mask of the kept",
       .min_inputs = 2,
       .max_inputs = 2,
       .attrs = {{"p", AttrType::kFloat}, kOffset},
       .traits = ir::kPure | ir::kRandom | ir::kInPlace,
       .infer = infer_dropout,
       .vjp = dropout_vjp,
       .vjp_reads_inputs = 0,
       .vjp_reads_outputs = 0b10,
       .nondifferentiable_outputs = 0b10},
  };
}

}  // namespace lucid::ops

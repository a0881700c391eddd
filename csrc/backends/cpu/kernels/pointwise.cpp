// Element-wise kernels: the node's tile function over broadcast operands, in parallel.
#include "backends/cpu/kernels/pointwise.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "backends/cpu/broadcast.h"
#include "backends/cpu/kernels/families.h"
#include "backends/cpu/kernels/integer_operands.h"
#include "backends/cpu/threads/team.h"

namespace lucid::cpu {
namespace {

struct CostRow {
  std::string_view op;
  double cost_ns;  ///< of a float32 element with AVX2, measured in cache
};

constexpr double kCheapNs = 0.1;

constexpr CostRow kCosts[] = {
    {"add", kCheapNs},
    {"sub", kCheapNs},
    {"mul", kCheapNs},
    {"div", 0.2},
    {"neg", kCheapNs},
    {"square", kCheapNs},
    {"abs", kCheapNs},
    {"sign", kCheapNs},
    {"maximum", kCheapNs},
    {"minimum", kCheapNs},
    {"relu", kCheapNs},
    {"leaky_relu", kCheapNs},
    {"clamp", 0.15},
    {"where", 0.15},
    {"floor", kCheapNs},
    {"ceil", kCheapNs},
    {"round", kCheapNs},
    {"trunc", kCheapNs},
    {"sqrt", 0.2},
    {"rsqrt", 0.3},
    {"reciprocal", 0.15},
    {"fmod", 10.0},
    {"remainder", 10.0},
    {"floor_divide", 10.0},
    {"pow", 3.0},
    {"exp", 0.5},
    {"expm1", 1.0},
    {"log", 0.8},
    {"log1p", 1.5},
    {"log2", 1.5},
    {"log10", 1.5},
    {"sinh", 1.5},
    {"cosh", 1.5},
    {"tanh", 0.5},
    {"asinh", 2.7},
    {"acosh", 2.2},
    {"atanh", 1.9},
    {"sin", 1.0},
    {"cos", 1.0},
    {"tan", 1.2},
    {"asin", 1.2},
    {"acos", 1.2},
    {"atan", 1.2},
    {"atan2", 2.0},
    {"erf", 0.8},
    {"erfc", 0.8},
    {"sigmoid", 0.6},
    {"silu", 0.9},
    {"softplus", 3.2},
    {"gelu", 0.9},
    {"gelu_grad", 1.0},
    {"eq", kCheapNs},
    {"ne", kCheapNs},
    {"lt", kCheapNs},
    {"le", kCheapNs},
    {"gt", kCheapNs},
    {"ge", kCheapNs},
    {"logical_and", kCheapNs},
    {"logical_or", kCheapNs},
    {"logical_xor", kCheapNs},
    {"logical_not", kCheapNs},
    {"isnan", kCheapNs},
    {"isinf", kCheapNs},
    {"isfinite", kCheapNs},
    {"bitwise_and", kCheapNs},
    {"bitwise_or", kCheapNs},
    {"bitwise_xor", kCheapNs},
    {"bitwise_not", kCheapNs},
    {"cast", 0.2},
};

/// float64 calls libm for the functions; half types are converted on the way in and out.
double cost_of(std::string_view op, DType dtype) {
  const auto row = std::ranges::find(kCosts, op, &CostRow::op);
  const double cost_ns = row == std::end(kCosts) ? 1.0 : row->cost_ns;
  if (dtype == DType::kFloat64) return cost_ns < 0.4 ? 2.0 * cost_ns : 10.0 * cost_ns;
  return is_half(dtype) ? cost_ns + 0.4 : cost_ns;
}

/// The float attributes in schema order; a gelu has the name of its form instead.
std::array<double, 2> parameters_of(const ir::Node& node) {
  std::array<double, 2> parameters{};
  size_t used = 0;
  for (const ir::AttrValue& value : node.attrs) {
    if (const auto* number = std::get_if<double>(&value); number && used < parameters.size()) {
      parameters[used++] = *number;
    }
    if (const auto* text = std::get_if<std::string>(&value)) {
      parameters[0] = *text == "tanh" ? 1.0 : 0.0;
    }
  }
  return parameters;
}

constexpr size_t kMaxOperands = 3;

/// Runs a tile function over the whole output.
class PointwiseKernel final : public Kernel {
 public:
  PointwiseKernel(const PointwiseTile& tile, const ir::ValueType& output,
                  std::span<const ir::ValueType> operands)
      : tile_(tile),
        plan_(output.shape, operands),
        count_(output.num_elements()),
        out_bytes_(size_bytes(output.dtype)) {
    for (size_t k = 0; k < operands.size(); ++k) in_bytes_[k] = size_bytes(operands[k].dtype);
    const int64_t tile_size = plan_.tile_elements();
    const int64_t wanted = static_cast<int64_t>(kRangeNs / (tile.cost_ns + kTrafficNs));
    grain_ = std::max(std::min(wanted, kMaxGrain) / tile_size, int64_t{1}) * tile_size;
  }

  void run(const RunContext& context) const override {
    if (count_ <= grain_) return run_range(context, 0, count_);
    parallel_for(count_, grain_, tile_.cost_ns + kTrafficNs,
                 [&](int64_t begin, int64_t end) { run_range(context, begin, end); });
  }

 private:
  static constexpr double kRangeNs = 20e3;   // work of one range of the parallel loop
  static constexpr double kTrafficNs = 0.2;  // memory traffic of an element, roughly
  static constexpr int64_t kMaxGrain = 65536;

  void run_range(const RunContext& context, int64_t begin, int64_t end) const {
    if (begin >= end) return;
    if (plan_.all_direct()) return run_direct(context, begin, end);
    alignas(64) char buffers[kMaxOperands][BroadcastPlan::kMaxTile * sizeof(double)];
    const size_t operands = plan_.num_operands();
    const int64_t tile_size = plan_.tile_elements();
    const int64_t longest = std::min(tile_size, end - begin);
    for (size_t k = 0; k < operands; ++k) {
      plan_.prepare(k, context.inputs[k], longest, buffers[k]);
    }
    for (int64_t at = begin; at < end; at += tile_size) {
      const int64_t size = std::min(tile_size, end - at);
      const void* inputs[kMaxOperands] = {};
      for (size_t k = 0; k < operands; ++k) {
        inputs[k] = plan_.tile(k, context.inputs[k], at, size, buffers[k]);
      }
      tile_.function(inputs, context.out<char>(0) + at * out_bytes_, size, tile_.parameters.data());
    }
  }

  void run_direct(const RunContext& context, int64_t begin, int64_t end) const {
    const void* inputs[kMaxOperands] = {};
    for (size_t k = 0; k < plan_.num_operands(); ++k) {
      inputs[k] = context.in<char>(k) + begin * in_bytes_[k];
    }
    tile_.function(inputs, context.out<char>(0) + begin * out_bytes_, end - begin,
                   tile_.parameters.data());
  }

  PointwiseTile tile_;
  BroadcastPlan plan_;
  int64_t count_;
  int64_t out_bytes_;
  int64_t grain_ = 0;
  std::array<int64_t, kMaxOperands> in_bytes_{};
};

PointwiseTile find_pointwise(const NodeView& view) {
  const std::string_view op = view.node.op->name;
  if (std::ranges::find(kCosts, op, &CostRow::op) == std::end(kCosts)) return {};
  const DType dtype = view.input(op == "where" ? 1 : 0).dtype;
  const TileFn function =
      op == "cast" ? find_cast(dtype, view.output(0).dtype) : find_tile(op, dtype);
  return {function, parameters_of(view.node), cost_of(op, dtype)};
}

std::unique_ptr<Kernel> make_pointwise(const NodeView& view) {
  const PointwiseTile tile = find_pointwise(view);
  if (tile.function == nullptr) return nullptr;
  std::vector<ir::ValueType> operands;
  for (size_t k = 0; k < view.num_inputs(); ++k) operands.push_back(view.input(k));
  auto made = std::make_unique<PointwiseKernel>(tile, view.output(0), operands);
  if (has_refused_operands(view)) return with_checked_operand(view, std::move(made));
  return made;
}

constexpr auto kRows = [] {
  std::array<KernelRow, std::size(kCosts)> rows{};
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = {kCosts[i].op, make_pointwise};
  return rows;
}();

}  // namespace

PointwiseTile pointwise_tile(const NodeView& view) {
  return has_refused_operands(view) ? PointwiseTile{} : find_pointwise(view);
}

std::span<const KernelRow> pointwise_kernels() { return kRows; }

}  // namespace lucid::cpu

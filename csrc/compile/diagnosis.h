// What a trace holds, operation by operation: types, gradient, cost, and what the compiler does
// with each. Nothing is run.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/cost.h"
#include "runtime/trace/recorder.h"

namespace lucid::compile {

/// What happens to a gradient at an operation.
enum class GradientFlow : uint8_t {
  kNone,     ///< nothing that needs a gradient goes in
  kFlows,    ///< it flows to at least one input
  kStops,    ///< made where gradients are off, detached, or without a floating result
  kMissing,  ///< needed, and the operation has no rule
};
std::string_view name(GradientFlow flow);

/// One operation of a trace.
struct OperationRow {
  const ir::Node* node = nullptr;  ///< of the trace that was asked
  std::vector<std::optional<ir::ValueType>> inputs;
  std::vector<ir::ValueType> outputs;
  std::string attributes;  ///< "axes=[0], keepdim=false"
  GradientFlow gradient = GradientFlow::kNone;
  bool has_rule = false;  ///< a vjp, or a decomposition that is differentiated
  ops::Cost cost;
  /// What its gradient rule appends, before the passes; unknown where there is no whole trace.
  std::optional<ops::Cost> backward;
  std::vector<std::string_view> backward_ops;
  /// The pass after which it is no longer there; empty if it stays.
  std::string_view removed_by;
  std::string gap;  ///< why the device cannot run it or its gradient; empty if it can
};

/// How a trace is looked at.
struct DiagnosisOptions {
  /// False where the trace broke off: it has no results, so no backward and nothing is dropped.
  bool is_whole = true;
  bool with_gradients = true;
  /// Only the first result is differentiated: a step.
  bool is_step = false;
  /// The device whose backend is asked for gaps.
  std::optional<Device> device = {};
};

struct Diagnosis {
  std::vector<OperationRow> rows;
  std::string unavailable;  ///< why the device cannot be asked; empty if it was
};

/// The rows of a trace, in the order in which they were recorded.
Diagnosis diagnose(const runtime::Trace& trace, const DiagnosisOptions& options);

}  // namespace lucid::compile

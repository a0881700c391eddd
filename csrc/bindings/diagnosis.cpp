#include "bindings/diagnosis.h"

#include <pybind11/stl.h>

#include <string>

#include "compile/diagnosis.h"
#include "runtime/process.h"

namespace lucid::bindings {
namespace {

py::tuple type_pair(const std::optional<ir::ValueType>& type) {
  if (!type) return py::make_tuple(py::none(), py::none());
  return py::make_tuple(dtype_object(type->dtype), shape_tuple(type->shape));
}

py::dict row_dict(const compile::OperationRow& row) {
  py::dict result;
  result["op"] = std::string(row.node->op->name);
  result["attributes"] = row.attributes;
  const ir::LocationRef& location = row.node->location;
  result["file"] = location == nullptr ? "" : location->file;
  result["line"] = location == nullptr ? 0 : location->line;
  py::list inputs;
  for (const auto& type : row.inputs) inputs.append(type_pair(type));
  result["inputs"] = inputs;
  py::list outputs;
  for (const ir::ValueType& type : row.outputs) outputs.append(type_pair(type));
  result["outputs"] = outputs;
  result["gradient"] = std::string(compile::name(row.gradient));
  result["has_rule"] = row.has_rule;
  result["flops"] = row.cost.flops;
  result["bytes"] = row.cost.bytes;
  result["backward_flops"] = py::none();
  result["backward_bytes"] = py::none();
  ops::Cost whole = row.cost;
  if (row.backward) {
    result["backward_flops"] = row.backward->flops;
    result["backward_bytes"] = row.backward->bytes;
    whole += *row.backward;
  }
  result["effort"] = whole.effort();
  result["backward_ops"] =
      std::vector<std::string>(row.backward_ops.begin(), row.backward_ops.end());
  result["removed_by"] = std::string(row.removed_by);
  result["gap"] = row.gap;
  return result;
}

}  // namespace

py::dict diagnosis_dict(const runtime::Trace& trace, bool is_whole, bool is_step,
                        const std::optional<std::string>& device) {
  compile::DiagnosisOptions options{.is_whole = is_whole,
                                    .with_gradients = runtime::thread_state().grad_enabled,
                                    .is_step = is_step,
                                    .device = std::nullopt};
  if (device) options.device = *device == name(Device::kCpu) ? Device::kCpu : Device::kMetal;
  const compile::Diagnosis found = compile::diagnose(trace, options);
  py::list rows;
  for (const compile::OperationRow& row : found.rows) rows.append(row_dict(row));
  py::list refusals;
  for (const runtime::Refusal& refusal : trace.refusals) {
    refusals.append(py::make_tuple(refusal.text, refusal.num_nodes));
  }
  py::dict result;
  result["rows"] = rows;
  result["refusals"] = refusals;
  result["unavailable"] = found.unavailable;
  return result;
}

}  // namespace lucid::bindings

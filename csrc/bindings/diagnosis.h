// What diagnose tells of a trace, as Python objects.
#pragma once

#include <optional>
#include <string>

#include "bindings/convert.h"
#include "runtime/trace/recorder.h"

namespace lucid::bindings {

/// `rows`: a dict for each operation; `refusals`: what was noted, (text, number of operations
/// before it); `unavailable`: why the device could not be asked, or "". `device` names one whose
/// backend is asked for gaps.
py::dict diagnosis_dict(const runtime::Trace& trace, bool is_whole, bool is_step,
                        const std::optional<std::string>& device);

}  // namespace lucid::bindings

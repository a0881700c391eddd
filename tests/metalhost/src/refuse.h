// How the double ends the process where the framework would: a message, then abort().
#pragma once

#include <string>

#include "array.h"

namespace metalhost {

/// Ends as MPSGraph's verifier does: "'mps.add' op <what>".
[[noreturn]] void refuse(const std::string& op, const std::string& what);
/// Ends as an assertion of the frameworks does: "failed assertion `<what>'".
[[noreturn]] void fail_assertion(const std::string& where, const std::string& what);

/// Ends the process if a graph cannot hold a tensor of this type.
void check_tensor(const std::string& op, const Type& type);

}  // namespace metalhost

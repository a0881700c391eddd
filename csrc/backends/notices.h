// What the core has to tell the user that is no error.
#pragma once

#include <string>
#include <vector>

namespace lucid::backends {

/// Leaves a text for the user, each text once a process. May be called from any thread.
void notify(const std::string& text);

/// The texts left since the last call; the bindings make warnings of them.
std::vector<std::string> take_notices();

}  // namespace lucid::backends

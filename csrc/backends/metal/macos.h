// The version of macOS that runs, against the one that the backend needs.
#pragma once

#include <string>

namespace lucid::metal {

/// "14.5" on macOS, "" elsewhere.
std::string macos_version();

/// True from macOS 14 on, and where there is no macOS.
bool is_supported_macos(const std::string& version);

}  // namespace lucid::metal

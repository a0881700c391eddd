#include "backends/metal/macos.h"

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include <cstdlib>

namespace lucid::metal {

// What this module was built for does not matter here: the system that runs may be older, and
// @available is decided by the compiler for versions up to the deployment target.
std::string macos_version() {
#if defined(__APPLE__)
  char text[64] = {};
  size_t size = sizeof(text) - 1;
  if (sysctlbyname("kern.osproductversion", text, &size, nullptr, 0) == 0) return text;
#endif
  return "";
}

bool is_supported_macos(const std::string& version) {
  constexpr int kOldest = 14;
  return version.empty() || std::atoi(version.c_str()) >= kOldest;
}

}  // namespace lucid::metal

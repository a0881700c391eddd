// A system without a Metal device: a process of its own, since the device is looked for once.
#include "backends/metal/macos.h"
#include "metal_testing.h"

namespace lucid::testing {

TEST(only_macos_14_and_later_will_do) {
  CHECK(!metal::is_supported_macos("13.6.9"));
  CHECK(!metal::is_supported_macos("12"));
  CHECK(metal::is_supported_macos("14.0"));
  CHECK(metal::is_supported_macos("26.1"));
  CHECK(metal::is_supported_macos(metal::macos_version()));
}

}  // namespace lucid::testing

#if defined(LUCID_METAL_HOST)
#include "metalhost.h"

namespace lucid::testing {
namespace {

TEST(a_missing_device_says_what_is_needed) {
  metalhost_set_device_absent(1);
  CHECK(!backends::is_available(Device::kMetal));
  CHECK_THROWS(backends::backend_for(Device::kMetal), Error,
               "device metal: not available on this machine; needs macOS 14 or later on an Apple "
               "GPU; available: cpu");
}

}  // namespace
}  // namespace lucid::testing

#endif

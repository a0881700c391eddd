#include "backends/metal/gpu.h"

#include <memory>

#include "backends/metal/macos.h"

namespace lucid::metal {

Gpu::Gpu(Retained<id<MTLDevice>> device, Retained<id<MTLCommandQueue>> queue)
    : device_(std::move(device)),
      queue_(std::move(queue)),
      graph_device_(
          Retained<MPSGraphDevice*>::share([MPSGraphDevice deviceWithMTLDevice:device_.get()])) {
  [queue_.get() setLabel:@"lucid"];
  // Both flaws are of the families up to Apple8; a family includes those before it.
  splits_long_products_ = [device_.get() supportsFamily:MTLGPUFamilyApple7] &&
                          ![device_.get() supportsFamily:MTLGPUFamilyApple9];
}

// Never destroyed: buffers may outlive every static object.
Gpu* Gpu::find() {
  static Gpu* const instance = guarded("metal: device", []() -> Gpu* {
    if (!is_supported_macos(macos_version())) return nullptr;
    auto device = Retained<id<MTLDevice>>::adopt(MTLCreateSystemDefaultDevice());
    if (!device || ![device.get() hasUnifiedMemory]) return nullptr;
    auto queue = Retained<id<MTLCommandQueue>>::adopt([device.get() newCommandQueue]);
    if (!queue) return nullptr;
    return new Gpu(std::move(device), std::move(queue));  // NOLINT: see above
  });
  return instance;
}

void Gpu::renew_queue() {
  guarded("metal: queue", [&] {
    auto queue = Retained<id<MTLCommandQueue>>::adopt([device_.get() newCommandQueue]);
    if (!queue) return;
    [queue.get() setLabel:@"lucid"];
    queue_ = std::move(queue);
  });
}

std::string Gpu::name() const {
  return guarded("metal: device", [&] { return text_of([device_.get() name]); });
}

}  // namespace lucid::metal

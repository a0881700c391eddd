// The Metal device and the one command queue of the process.
#pragma once

#import <Metal/Metal.h>
#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>

#include <mutex>
#include <string>

#include "backends/metal/retained.h"

namespace lucid::metal {

class Gpu {
 public:
  /// The device, or null where there is none.
  static Gpu* find();
  /// The device. Call only where find() gave one.
  static Gpu& get() { return *find(); }

  id<MTLDevice> device() const { return device_.get(); }
  id<MTLCommandQueue> queue() const { return queue_.get(); }
  MPSGraphDevice* graph_device() const { return graph_device_.get(); }
  /// Replaces a queue that failed. Call with the mutex held.
  void renew_queue();
  std::string name() const;
  /// True for GPUs whose matrix product reads past its operands if 32767 and more numbers are
  /// summed: M1 and M2 (PyTorch issue 195163, FB24518264).
  bool splits_long_products() const { return splits_long_products_; }

  /// Guards building, compiling and encoding: MPSGraph's objects are not safe to share.
  std::mutex& mutex() { return mutex_; }

 private:
  Gpu(Retained<id<MTLDevice>> device, Retained<id<MTLCommandQueue>> queue);

  Retained<id<MTLDevice>> device_;
  Retained<id<MTLCommandQueue>> queue_;
  Retained<MPSGraphDevice*> graph_device_;
  bool splits_long_products_ = false;
  std::mutex mutex_;
};

}  // namespace lucid::metal

// Devices a tensor can live on.
#pragma once

#include <cstdint>
#include <string_view>

namespace lucid {

enum class Device : uint8_t { kCpu, kMetal };

constexpr std::string_view name(Device device) { return device == Device::kCpu ? "cpu" : "metal"; }

}  // namespace lucid

// What one core with AVX-512 does: estimates from which work is cut into tasks, never bits.
#pragma once

namespace lucid::cpu {

/// Bytes of multiply-adds a nanosecond (in float32 a fourth of them GFLOP/s): 80 GFLOP/s.
constexpr double kProductBytesPerNs = 320.0;
/// The same of convolutions: 70 GFLOP/s.
constexpr double kConvolutionBytesPerNs = 280.0;

}  // namespace lucid::cpu

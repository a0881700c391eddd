// Arithmetic on sizes that the engine's files share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lucid::cpu {

/// Quotient of non-negative numbers, rounded up.
constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int64_t round_up(int64_t a, int64_t unit) { return divide_up(a, unit) * unit; }

/// Bytes rounded up to whole cache lines, so that what follows in scratch is aligned.
constexpr size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace lucid::cpu

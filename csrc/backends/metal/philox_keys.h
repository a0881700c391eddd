// The words that a run gives to the Philox rounds of a graph.
#pragma once

#include <array>
#include <cstdint>

namespace lucid::metal {

/// Two keys for each of ten rounds, then the low and high word of the first counter
/// (Salmon and others 2011, "Parallel random numbers: as easy as 1, 2, 3").
inline std::array<uint32_t, 22> philox_keys(uint64_t seed, uint64_t counter) {
  std::array<uint32_t, 22> words{};
  auto low = static_cast<uint32_t>(seed);
  auto high = static_cast<uint32_t>(seed >> 32);
  for (size_t round = 0; round < 10; ++round) {
    words[2 * round] = low;
    words[2 * round + 1] = high;
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  words[20] = static_cast<uint32_t>(counter);
  words[21] = static_cast<uint32_t>(counter >> 32);
  return words;
}

}  // namespace lucid::metal

// Vectorised parts of the random kernels.
//
// Words come from Philox-4x32-10 (Salmon and others 2011, "Parallel random numbers: as easy as 1,
// 2, 3"): key = (seed low, seed high), counter = (c low, c high, 0, 0) for the block c. Word i of a
// node is word i % 4 of block i / 4; its partner is word i with the lowest bit of i flipped.
#pragma once

#include <cstdint>

#include "backends/cpu/simd/isa.h"

namespace lucid::cpu {

struct RandomFunctions {
  /// Writes 4 * blocks words of the blocks counter, counter + 1, ...
  void (*words)(uint64_t seed, uint64_t counter, int64_t blocks, uint32_t* words);
  /// Upper `digits` <= 24 bits of the word times 2^-digits: 24 for float32, 11 and 8 for the half
  /// types, in which more digits could round up to 1.
  void (*uniform_float)(const uint32_t* words, int64_t count, int digits, float* output);
  /// 53 bits: the word and then the upper 21 bits of its partner. count must be even.
  void (*uniform_double)(const uint32_t* words, int64_t count, double* output);
  /// Box and Muller 1958 on words (a, b) of a pair: with r = sqrt(-2 ln((a + 1/2) 2^-32)) and
  /// t = 2 pi b 2^-32 the results r cos t and r sin t. count must be even.
  void (*normal)(const uint32_t* words, int64_t count, double* output);
  /// low + floor(word * range / 2^32) for range <= 2^32, else the same with the 64-bit number of
  /// word and partner. The bias is below range / 2^32, or range / 2^64. count must be even.
  void (*integers)(const uint32_t* words, int64_t count, int64_t low, uint64_t range,
                   int64_t* output);
  /// True where the upper 24 bits of the word are >= threshold.
  void (*keep)(const uint32_t* words, int64_t count, uint32_t threshold, bool* output);
};

RandomFunctions random_functions(Isa isa);

}  // namespace lucid::cpu

LUCID_ISA_DECLARE(RandomFunctions random_table();)

#include "backends/cpu/simd/random.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "backends/cpu/simd/exponential.h"
#include "backends/cpu/simd/trigonometric.h"

// Vectors are passed to inlined functions only, so the ABI of wide arguments does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace lucid::cpu::LUCID_ISA {
namespace {

/// Eight blocks side by side: one 32-bit word each in the lower half of a 64-bit lane. The upper
/// halves hold what a product left there and are never read.
typedef uint64_t Lanes8 __attribute__((vector_size(64)));
constexpr int64_t kLanes = 8;

/// Products of the lower halves.
LUCID_INLINE Lanes8 product(Lanes8 x, uint32_t factor) {
#if defined(__AVX512F__)
  // The masked form: the plain one warns of its undefined operand in GCC 12.
  return (Lanes8)_mm512_maskz_mul_epu32(0xff, (__m512i)x, _mm512_set1_epi64(factor));
#elif defined(__AVX2__)
  __m256i half[2];
  __builtin_memcpy(half, &x, sizeof(x));
  const __m256i factors = _mm256_set1_epi64x(factor);
  half[0] = _mm256_mul_epu32(half[0], factors);
  half[1] = _mm256_mul_epu32(half[1], factors);
  __builtin_memcpy(&x, half, sizeof(x));
  return x;
#else
  return (x & 0xffffffffu) * factor;
#endif
}

/// Words of the blocks counter ... counter + 7, in order.
LUCID_INLINE void eight_blocks(uint64_t seed, uint64_t counter, uint32_t* output) {
  constexpr uint32_t kMultiplier[2] = {0xD2511F53u, 0xCD9E8D57u};
  constexpr uint32_t kWeyl[2] = {0x9E3779B9u, 0xBB67AE85u};
  uint32_t key0 = static_cast<uint32_t>(seed);
  uint32_t key1 = static_cast<uint32_t>(seed >> 32);
  const Lanes8 counters = counter + Lanes8{0, 1, 2, 3, 4, 5, 6, 7};
  Lanes8 x0 = counters;
  Lanes8 x1 = counters >> 32;
  Lanes8 x2 = {};
  Lanes8 x3 = {};
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const Lanes8 p0 = product(x0, kMultiplier[0]);
    const Lanes8 p1 = product(x2, kMultiplier[1]);
    x0 = (p1 >> 32) ^ x1 ^ uint64_t { key0 };
    x1 = p1;
    x2 = (p0 >> 32) ^ x3 ^ uint64_t { key1 };
    x3 = p0;
    key0 += kWeyl[0];
    key1 += kWeyl[1];
  }
  const Lanes8 first = (x0 & 0xffffffffu) | (x1 << 32);
  const Lanes8 second = (x2 & 0xffffffffu) | (x3 << 32);
  const Lanes8 low = __builtin_shufflevector(first, second, 0, 8, 1, 9, 2, 10, 3, 11);
  const Lanes8 high = __builtin_shufflevector(first, second, 4, 12, 5, 13, 6, 14, 7, 15);
  __builtin_memcpy(output, &low, sizeof(low));
  __builtin_memcpy(output + 2 * kLanes, &high, sizeof(high));
}

/// The two halves of a 64-bit lane stand in memory order, lower word first.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

void words(uint64_t seed, uint64_t counter, int64_t blocks, uint32_t* output) {
  int64_t done = 0;
  for (; done + kLanes <= blocks; done += kLanes) {
    eight_blocks(seed, counter + static_cast<uint64_t>(done), output + 4 * done);
  }
  if (done == blocks) return;
  uint32_t rest[4 * kLanes];
  eight_blocks(seed, counter + static_cast<uint64_t>(done), rest);
  __builtin_memcpy(output + 4 * done, rest, static_cast<size_t>(blocks - done) * 16);
}

/// Unsigned to floating by way of a signed type, which every instruction set converts.
LUCID_INLINE float to_float(uint32_t below_2_31) {
  return static_cast<float>(static_cast<int32_t>(below_2_31));
}
LUCID_INLINE double to_double(uint32_t x) {
  return from_bits(static_cast<uint64_t>(x) | 0x4330000000000000u) - 0x1p52;
}

void uniform_float(const uint32_t* words, int64_t count, int digits, float* output) {
  const int shift = 32 - digits;
  const float scale = power_of_two(-digits);
  LUCID_LOOP
  for (int64_t i = 0; i < count; ++i) output[i] = to_float(words[i] >> shift) * scale;
}

LUCID_INLINE double uniform_of(uint32_t word, uint32_t partner) {
  return fma(to_double(word), 0x1p-32, to_double(partner >> 11) * 0x1p-53);
}

void uniform_double(const uint32_t* words, int64_t count, double* output) {
  LUCID_LOOP
  for (int64_t i = 0; i < count; i += 2) {
    const uint32_t a = words[i];
    const uint32_t b = words[i + 1];
    output[i] = uniform_of(a, b);
    output[i + 1] = uniform_of(b, a);
  }
}

void normal(const uint32_t* words, int64_t count, double* output) {
  LUCID_LOOP
  for (int64_t i = 0; i < count; i += 2) {
    const double u = fma(to_double(words[i]), 0x1p-32, 0x1p-33);
    const double radius = __builtin_sqrt(-2.0 * log_normal_wide(u));
    const Angle angle = reduce_angle(to_double(words[i + 1]) * (0x1.921fb54442d18p+2 * 0x1p-32));
    output[i] = radius * sin_of(angle, 1);
    output[i + 1] = radius * sin_of(angle, 0);
  }
}

void integers(const uint32_t* words, int64_t count, int64_t low, uint64_t range, int64_t* output) {
  const uint64_t base = static_cast<uint64_t>(low);
  if (range <= uint64_t{1} << 32) {
    LUCID_LOOP
    for (int64_t i = 0; i < count; ++i) {
      output[i] = static_cast<int64_t>(base + ((words[i] * range) >> 32));
    }
    return;
  }
  __extension__ typedef unsigned __int128 Wide;
  for (int64_t i = 0; i < count; i += 2) {
    const uint64_t number = (static_cast<uint64_t>(words[i]) << 32) | words[i + 1];
    const uint64_t swapped = (number << 32) | (number >> 32);
    output[i] = static_cast<int64_t>(base + static_cast<uint64_t>((Wide{number} * range) >> 64));
    output[i + 1] =
        static_cast<int64_t>(base + static_cast<uint64_t>((Wide{swapped} * range) >> 64));
  }
}

void keep(const uint32_t* words, int64_t count, uint32_t threshold, bool* output) {
  LUCID_LOOP
  for (int64_t i = 0; i < count; ++i) output[i] = (words[i] >> 8) >= threshold;
}

}  // namespace

RandomFunctions random_table() {
  return {words, uniform_float, uniform_double, normal, integers, keep};
}

}  // namespace lucid::cpu::LUCID_ISA

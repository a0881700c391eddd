// Conversions between float and the two half formats, rounding to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace lucid {

/// IEEE 754 binary16 storage.
struct Float16 {
  uint16_t bits;
};
/// bfloat16 storage: the upper half of a binary32.
struct BFloat16 {
  uint16_t bits;
};

inline float to_float(BFloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

inline float to_float(Float16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t body = static_cast<uint32_t>(x.bits & 0x7fffu) << 13;
  // Multiplying by 2^112 moves the exponent bias from 15 to 127 and handles subnormals.
  const float scaled = std::bit_cast<float>(body) * 0x1p112f;
  const uint32_t special = (x.bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  return std::bit_cast<float>(sign | special | std::bit_cast<uint32_t>(scaled));
}

inline BFloat16 to_bfloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

inline Float16 to_float16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {  // subnormal: let the adder round at 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u;
  return {static_cast<uint16_t>(sign | (rounded >> 13))};
}

}  // namespace lucid

// support/half.h
// Bfloat16 and float16 as bits, to and from float, rounding to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace bolt {

inline float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline uint16_t float_to_bf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return static_cast<uint16_t>(bits >> 16 | 0x40);  // a quiet NaN stays one
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float f16_to_float(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00)  // infinity, NaN
    return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude >= 0x400) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000));
  float tiny = static_cast<float>(magnitude) * 0x1p-24f;  // subnormal: exact in float
  return sign ? -tiny : tiny;
}

inline uint16_t float_to_f16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value), sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (bits >= 0x47800000) return static_cast<uint16_t>(sign | 0x7c00);  // 65536 and above
  if (bits < 0x38800000) {  // subnormal: adding 0.5 shifts the wanted bits to the end, the addition rounds
    float shifted = std::bit_cast<float>(bits) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  return static_cast<uint16_t>(sign | ((bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13));
}

}  // namespace bolt

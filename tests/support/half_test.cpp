// tests/support/half_test.cpp
// Conversions of halves against arithmetic: a half is a whole number of steps, and the nearest one is chosen.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "support/half.h"

namespace bolt {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// From the fields of a float of so many bits of fraction, whose exponents are biased by `bias`.
double value_of(uint16_t bits, int fraction_bits, int bias) {
  const int exponent = (bits & 0x7fff) >> fraction_bits, highest = (0x7fff >> fraction_bits);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == highest) return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * kInfinity;
  const int whole = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
  return sign * std::ldexp(whole, std::max(exponent, 1) - bias - fraction_bits);
}

struct Format {
  const char* name;
  int fraction_bits, bias;
  float (*to_float)(uint16_t);
  uint16_t (*from_float)(float);
};
constexpr Format kFormats[] = {{"f16", 10, 15, f16_to_float, float_to_f16},
                               {"bf16", 7, 127, bf16_to_float, float_to_bf16}};

TEST(Half, EachIsTheNumberThatItsFieldsSay) {
  for (const Format& f : kFormats)
    for (int bits = 0; bits < 0x10000; ++bits) {
      const auto half = static_cast<uint16_t>(bits);
      const double wanted = value_of(half, f.fraction_bits, f.bias);
      const float got = f.to_float(half);
      ASSERT_TRUE(std::isnan(wanted) ? std::isnan(got) : got == wanted) << f.name << " " << bits;
      ASSERT_EQ(std::signbit(got), (bits & 0x8000) != 0) << f.name << " " << bits;
      if (!std::isnan(wanted)) {
        ASSERT_EQ(f.from_float(got), half) << f.name << " " << bits;
      }
    }
}

/// Between two neighbours: their middle goes to the even one, what is beside the middle to the nearer. Beyond
/// the largest the next step would be infinity.
TEST(Half, TheNearestIsTaken) {
  for (const Format& f : kFormats)
    for (int bits = 0; f.to_float(static_cast<uint16_t>(bits)) < kInfinity; ++bits) {
      const auto low = static_cast<uint16_t>(bits), high = static_cast<uint16_t>(bits + 1);
      const double from = f.to_float(low),
                   to = from + (from - value_of(low - (bits > 0), f.fraction_bits, f.bias));
      const bool is_last = std::isinf(f.to_float(high));
      const auto middle = static_cast<float>((from + (is_last ? to : f.to_float(high))) / 2);
      const uint16_t even = bits % 2 ? high : low;
      for (const int sign : {0, 0x8000}) {
        const float x = sign ? -middle : middle, beyond = std::copysign(kInfinity, x);
        ASSERT_EQ(f.from_float(x), even | sign) << f.name << " " << bits;
        ASSERT_EQ(f.from_float(std::nextafter(x, 0.0F)), low | sign) << f.name << " " << bits;
        ASSERT_EQ(f.from_float(std::nextafter(x, beyond)), high | sign) << f.name << " " << bits;
      }
    }
}

TEST(Half, NoNumberStaysNone) {
  for (const Format& f : kFormats)
    for (const uint32_t bits : {0x7f800001U, 0x7fc00000U, 0xffffffffU, 0xff800001U})
      EXPECT_TRUE(std::isnan(f.to_float(f.from_float(std::bit_cast<float>(bits))))) << f.name << " " << bits;
}

}  // namespace
}  // namespace bolt

// tests/support/philox_test.cpp
// The generator's known answers, and how its numbers are dealt out.
#include "support/philox.h"

#include <gtest/gtest.h>

namespace bolt::philox {
namespace {

using Block = std::array<uint64_t, 4>;

// From the paper's own test vectors (Salmon et al., 2011).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(block<uint64_t>(0, 0, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(block<uint64_t>(~0ull, ~0ull, ~0ull), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(block<uint64_t>(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, NumbersLieAboveZeroAndReachOne) {
  EXPECT_EQ(uniform(0), 0x1p-33f);
  EXPECT_EQ(uniform(0xffffffff), 1.0f);
}

// 256 threads that take 8 neighbours each: position 2048 is the first thread's second turn, two blocks on.
TEST(Philox, PositionsAreDealtOutInTurns) {
  auto number = [](uint64_t counter, uint64_t sequence, size_t place) {
    return uniform(static_cast<uint32_t>(block<uint64_t>(7, counter, sequence)[place]));
  };
  EXPECT_EQ(number_at(7, 12, 256, 8, 1), number(3, 0, 1));
  EXPECT_EQ(number_at(7, 12, 256, 8, 6), number(4, 0, 2));
  EXPECT_EQ(number_at(7, 12, 256, 8, 8), number(3, 1, 0));
  EXPECT_EQ(number_at(7, 12, 256, 8, 2048), number(5, 0, 0));
}

}  // namespace
}  // namespace bolt::philox

// tests/device/turns_test.cpp
// One at a time; and nobody waits for who is elsewhere.
#include "device/driver/turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace bolt::device {
namespace {

using Answer = Turns::Answer;

TEST(Turns, OneAtATime) {
  Turns turns;
  EXPECT_EQ(turns.ask(), Answer::yours);
  EXPECT_EQ(turns.ask(), Answer::not_now);
  turns.give_back();
  EXPECT_EQ(turns.ask(), Answer::yours);
}

TEST(Turns, NobodyWaitsForWhoIsElsewhere) {
  Turns turns;
  ASSERT_EQ(turns.ask(), Answer::yours);
  const Turn turn(&turns);
  {
    const Turn::Elsewhere elsewhere(turn);
    EXPECT_EQ(turns.ask(), Answer::without);
    EXPECT_FALSE(turns.wait());
  }
  EXPECT_EQ(turns.ask(), Answer::not_now);
}

/// Who has the turn waits for a thread that waits for the turn.
TEST(Turns, WhoWaitsAlreadyIsTold) {
  Turns turns;
  ASSERT_EQ(turns.ask(), Answer::yours);
  const Turn turn(&turns);
  std::atomic<bool> got = true;
  std::thread other([&] { got = turns.wait(); });
  {
    const Turn::Elsewhere elsewhere(turn);
    other.join();
  }
  EXPECT_FALSE(got);
}

TEST(Turns, ManyThreads) {
  Turns turns;
  int within = 0, most = 0, had = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        if (!turns.wait()) continue;
        const Turn turn(&turns);
        most = std::max(most, ++within);
        ++had;
        --within;
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(had, 8 * 500);
}

}  // namespace
}  // namespace bolt::device

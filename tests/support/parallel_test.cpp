// tests/support/parallel_test.cpp
#include "support/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

namespace bolt {
namespace {

TEST(Parallel, DoesEachOnce) {
  for (size_t count : {0, 1, 2, 7, 100}) {
    std::vector<std::atomic<int>> done(count);
    in_parallel(count, [&](size_t i) { ++done[i]; });
    for (const auto& times : done) EXPECT_EQ(times, 1);
  }
}

TEST(Parallel, ThrowsTheFirstErrorWhenAllAreDone) {
  std::atomic<int> done = 0;
  try {
    in_parallel(8, [&](size_t i) {
      ++done;
      if (i == 2 || i == 5) throw std::runtime_error(std::to_string(i));
    });
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "2");
  }
  EXPECT_EQ(done, 8);
}

TEST(Parallel, OneThreadIsEnough) {
  setenv("TORCHBOLT_THREADS", "1", 1);
  int done = 0;
  in_parallel(5, [&](size_t i) { EXPECT_EQ(static_cast<int>(i), done++); });
  EXPECT_EQ(done, 5);
  unsetenv("TORCHBOLT_THREADS");
}

}  // namespace
}  // namespace bolt

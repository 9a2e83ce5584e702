// tests/support/growing_test.cpp
// Growing and RareVector do what std::vector does; what lies in a Growing stays where it is.
#include "support/growing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/rare_vector.h"

namespace bolt {
namespace {

using Words = std::vector<std::string>;

template <class List>
Words listed(const List& list) {
  return {list.begin(), list.end()};
}

TEST(Growing, RandomOperations) {
  std::mt19937 rng(1);
  for (int round = 0; round < 200; ++round) {
    Growing<std::string> a, b;
    Words expected_a, expected_b;
    for (int step = 0; step < 120; ++step) {
      const std::string word = "a word that lies outside of its object " + std::to_string(rng() % 100);
      switch (rng() % 12) {
        default: a.emplace_back(word), expected_a.push_back(word); break;
        case 8:
          if (!a.empty()) a.pop_back(), expected_a.pop_back();
          break;
        case 9: b = a, expected_b = expected_a; break;
        case 10: std::swap(a, b), std::swap(expected_a, expected_b); break;
        case 11:
          b = std::move(a), expected_b = std::move(expected_a);
          a = {}, expected_a.clear();
          break;
      }
      ASSERT_EQ(listed(a), expected_a);
      ASSERT_EQ(listed(b), expected_b);
      ASSERT_EQ(a.size(), expected_a.size());
      if (!a.empty()) {
        ASSERT_EQ(a.back(), expected_a.back());
      }
    }
  }
}

TEST(Growing, KeepsAddressesAndEndsWhatItHolds) {
  auto counted = std::make_shared<int>(0);
  {
    Growing<std::shared_ptr<int>> list;
    std::vector<std::shared_ptr<int>*> made;
    for (int i = 0; i < 3000; ++i) made.push_back(&list.emplace_back(counted));
    for (size_t i = 0; i < made.size(); ++i) EXPECT_EQ(made[i], &list[i]);
    EXPECT_EQ(std::ranges::count(list, counted), 3000);
    EXPECT_EQ(counted.use_count(), 3001);
  }
  EXPECT_EQ(counted.use_count(), 1);
}

TEST(RareVector, IsAVectorOfOnePointer) {
  RareVector<int> none, some;
  EXPECT_EQ(sizeof none, sizeof(void*));
  EXPECT_TRUE(none.empty() && none.size() == 0 && none.begin() == none.end());
  some = std::vector<int>{1, 2};
  EXPECT_FALSE(some.empty() || some == none);
  RareVector<int> copy = some;
  EXPECT_EQ(copy, some);
  copy[1] = 3;
  EXPECT_NE(copy, some);
  EXPECT_EQ(some[1], 2);
  some = std::vector<int>{};
  EXPECT_EQ(some, none);
  copy.clear();
  EXPECT_EQ(copy, none);
}

}  // namespace
}  // namespace bolt

// tests/support/bounded_map_test.cpp
// support/bounded_map_test.cpp
// What is put in is found until the map is full; then it begins anew, and what somebody holds stays.
#include "support/bounded_map.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>

namespace bolt {
namespace {

using Numbers = BoundedMap<std::map<int, std::shared_ptr<int>>, 4>;

TEST(BoundedMap, WhatIsThereStays) {
  Numbers map;
  EXPECT_EQ(map.find(1), nullptr);
  EXPECT_EQ(*map.put(1, std::make_shared<int>(10)), 10);
  EXPECT_EQ(*map.put(1, std::make_shared<int>(11)), 10);
  ASSERT_NE(map.find(1), nullptr);
  EXPECT_EQ(**map.find(1), 10);
}

TEST(BoundedMap, NullIsAnAnswer) {
  Numbers map;
  map.put(1, nullptr);
  ASSERT_NE(map.find(1), nullptr);
  EXPECT_EQ(*map.find(1), nullptr);
}

TEST(BoundedMap, BeginsAnewWhenItIsFull) {
  Numbers map;
  for (int i = 0; i < 4; ++i) map.put(i, std::make_shared<int>(i));
  const std::shared_ptr<int> held = *map.find(0);
  map.put(3, std::make_shared<int>(30));  // it is there: nothing is forgotten
  ASSERT_NE(map.find(0), nullptr);
  map.put(4, std::make_shared<int>(4));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(map.find(i), nullptr);
  EXPECT_EQ(**map.find(4), 4);
  EXPECT_EQ(*held, 0);
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace bolt

// tests/support/pointer_map_test.cpp
// What was put in is found, and nothing else.
#include "support/pointer_map.h"

#include <gtest/gtest.h>

namespace bolt {
namespace {

TEST(PointerMap, FindsWhatWasPutInAndNothingElse) {
  std::vector<double> places(5000);
  PointerMap<size_t> map;
  EXPECT_EQ(map.find(&places[0]), nullptr);
  for (size_t i = 0; i < places.size(); i += 2) map[&places[i]] = i;
  EXPECT_EQ(map.size(), places.size() / 2);
  for (size_t i = 0; i < places.size(); ++i) {
    const size_t* found = map.find(&places[i]);
    ASSERT_EQ(found != nullptr, i % 2 == 0);
    if (found) {
      EXPECT_EQ(*found, i);
    }
  }
}

TEST(PointerMap, AnEntryIsMadeOnceAndStartsEmpty) {
  int a = 0;
  PointerMap<int> map;
  EXPECT_EQ(map[&a], 0);
  map[&a] = 3;
  EXPECT_EQ(map[&a], 3);
  EXPECT_EQ(map.size(), 1u);
}

}  // namespace
}  // namespace bolt

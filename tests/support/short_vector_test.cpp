// tests/support/short_vector_test.cpp
// ShortVector does what std::vector does, inside and outside of the object.
#include "support/short_vector.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace bolt {
namespace {

using Short = ShortVector<std::string, 3>;
using Long = std::vector<std::string>;

Long listed(const Short& v) { return {v.begin(), v.end()}; }

TEST(ShortVector, RandomOperations) {
  std::mt19937 rng(1);
  for (int round = 0; round < 2000; ++round) {
    Short a, b;
    Long expected_a, expected_b;
    for (int step = 0; step < 20; ++step) {
      const std::string word = "a word that lies outside of its object " + std::to_string(rng() % 100);
      const size_t at = expected_a.empty() ? 0 : rng() % expected_a.size();
      switch (rng() % 12) {
        case 0:
        case 1:
        case 2: a.push_back(word), expected_a.push_back(word); break;
        case 3: a.insert(a.begin() + at, word), expected_a.insert(expected_a.begin() + at, word); break;
        case 4: {
          const Long more(rng() % 4, word);
          a.insert(a.begin() + at, more.begin(), more.end());
          expected_a.insert(expected_a.begin() + at, more.begin(), more.end());
          break;
        }
        case 5:
          if (!a.empty()) a.erase(a.begin() + at), expected_a.erase(expected_a.begin() + at);
          break;
        case 6: {
          const size_t n = rng() % 6;
          a.resize(n, word), expected_a.resize(n, word);
          break;
        }
        case 7: b = a, expected_b = expected_a; break;
        case 8: b = std::move(a), expected_b = std::move(expected_a), a.clear(), expected_a.clear(); break;
        case 9: std::swap(a, b), std::swap(expected_a, expected_b); break;
        case 10:
          if (!a.empty()) a.push_back(a.front()), expected_a.push_back(Long(expected_a).front());
          break;
        default: {
          auto gone = [&](const std::string& s) { return s.back() == word.back(); };
          erase_if(a, gone), std::erase_if(expected_a, gone);
        }
      }
      ASSERT_EQ(listed(a), expected_a);
      ASSERT_EQ(listed(b), expected_b);
      ASSERT_EQ(a == b, expected_a == expected_b);
      ASSERT_EQ(a < b, expected_a < expected_b);
    }
  }
}

TEST(ShortVector, OfItself) {
  Short a{"one", "two", "three"};
  Short& same = a;
  a = same;
  EXPECT_EQ(listed(a), (Long{"one", "two", "three"}));
  a.emplace_back(a.front());  // grows while it reads
  EXPECT_EQ(a.back(), "one");
  a.assign(2, a[1]);
  EXPECT_EQ(listed(a), (Long{"two", "two"}));
}

}  // namespace
}  // namespace bolt

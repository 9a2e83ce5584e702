// support/longest_run.h
// A list that says the same thing again and again -> where, how long one time is, and how often.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace bolt {

/// Elements first .. first + matches each match the one a period further on.
struct Run {
  int first = 0, period = 0, matches = 0;
  int copies() const { return period ? matches / period + 1 : 0; }
};

/// The longest such stretch, of the shortest period where there are several. `keys`: equal where elements may
/// match; `matches(i, j)`: do they?
template <typename Matches>
Run longest_run(const std::vector<uint64_t>& keys, Matches&& matches) {
  constexpr int kWindow = 6, kCandidates = 6, kMostTimes = 16, kAsked = 32;
  const int n = static_cast<int>(keys.size());
  // Short stretches that come again vote for the distance.
  std::unordered_map<uint64_t, int> last;
  std::unordered_map<int, int> votes;
  for (int i = 0; i < n; ++i) {
    uint64_t window = 0;
    for (int j = i; j < std::min(i + kWindow, n); ++j) window = (window ^ keys[j]) * 0x9e3779b97f4a7c15u + 1;
    auto [seen, fresh] = last.try_emplace(window, i);
    if (!fresh) ++votes[i - seen->second], seen->second = i;
  }
  std::vector<std::pair<int, int>> periods;  // votes (negative), period
  for (auto [period, count] : votes) periods.emplace_back(-count, period);
  std::sort(periods.begin(), periods.end());
  if (periods.size() > kCandidates) periods.resize(kCandidates);
  std::sort(periods.begin(), periods.end(), [](auto& a, auto& b) { return a.second < b.second; });

  Run best;
  std::vector<int> broken;  // of the best period: where what its key promised did not hold
  auto look = [&](int period) {
    std::vector<int> differ;
    bool better = false;
    int from = 0;
    for (int i = 0; i + period <= n; ++i) {
      const bool alike = i + period < n && keys[i] == keys[i + period];
      if (alike && matches(i, i + period)) continue;
      if (alike) differ.push_back(i);
      if (i - from > best.matches) best = {from, period, i - from}, better = true;
      from = i + 1;
    }
    if (better) broken = std::move(differ);
  };
  for (auto [count, period] : periods) look(period);
  // Where every sixth layer differs from the others a little, the stretch that repeats is six of them.
  if (2 * (best.matches + best.period) < n && !broken.empty()) {
    const int base = best.period, step = std::max<int>(1, static_cast<int>(broken.size()) / kAsked);
    for (int times = 2; times <= kMostTimes; ++times) {
      const int period = times * base;
      int asked = 0, held = 0;
      for (size_t k = 0; k < broken.size(); k += static_cast<size_t>(step)) {
        const int i = broken[k];
        if (i + period + base >= n) continue;
        ++asked;
        held += keys[i] == keys[i + period] && matches(i, i + period);
      }
      if (2 * held > asked) {
        look(period);
        break;
      }
    }
  }
  return best;
}

}  // namespace bolt

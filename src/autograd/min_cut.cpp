// autograd/min_cut.cpp
#include "autograd/min_cut.h"

#include <algorithm>
#include <cstddef>

namespace bolt::autograd {

int Network::add_node() {
  at_.emplace_back();
  return static_cast<int>(at_.size()) - 1;
}

void Network::add_edge(int from, int to, int64_t capacity) {
  at_[from].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, std::min(capacity, kUncuttable)});
  at_[to].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0});
}

/// Levels are counted from the sink, so that in the end they say who can still reach it.
bool Network::find_levels() {
  level_.assign(at_.size(), -1);
  level_[kSink] = 0;
  std::vector<int> queue{kSink};
  for (size_t i = 0; i < queue.size(); ++i)
    for (int back : at_[queue[i]]) {
      const int from = edges_[back].to;
      if (level_[from] >= 0 || edges_[back ^ 1].left == 0) continue;
      level_[from] = level_[queue[i]] + 1;
      queue.push_back(from);
    }
  return level_[kSource] >= 0;
}

/// One way to the sink, found without recursion: a chain of operators may be as long as the program.
int64_t Network::push(int source, int64_t amount) {
  std::vector<int> way;  // edges
  int node = source;
  while (node != kSink) {
    size_t& next = next_[node];
    const auto& leaving = at_[node];
    while (next < leaving.size()) {
      const Edge& edge = edges_[leaving[next]];
      if (edge.left > 0 && level_[edge.to] == level_[node] - 1) break;
      ++next;
    }
    if (next < leaving.size()) {
      way.push_back(leaving[next]);
      node = edges_[way.back()].to;
      continue;
    }
    if (way.empty()) return 0;
    node = edges_[way.back() ^ 1].to;  // a dead end
    ++next_[node];
    way.pop_back();
  }
  for (int edge : way) amount = std::min(amount, edges_[edge].left);
  for (int edge : way) {
    edges_[edge].left -= amount;
    edges_[edge ^ 1].left += amount;
  }
  return amount;
}

bool Network::cut(std::vector<bool>& on_sink_side) {
  while (find_levels()) {
    next_.assign(at_.size(), 0);
    while (int64_t pushed = push(kSource, kUncuttable))
      if (pushed >= kUncuttable) return false;
  }
  on_sink_side.resize(at_.size());
  for (size_t node = 0; node < at_.size(); ++node) on_sink_side[node] = level_[node] >= 0;
  return true;
}

}  // namespace bolt::autograd

// loops/arena.cpp
#include "loops/arena.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace bolt::loops {
namespace {

constexpr int64_t kAlign = 64;

int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

bool meet(const ArenaRequest& a, const ArenaRequest& b) {
  return a.first_step <= b.last_step && b.first_step <= a.last_step;
}

/// Requests of known size; returns the bytes they take together.
int64_t lay_out_known(const std::vector<ArenaRequest>& requests, Syms* offsets) {
  std::vector<int> order;
  int steps = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].bytes.is_const()) order.push_back(static_cast<int>(i));
    steps = std::max(steps, requests[i].last_step + 1);
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const int64_t x = requests[a].bytes.value(), y = requests[b].bytes.value();
    return x != y ? x > y : requests[a].first_step < requests[b].first_step;
  });
  using Interval = std::pair<int64_t, int64_t>;
  struct Placed {
    Interval at;
    int request;
  };
  std::vector<Placed> placed;
  // By the steps that need it: most live for a few, of many.
  std::vector<std::vector<Interval>> alive(static_cast<size_t>(steps));
  std::vector<Interval> met;
  int64_t total = 0;
  for (int r : order) {
    const ArenaRequest& q = requests[r];
    const int64_t size = aligned(std::max<int64_t>(q.bytes.value(), 1));
    const auto begin = alive.begin() + q.first_step, end = alive.begin() + q.last_step + 1;
    size_t near = 0;
    for (auto i = begin; i != end; ++i) near += i->size();
    met.clear();
    if (near < placed.size()) {
      for (auto i = begin; i != end; ++i) met.insert(met.end(), i->begin(), i->end());
    } else {
      for (const Placed& p : placed)
        if (meet(requests[p.request], q)) met.push_back(p.at);
    }
    std::sort(met.begin(), met.end());
    int64_t at = 0;
    for (const Interval& m : met) {
      if (at + size <= m.first) break;
      at = std::max(at, m.second);
    }
    (*offsets)[r] = at;
    total = std::max(total, at + size);
    placed.push_back({{at, at + size}, r});
    for (auto i = begin; i != end; ++i) i->push_back({at, at + size});
  }
  return total;
}

}  // namespace

ArenaLayout lay_out(const std::vector<ArenaRequest>& requests) {
  ArenaLayout out;
  out.offsets.resize(requests.size());
  out.bytes = lay_out_known(requests, &out.offsets);
  struct Slot {
    Sym bytes, offset;
    int free_after;
  };
  std::vector<Slot> slots;
  std::vector<int> order(requests.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return requests[a].first_step < requests[b].first_step; });
  for (int r : order) {
    const ArenaRequest& q = requests[r];
    if (q.bytes.is_const()) continue;
    auto slot = std::find_if(slots.begin(), slots.end(), [&](const Slot& s) {
      return s.bytes == q.bytes && s.free_after < q.first_step;
    });
    if (slot == slots.end()) {
      slots.push_back({q.bytes, out.bytes, q.last_step});
      out.offsets[r] = out.bytes;
      out.bytes += ceildiv(q.bytes, kAlign) * Sym(kAlign);
    } else {
      slot->free_after = q.last_step;
      out.offsets[r] = slot->offset;
    }
  }
  return out;
}

}  // namespace bolt::loops

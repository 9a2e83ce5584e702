// loops/arena.cpp
#include "loops/arena.h"

#include <algorithm>
#include <numeric>

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
  for (size_t i = 0; i < requests.size(); ++i)
    if (requests[i].bytes.is_const()) order.push_back(static_cast<int>(i));
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const int64_t x = requests[a].bytes.value(), y = requests[b].bytes.value();
    return x != y ? x > y : requests[a].first_step < requests[b].first_step;
  });
  struct Placed {
    int64_t begin, end;
    int request;
  };
  std::vector<Placed> placed;  // by begin
  int64_t total = 0;
  for (int r : order) {
    int64_t size = aligned(std::max<int64_t>(requests[r].bytes.value(), 1)), at = 0;
    for (const Placed& p : placed) {
      if (!meet(requests[p.request], requests[r])) continue;
      if (at + size <= p.begin) break;
      at = std::max(at, p.end);
    }
    (*offsets)[r] = at;
    total = std::max(total, at + size);
    Placed mine{at, at + size, r};
    placed.insert(std::upper_bound(placed.begin(), placed.end(), mine,
                                   [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
                  mine);
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

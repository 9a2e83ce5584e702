// loops/order_units.cpp
#include "loops/order_units.h"

#include <algorithm>
#include <utility>

#include "graph/device_facts.h"

namespace bolt::loops {
namespace {

using graph::Node;
using graph::OpKind;
using graph::Value;

// A kernel that takes as long to start is worth being saved where it computes next to nothing.
constexpr double kDearStartNs = 1000;

/// Is it made of what was kept for this part, or made again itself, and of nothing else? `again`: of those
/// before it. A call, and what reads nothing that is kept, waits only where no more waits with it, of what
/// others read as well, than it makes: the sum of squares that are computed for it alone, and not the sum of
/// a gradient, or the product of one and what was kept.
bool is_made_again(const Units& units, int u, const std::vector<char>& again) {
  const Units::Part& p = units.parts[u];
  if (!p.alive || !p.next.empty() || (p.call && p.call->attr_or<bool>("effect", false))) return false;
  bool any = false, some = false, all = true;
  double waits = 0, makes = 0;
  auto look = [&](const Node* n) {
    for (const Value* v : units.sources(n)) {
      const int from = v->def ? units.unit_of[v->id] : -1;
      if (from == u) continue;
      const bool kept = units.is_only_kept(v, n);
      any |= kept;
      all &= kept || (from >= 0 && again[from]);
      some |= from >= 0;
      const auto& readers = units.readers_of[v->id];
      if (!kept &&
          std::any_of(readers.begin(), readers.end(), [&](const Node* r) { return units.unit(r) != u; }))
        waits += Units::bytes_of(v);
    }
    for (const auto& v : n->outputs) makes = std::max(makes, Units::bytes_of(v.get()));
  };
  if (p.call && p.call->outputs.empty()) return false;
  if (p.call) look(p.call);
  for (const Node* n : p.nodes) look(n);
  return all && ((any && !p.call) || ((any || some) && waits <= makes));
}

void number_places(Units& units) {
  for (size_t i = 0; i < units.order.size(); ++i) units.place[units.order[i]] = static_cast<int>(i);
}

}  // namespace

void again_just_in_time(Units& units) {
  if (!units.keeps) return;
  std::vector<char> again(units.parts.size(), 0);
  for (int u : units.order) again[u] = is_made_again(units, u, again);
  std::vector<std::vector<int>> in_front(units.parts.size());  // backwards
  std::vector<int> reader(units.parts.size(), -1);             // none of these
  for (size_t i = units.order.size(); i-- > 0;) {
    const int u = units.order[i];
    int first = -1;
    if (again[u])
      units.each_successor(u, [&](int s) {
        if (s < 0 || s == u) return;
        if (again[s]) s = reader[s];
        if (first < 0 || units.place[s] < units.place[first]) first = s;
      });
    again[u] = first >= 0;
    if (first >= 0) in_front[reader[u] = first].push_back(u);
  }
  const std::vector<int> before = std::exchange(units.order, {});
  for (int u : before) {
    if (again[u]) continue;
    units.order.insert(units.order.end(), in_front[u].rbegin(), in_front[u].rend());
    units.order.push_back(u);
  }
  number_places(units);
}

void counters_last(Units& units) {
  auto counts = [&](int u) {
    const Units::Part& p = units.parts[u];
    return p.alive && !p.call && p.next.empty() && graph::facts_of(p.device).speed.start_ns >= kDearStartNs &&
           std::all_of(p.nodes.begin(), p.nodes.end(), [&](const Node* n) {
             const auto& from = units.sources(n);
             return kind_of(n) == OpKind::Pointwise && n->out()->type.numel().is_const(1) &&
                    units.readers_of[n->out()->id].empty() &&
                    std::all_of(from.begin(), from.end(), [](const Value* v) { return !v->def; });
           });
  };
  std::stable_partition(units.order.begin(), units.order.end(), [&](int u) { return !counts(u); });
  number_places(units);
}

}  // namespace bolt::loops

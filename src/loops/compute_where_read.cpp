// loops/compute_where_read.cpp
#include "loops/compute_where_read.h"

#include <algorithm>

#include "graph/device_facts.h"
#include "loops/again.h"
#include "loops/cost.h"

namespace bolt::loops {
namespace {

using graph::Node;
using graph::Value;

/// Not by a call that ends in it: what it is made of lies nowhere then.
bool is_stored_for_others(const Units& units, const Value* v) {
  const auto& readers = units.readers_of[v->id];
  const int u = units.unit_of[v->id];
  if (units.wanted[v->id] || units.returned[v->id] || units.parts[u].call) return false;
  return std::any_of(readers.begin(), readers.end(), [&](const Node* r) { return units.unit(r) != u; }) &&
         std::none_of(readers.begin(), readers.end(),
                      [&](const Node* r) { return units.is_only_kept(v, r); });
}

bool lies_in_memory(const Units& units, const Value* v) {
  const int u = units.unit_of[v->id];
  if (units.fusion.usage.materialized[v->id]) return true;
  if (u < 0) return false;
  const auto& readers = units.readers_of[v->id];
  return units.wanted[v->id] ||
         std::any_of(readers.begin(), readers.end(), [&](const Node* r) { return units.unit(r) != u; });
}

/// Nothing waits longer in memory for it that is more than what is not stored, and no kernel gets too many
/// operands.
bool pays_again(const Units& units, const Value* v, const Again& again) {
  const int made_by = units.unit_of[v->id];
  std::vector<int> readers;
  for (const Node* r : units.readers_of[v->id]) add_once(readers, units.unit(r));
  double saved = Units::bytes_of(v), repeated = 0;
  bool all_read_it = true;
  for (int u : readers) {
    const Group group = units.group(u);
    const std::vector<const Value*> read = units.sources_of(group);
    const bool reads_it = !again.from || std::find(read.begin(), read.end(), again.from) != read.end() ||
                          units.unit_of[again.from->id] == u;
    if (!reads_it) saved -= Units::bytes_of(again.from);
    if (u == made_by) continue;
    all_read_it &= reads_it;
    saved += Units::bytes_of(v), repeated += again.instructions;
    if (read.size() + group.stored.size() + again.nodes.size() > kMaxOperands ||
        group.nodes.size() + again.nodes.size() > kMaxNodes)
      return false;
  }
  const graph::MachineSpeed& machine = graph::facts_of(units.parts[made_by].device).speed;
  return (all_read_it || Units::bytes_of(again.from) <= Units::bytes_of(v)) && saved > kWaits &&
         repeated / machine.instructions_per_ns <= saved / machine.bytes_per_ns;
}

void free_nodes(Units& units, const std::vector<char>& freed) {
  auto is_freed = [&](const Node* n) { return !n->outputs.empty() && freed[n->out()->id]; };
  for (const Node* n : units.nodes) {
    if (!is_freed(n)) continue;
    Units::Part& p = units.parts[units.unit(n)];
    p.instructions -= instructions_of(*n), p.alone -= instructions_of(*n);
    std::erase(p.nodes, n);
    p.alive = !p.nodes.empty();
    units.unit_of[n->out()->id] = -1;
    units.fusion.usage.role[n->out()->id] = Role::Free;
  }
  std::erase_if(units.nodes, is_freed);
  units.link();
}

}  // namespace

bool compute_where_read(Units& units, int& fuel) {
  const Usage& usage = units.fusion.usage;
  std::vector<char> freed(usage.role.size(), 0);
  bool any = false;
  for (const Node* n : units.nodes) {
    if (usage.role_of(n) != Role::Fused || !is_stored_for_others(units, n->out())) continue;
    const auto again = computed_again(
        n->out(), [&](const Value* v) { return lies_in_memory(units, v); },
        [&](const Node* m) {
          return usage.role_of(m) == Role::Fused && (m == n || units.unit(m) == units.unit(n)) &&
                 !units.wanted[m->out()->id] && !units.fusion.constant[m->out()->id];
        });
    if (!again || fuel == 0 || !pays_again(units, n->out(), *again)) continue;
    for (const Node* m : again->nodes) freed[m->out()->id] = 1;
    any = true;
    if (fuel > 0) --fuel;
  }
  if (any) free_nodes(units, freed);
  return any;
}

}  // namespace bolt::loops

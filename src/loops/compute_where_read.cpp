// loops/compute_where_read.cpp
#include "loops/compute_where_read.h"

#include <algorithm>

#include "loops/again.h"
#include "loops/cost.h"
#include "loops/space.h"

namespace bolt::loops {
namespace {

using graph::Node;
using graph::Value;

// Of a kernel that computes what it reads: a few more than of one that is merged, for fewer bytes.
constexpr size_t kMostOperands = kMaxOperands + 4;

/// Not by a call that ends in it: what it is made of lies nowhere then.
bool is_stored_for_others(const Units& units, const Value* v) {
  const auto& readers = units.readers_of[v->id];
  const int u = units.unit_of[v->id];
  if (units.wanted[v->id] || units.returned[v->id] || units.parts[u].call) return false;
  return std::any_of(readers.begin(), readers.end(), [&](const Node* r) { return units.unit(r) != u; }) &&
         std::none_of(readers.begin(), readers.end(),
                      [&](const Node* r) { return units.is_only_kept(v, r); });
}

Lying lying_of(const Units& units) {
  const Usage& usage = units.fusion.usage;
  Lying lying{usage.materialized, std::vector<int>(usage.materialized.size(), Lying::kNowhereElse)};
  for (size_t id = 0; id < units.unit_of.size(); ++id) {
    const int u = units.unit_of[id];
    if (u < 0) {
      if (usage.role[id] == Role::Free) lying.made_by[id] = Lying::kByReaders;
      continue;
    }
    const auto& readers = units.readers_of[id];
    if (units.wanted[id] ||
        std::any_of(readers.begin(), readers.end(), [&](const Node* r) { return units.unit(r) != u; }))
      lying.in_memory[id] = 1;
    if (usage.role[id] == Role::Fused && !units.wanted[id] && !units.fusion.constant[id])
      lying.made_by[id] = u;
  }
  return lying;
}

/// Fewer bytes, in kernels that together take no longer; nothing waits longer in memory for it that is more
/// than what is not stored, and no kernel gets too many operands.
bool pays_for_readers(const Units& units, const Value* v, const Again& again) {
  const int made_by = units.unit_of[v->id];
  std::vector<int> kernels = {made_by};
  for (const Node* r : units.readers_of[v->id]) add_once(kernels, units.unit(r));
  const std::vector<const Value*> needed = units.sources_of({again.nodes, {}});
  const MachineSpeed& machine = graph::facts_of(v->type.device).speed;
  double saved = 0, longer = 0;
  for (int u : kernels) {
    const Group group = units.group(u);
    const std::vector<const Value*> read = units.sources_of(group);
    auto has = [&](const Value* x) {
      return units.unit_of[x->id] == u || std::find(read.begin(), read.end(), x) != read.end();
    };
    double fetched = 0;
    for (const Value* x : again.from)
      if (!has(x)) fetched += Units::bytes_of(x);
    if (fetched > Units::bytes_of(v)) return false;
    const auto more = std::count_if(needed.begin(), needed.end(), [&](const Value* x) { return !has(x); });
    if (u != made_by && (read.size() - 1 + static_cast<size_t>(more) + group.stored.size() > kMostOperands ||
                         group.nodes.size() + again.nodes.size() > kMaxNodes))
      return false;
    const KernelWork now{units.bytes_of(group), units.parts[u].instructions};
    const double here = Units::bytes_of(v) - fetched;
    saved += here;
    longer += price(machine, {now.bytes - here, now.instructions + (u == made_by ? 0 : again.instructions)}) -
              price(machine, now);
  }
  return saved > kWaits && longer <= 0;
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

/// What held a kernel's nodes over one space together may be computed elsewhere now.
void take_apart_without_space(Units& units, const std::vector<int>& touched) {
  for (int u : touched) {
    const Units::Part& p = units.parts[u];
    if (p.alive && !p.call && p.nodes.size() > 1 && !align(units.fusion.usage, units.group(u)))
      units.take_apart(u);
  }
}

}  // namespace

bool compute_where_read(Units& units, int& fuel) {
  const Usage& usage = units.fusion.usage;
  std::vector<char> freed(usage.role.size(), 0);
  const Lying lying = lying_of(units);
  std::vector<int> touched;
  for (const Node* n : units.nodes) {
    if (usage.role_of(n) != Role::Fused || !is_stored_for_others(units, n->out())) continue;
    const auto again = computed_again(n->out(), lying);
    if (!again || fuel == 0 || !pays_for_readers(units, n->out(), *again)) continue;
    for (const Node* m : again->nodes) freed[m->out()->id] = 1;
    add_once(touched, units.unit(n));
    for (const Node* r : units.readers_of[n->out()->id]) add_once(touched, units.unit(r));
    if (fuel > 0) --fuel;
  }
  if (touched.empty()) return false;
  free_nodes(units, freed);
  take_apart_without_space(units, touched);
  return true;
}

}  // namespace bolt::loops

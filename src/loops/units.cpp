// loops/units.cpp
#include "loops/units.h"

#include <unordered_map>
#include <utility>

#include "loops/cost.h"
#include "support/symbols.h"

namespace bolt::loops {

using graph::Node;
using graph::Op;
using graph::OpKind;
using graph::Value;

Units::Units(const graph::Graph& graph, const PlanOptions& plan_options)
    : source(graph), options(plan_options) {
  Roles r = assign_roles(graph, options);
  fusion = std::move(r.fusion);
  wanted = std::move(r.wanted);
  returned.assign(fusion.usage.role.size(), 0);
  for (const graph::Output& o : graph.outputs) returned[view_base(o.value)->id] = 1;
  make_parts();
  link();
}

void Units::make_parts() {
  unit_of.assign(fusion.usage.role.size(), -1);
  int last_effect = -1, piece = 0;
  std::unordered_map<Sym, int> finders;  // of sizes that are data: the part that finds one out
  const bool finds = std::any_of(source.nodes.begin(), source.nodes.end(), [](const auto& n) {
    return std::any_of(n->outputs.begin(), n->outputs.end(), [](const auto& v) {
      return std::any_of(v->type.sizes.begin(), v->type.sizes.end(), holds_data_size);
    });
  });
  for (const auto& n : source.nodes) {
    keeps |= n->op == Op::keep;
    piece += n->op == Op::keep && n->attr_or<bool>("piece", false);
    Role role = fusion.usage.role_of(n.get());
    if (role == Role::Free) continue;
    int id = static_cast<int>(parts.size());
    Part p = part_of(*n, piece);
    if (role == Role::Library) {
      p.call = n.get();
      if (n->attr_or<bool>("effect", false)) {
        if (last_effect >= 0) parts[last_effect].next.push_back(id);
        last_effect = id;
      }
      if (options.generates && is_contraction(n->op)) p.packed = options.generates(describe_call(fusion, *n));
    }
    for (const auto& v : n->outputs) unit_of[v->id] = id;
    for (Sym size : finds ? data_sizes_of(*n) : std::vector<Sym>()) {
      const auto [finder, fresh] = finders.try_emplace(size, id);
      if (!fresh && finder->second != id) parts[finder->second].next.push_back(id);
    }
    place.push_back(static_cast<int>(order.size()));
    order.push_back(id);
    parts.push_back(std::move(p));
    nodes.push_back(n.get());
  }
}

Units::Part Units::part_of(const Node& n, int piece) const {
  Part p;
  if (fusion.usage.role_of(&n) != Role::Library) {
    p.nodes = {&n};
    p.alone = p.instructions = instructions_of(n);
  }
  p.piece = piece;
  p.reduces = kind_of(&n) == OpKind::Reduce || kind_of(&n) == OpKind::Scan;
  if (!n.outputs.empty()) p.device = n.out()->type.device;
  p.fold = !n.outputs.empty() && fusion.constant[n.out()->id];
  return p;
}

void Units::take_apart(int u) {
  std::vector<int> made;
  for (const Node* n : std::exchange(parts[u].nodes, {})) {
    made.push_back(unit_of[n->out()->id] = static_cast<int>(parts.size()));
    parts.push_back(part_of(*n, parts[u].piece));
  }
  // Its first node follows what the kernel had to follow, and its last is followed by what had to follow it.
  for (Part& p : parts) std::replace(p.next.begin(), p.next.end(), u, made.front());
  parts[made.back()].next = std::exchange(parts[u].next, {});
  parts[u].alive = false;
  order.insert(order.begin() + place[u] + 1, made.begin(), made.end());
  place.resize(parts.size());
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = static_cast<int>(i);
}

/// The sizes that are data which a unit's node must know, or finds out.
std::vector<Sym> Units::data_sizes_of(const Node& n) const {
  Syms symbols;
  auto add = [&](const Syms& sizes) {
    for (Sym s : sizes) collect_symbols(s, &symbols);
  };
  auto add_node = [&](const Node& m, auto& self) -> void {
    for (const auto& v : m.outputs) add(v->type.sizes), add(v->type.strides);
    for (const auto& [name, value] : m.attrs)
      if (const auto* sizes = std::get_if<Syms>(&value)) add(*sizes);
    for (const Value* o : m.operands) {
      add(o->type.sizes);
      if (o->def && fusion.usage.role_of(o->def) == Role::Free) self(*o->def, self);
    }
  };
  add_node(n, add_node);
  std::vector<Sym> found;
  for (Sym s : symbols)
    if (is_data_size(*s.node()) && std::find(found.begin(), found.end(), s) == found.end())
      found.push_back(s);
  return found;
}

void Units::link() {
  readers_of.assign(fusion.usage.role.size(), {});
  read_by.assign(fusion.usage.role.size(), {});
  for (const Node* n : nodes) {
    std::vector<const Value*> found;
    for (const Value* o : n->operands) trace(o, &found);
    for (const Value* v : found) readers_of[v->id].push_back(n);
    if (!n->outputs.empty()) read_by[n->out()->id] = std::move(found);
  }
}

void Units::trace(const Value* v, std::vector<const Value*>* found) const {
  if (!v->def || unit_of[v->id] >= 0) {
    if (std::find(found->begin(), found->end(), v) == found->end()) found->push_back(v);
    return;
  }
  for (const Value* o : v->def->operands) trace(o, found);
}

Group Units::group(int u) const {
  return {parts[u].nodes, stored_of(parts[u].nodes, [&](int other) { return other == u; })};
}

std::vector<const Value*> Units::sources_of(const Group& group) const {
  std::vector<const Value*> read;
  for (const Node* n : group.nodes)
    for (const Value* v : sources(n)) {
      bool inside = v->def && std::find(group.nodes.begin(), group.nodes.end(), v->def) != group.nodes.end();
      if (!inside && std::find(read.begin(), read.end(), v) == read.end()) read.push_back(v);
    }
  return read;
}

double Units::bytes_of(const Group& group) const {
  double bytes = 0;
  for (const Value* v : sources_of(group)) bytes += bytes_of(v);
  for (const Value* v : group.stored) bytes += bytes_of(v);
  return bytes;
}

bool Units::is_only_kept(const Value* v, const Node* n) const {
  return keeps && std::none_of(n->operands.begin(), n->operands.end(),
                               [&](const Value* o) { return reaches(o, v, true); });
}

bool Units::reaches(const Value* from, const Value* v, bool within_part) const {
  if (from == v) return true;
  if (!from->def || unit_of[from->id] >= 0 || (within_part && from->def->op == Op::keep)) return false;
  return std::any_of(from->def->operands.begin(), from->def->operands.end(),
                     [&](const Value* o) { return reaches(o, v, within_part); });
}

}  // namespace bolt::loops

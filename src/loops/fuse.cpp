// loops/fuse.cpp
#include "loops/fuse.h"

#include <algorithm>
#include <cstdlib>
#include <unordered_map>
#include <utility>

#include "loops/again.h"
#include "loops/build.h"
#include "loops/cost.h"
#include "loops/roles.h"
#include "support/error.h"
#include "support/symbols.h"

namespace bolt::loops {
namespace {

using graph::Graph;
using graph::Node;
using graph::Op;
using graph::OpKind;
using graph::Value;

// A kernel's operands live in registers as addresses, and its expressions in one function: past these the
// code spills and compiling takes longer than it saves.
constexpr size_t kMaxNodes = 96;
constexpr size_t kMaxOperands = 24;
constexpr size_t kMaxStored = 8;
// Rows of a reduction that is not over the innermost memory are swept several times with strided reads.
constexpr int64_t kMaxStridedRow = 4096;
// Expressions, what a fusion repeats counted: compiling takes longer than in proportion to them.
constexpr size_t kMaxExprs = 256;
constexpr size_t kMaxNeighbours = 16;
constexpr size_t kMaxEpilogue = 8;
constexpr int kMaxRounds = 3;
// More of those that read one value are not tried with each other.
constexpr size_t kMaxSiblings = 3;
// Bytes that may wait longer for a start less.
constexpr double kWaits = 1 << 16;
// A kernel that takes as long to start is worth being saved where it computes next to nothing.
constexpr double kDearStartNs = 1000;

class Fuser {
 public:
  Fuser(const Graph& g, const PlanOptions& options) : g_(g), options_(options), fuel_(options.fuel) {
    Roles r = assign_roles(g, options);
    f_ = std::move(r.fusion);
    wanted_ = std::move(r.wanted);
    returned_.assign(f_.usage.role.size(), 0);
    for (const graph::Output& o : g_.outputs) returned_[view_base(o.value)->id] = 1;
  }

  Fusion run() {
    make_units();
    link();
    if (options_.fuse) {
      epilogues();
      join_consumers();
      again_just_in_time();
      if (siblings()) join_consumers();
      if (sink()) siblings();
      if (compute_where_read()) join_consumers();
      counters_last();
      neighbours();
      again_just_in_time();
    }
    return collect();
  }

 private:
  struct Part {
    std::vector<const Node*> nodes;
    const Node* call = nullptr;
    bool fold = false, alive = true;
    bool reduces = false;
    graph::Device device;     // of its results: one kernel runs on one device
    double alone = 0;         // instructions of its nodes, each a kernel by itself
    double instructions = 0;  // of its kernel
    std::optional<int64_t> packed;
    /// What must come after a call although it reads nothing of it: of those with effects the next one (what
    /// draws random numbers), and what has a size that the call finds out.
    std::vector<int> next;
  };

  // ---- units and their links ----

  void make_units() {
    unit_of_.assign(f_.usage.role.size(), -1);
    const bool finds = std::any_of(g_.nodes.begin(), g_.nodes.end(), [](const auto& n) {
      return std::any_of(n->outputs.begin(), n->outputs.end(), [](const auto& v) {
        return std::any_of(v->type.sizes.begin(), v->type.sizes.end(), holds_data_size);
      });
    });
    for (const auto& n : g_.nodes) {
      keeps_ |= n->op == Op::keep;
      Role role = f_.usage.role_of(n.get());
      if (role == Role::Free) continue;
      int id = static_cast<int>(parts_.size());
      Part p;
      if (role == Role::Library) {
        p.call = n.get();
        if (n->attr_or<bool>("effect", false)) {
          if (last_effect_ >= 0) parts_[last_effect_].next.push_back(id);
          last_effect_ = id;
        }
        if (options_.generates && is_contraction(*n)) p.packed = options_.generates(describe_call(f_, *n));
      } else {
        p.nodes = {n.get()};
        p.alone = p.instructions = instructions_of(*n);
      }
      p.reduces = kind_of(n.get()) == OpKind::Reduce || kind_of(n.get()) == OpKind::Scan;
      if (!n->outputs.empty()) p.device = n->out()->type.device;
      p.fold = !n->outputs.empty() && f_.constant[n->out()->id];
      for (const auto& v : n->outputs) unit_of_[v->id] = id;
      for (Sym size : finds ? data_sizes_of(*n) : std::vector<Sym>()) {
        const auto [finder, fresh] = finders_.try_emplace(size, id);
        if (!fresh && finder->second != id) parts_[finder->second].next.push_back(id);
      }
      place_.push_back(static_cast<int>(order_.size()));
      order_.push_back(id);
      parts_.push_back(std::move(p));
      of_node_.push_back(n.get());
    }
    readers_.resize(f_.usage.role.size());
    sources_.resize(f_.usage.role.size());
  }

  /// The sizes that are data which a unit's node must know, or finds out.
  std::vector<Sym> data_sizes_of(const Node& n) const {
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
        if (o->def && f_.usage.role_of(o->def) == Role::Free) self(*o->def, self);
      }
    };
    add_node(n, add_node);
    std::vector<Sym> found;
    for (Sym s : symbols)
      if (is_data_size(*s.node()) && std::find(found.begin(), found.end(), s) == found.end())
        found.push_back(s);
    return found;
  }

  /// For each value that lies in memory or is computed by a unit: the units' nodes that read it, views and
  /// other free nodes in between left out. And for each node the values it so reads.
  void link() {
    for (const Node* n : of_node_) {
      std::vector<const Value*> found;
      for (const Value* o : n->operands) trace(o, &found);
      for (const Value* v : found) readers_[v->id].push_back(n);
      if (!n->outputs.empty()) sources_[n->out()->id] = std::move(found);
    }
  }
  void trace(const Value* v, std::vector<const Value*>* found) const {
    bool source = !v->def || unit_of_[v->id] >= 0;
    if (source) {
      if (std::find(found->begin(), found->end(), v) == found->end()) found->push_back(v);
      return;
    }
    for (const Value* o : v->def->operands) trace(o, found);
  }
  const std::vector<const Value*>& sources(const Node* n) const { return sources_[n->out()->id]; }
  int unit(const Node* n) const { return n->outputs.empty() ? -1 : unit_of_[n->out()->id]; }

  // ---- merging ----

  /// A value with several readers can join only once these are one unit: again while that helps.
  void join_consumers() {
    for (int round = 0; round < kMaxRounds && into_consumers(); ++round) {
    }
  }

  bool into_consumers() {
    bool any = false;
    for (const Node* n : of_node_) {
      if (f_.usage.role_of(n) != Role::Fused) continue;
      std::vector<const Value*> from;
      for (const Value* v : sources(n))
        if (v->def && f_.usage.role_of(v->def) == Role::Fused) from.push_back(v);
      std::stable_sort(from.begin(), from.end(), [](const Value* a, const Value* b) {
        return estimate(a->type.numel()) > estimate(b->type.numel());
      });
      for (const Value* v : from)
        if (unit(v->def) != unit(n) && !is_only_kept(v, n) && pays(v, n))
          any |= try_merge(unit(v->def), unit(n));
    }
    return any;
  }

  /// Does `n` belong to a later part of the program than what makes `v`? In one kernel the later work would
  /// be done before that part begins, and wait for it in memory.
  bool is_only_kept(const Value* v, const Node* n) const {
    return keeps_ && std::none_of(n->operands.begin(), n->operands.end(),
                                  [&](const Value* o) { return reaches(o, v, true); });
  }

  /// Reading `v` in registers is a gain unless work is repeated for it: for each row of a larger result.
  bool pays(const Value* v, const Node* n) const {
    const Part& p = parts_[unit(v->def)];
    if (p.reduces) return true;
    const double here = elements(v), there = elements(larger(n));
    if (there < 2 * here || here == 1 || broadcast_inside(v, n)) return true;
    if (!options_.repeats) return false;
    const MachineSpeed& machine = graph::facts_of(p.device).speed;
    const double repeated = p.instructions / elements(p.nodes.back()->out()) * (there - here);
    const KernelWork store_and_load{2 * here * dtype_bytes(v->type.dtype), 0}, reader = work_of_unit(unit(n));
    const double apart = price(machine, reader) + price(machine, store_and_load);
    return price(machine, {reader.bytes, reader.instructions + repeated}) <= apart;
  }
  static double elements(const Value* v) { return static_cast<double>(estimate(v->type.numel())); }
  /// The value whose elements its loop runs over.
  static const Value* larger(const Node* n) {
    if (kind_of(n) == OpKind::Scatter) return n->operands[1];
    return kind_of(n) == OpKind::Reduce ? n->operands[0] : n->out();
  }

  /// Is `v` the same all along the innermost dimension of n's result? Then each row computes it once.
  bool broadcast_inside(const Value* v, const Node* n) const {
    for (const Value* o : n->operands) {
      if (!reaches(o, v)) continue;
      bool constant = false;
      for (const Value* x = o;; x = x->def->operands[0]) {
        constant |= x->type.rank() == 0 || x->type.sizes.back().is_const(1);
        if (constant || x == v || !x->def || kind_of(x->def) != OpKind::View) break;
      }
      if (!constant) return false;
    }
    return true;
  }
  bool reaches(const Value* from, const Value* v, bool within_part = false) const {
    if (from == v) return true;
    if (!from->def || unit_of_[from->id] >= 0 || (within_part && from->def->op == Op::keep)) return false;
    return std::any_of(from->def->operands.begin(), from->def->operands.end(),
                       [&](const Value* o) { return reaches(o, v, within_part); });
  }

  /// A number that a call counts on in an input of its own (batches that a normalisation has seen) is
  /// nobody's business before the end: there they are neighbours. That is to save starts, where they cost
  /// something.
  void counters_last() {
    auto counts = [&](int u) {
      const Part& p = parts_[u];
      return p.alive && !p.call && p.next.empty() &&
             graph::facts_of(p.device).speed.start_ns >= kDearStartNs &&
             std::all_of(p.nodes.begin(), p.nodes.end(), [&](const Node* n) {
               const auto& from = sources(n);
               return kind_of(n) == OpKind::Pointwise && n->out()->type.numel().is_const(1) &&
                      readers_[n->out()->id].empty() &&
                      std::all_of(from.begin(), from.end(), [](const Value* v) { return !v->def; });
             });
    };
    std::stable_partition(order_.begin(), order_.end(), [&](int u) { return !counts(u); });
    for (size_t i = 0; i < order_.size(); ++i) place_[order_[i]] = static_cast<int>(i);
  }

  /// What is computed again of what was kept waits for nothing, so merges across it leave it anywhere in
  /// front. Its results need memory: it comes right before the first who reads any of them.
  void again_just_in_time() {
    if (!keeps_) return;
    std::vector<char> again(parts_.size(), 0);
    for (int u : order_) again[u] = is_made_again(u, again);
    std::vector<std::vector<int>> in_front(parts_.size());  // backwards
    std::vector<int> reader(parts_.size(), -1);             // none of these
    for (size_t i = order_.size(); i-- > 0;) {
      const int u = order_[i];
      int first = -1;
      if (again[u])
        each_successor(u, [&](int s) {
          if (s < 0 || s == u) return;
          if (again[s]) s = reader[s];
          if (first < 0 || place_[s] < place_[first]) first = s;
        });
      again[u] = first >= 0;
      if (first >= 0) in_front[reader[u] = first].push_back(u);
    }
    const std::vector<int> before = std::exchange(order_, {});
    for (int u : before) {
      if (again[u]) continue;
      order_.insert(order_.end(), in_front[u].rbegin(), in_front[u].rend());
      order_.push_back(u);
    }
    for (size_t i = 0; i < order_.size(); ++i) place_[order_[i]] = static_cast<int>(i);
  }

  /// Is it made of what was kept for this part, or made again itself, and of nothing else? `again`: of those
  /// before it. What reads nothing that is kept waits only where no more waits with it, of what others read
  /// as well, than it makes: the sum of squares that are computed for it alone, and not the sum of a
  /// gradient.
  bool is_made_again(int u, const std::vector<char>& again) const {
    const Part& p = parts_[u];
    if (!p.alive || !p.next.empty() || (p.call && p.call->attr_or<bool>("effect", false))) return false;
    bool any = false, some = false, all = true;
    double waits = 0, makes = 0;
    auto size = [](const Value* v) { return elements(v) * dtype_bytes(v->type.dtype); };
    auto look = [&](const Node* n) {
      for (const Value* v : sources(n)) {
        const int from = v->def ? unit_of_[v->id] : -1;
        if (from == u) continue;
        const bool kept = is_only_kept(v, n);
        any |= kept;
        all &= kept || (from >= 0 && again[from]);
        some |= from >= 0;
        const auto& readers = readers_[v->id];
        if (std::any_of(readers.begin(), readers.end(), [&](const Node* r) { return unit(r) != u; }))
          waits += size(v);
      }
      for (const auto& v : n->outputs) makes = std::max(makes, size(v.get()));
    };
    if (p.call && p.call->outputs.empty()) return false;
    if (p.call) look(p.call);
    for (const Node* n : p.nodes) look(n);
    return all && (any || (some && waits <= makes));
  }

  /// Neighbours in the order over one shape are merged too, if they are small: one start instead of two.
  void neighbours() {
    for (size_t i = 0; i + 1 < order_.size(); ++i) {
      int a = order_[i];
      if (!parts_[a].alive || parts_[a].call) continue;
      size_t j = i + 1;
      while (j < order_.size() && !parts_[order_[j]].alive) ++j;
      if (j == order_.size() || parts_[order_[j]].call) continue;
      int b = order_[j];
      if (parts_[a].nodes.size() + parts_[b].nodes.size() <= kMaxNeighbours && same_extent(a, b))
        try_merge(a, b);
    }
  }

  /// Kernels that read the same.
  bool siblings() {
    bool any = false;
    for (const auto& readers : readers_) {
      std::vector<int> units;
      for (const Node* n : readers)
        if (const int u = unit(n); u >= 0 && !parts_[u].call) add_once(units, u);
      for (size_t i = 0; i + 1 < units.size(); ++i)
        for (size_t j = i + 1; j < units.size() && j <= i + kMaxSiblings; ++j) {
          const int a = units[i], b = units[j];
          if (!same_extent(a, b) || std::abs(place_[a] - place_[b]) >= 24 || !try_merge(a, b)) continue;
          any = true;  // the later of the two is both now
          const int both = parts_[a].alive ? a : b;
          units[i] = both;
          units.erase(units.begin() + static_cast<std::ptrdiff_t>(j--));
        }
    }
    return any;
  }
  static void add_once(std::vector<int>& units, int u) {
    if (std::find(units.begin(), units.end(), u) == units.end()) units.push_back(u);
  }

  /// What a reduction's kernel computes for one later kernel alone is computed there, where that moves fewer
  /// bytes: a normalisation's column sums read the rounded image again and a number a row, and not float32
  /// images made of them.
  bool sink() {
    bool any = false;
    for (size_t i = 0; i < order_.size(); ++i) {
      const int a = order_[i];
      if (!parts_[a].alive || !parts_[a].reduces || parts_[a].fold) continue;
      std::vector<int> readers;
      for (const Node* n : parts_[a].nodes)
        for (const Node* r : readers_[n->out()->id])
          if (const int b = unit(r);
              b >= 0 && b != a && std::find(readers.begin(), readers.end(), b) == readers.end())
            readers.push_back(b);
      for (int b : readers)
        if (!parts_[b].call && parts_[b].reduces && parts_[b].device == parts_[a].device && !parts_[b].fold)
          any |= sink_into(a, b);
    }
    return any;
  }

  /// Pointwise nodes of `a` over its whole space that only `b` waits for, later ones first.
  std::vector<const Node*> only_for(int a, int b) const {
    const double most = static_cast<double>(estimate(extent(parts_[a])));
    std::vector<const Node*> found;
    for (size_t i = parts_[a].nodes.size(); i-- > 0;) {
      const Node* n = parts_[a].nodes[i];
      const Value* v = n->out();
      const auto& readers = readers_[v->id];
      if (kind_of(n) != OpKind::Pointwise || wanted_[v->id] || returned_[v->id] || elements(v) < most)
        continue;
      const bool is_only = std::all_of(readers.begin(), readers.end(), [&](const Node* r) {
        return std::find(found.begin(), found.end(), r) != found.end() ||
               (unit(r) == b && !is_only_kept(v, r));
      });
      if (is_only && !readers.empty()) found.push_back(n);
    }
    return found;
  }

  bool sink_into(int a, int b) {
    const std::vector<const Node*> moved = only_for(a, b);
    if (moved.empty() || moved.size() == parts_[a].nodes.size() || fuel_ == 0) return false;
    if (parts_[b].nodes.size() + moved.size() > kMaxNodes) return false;
    auto stored_by = [&](int u) {
      return Group{parts_[u].nodes, stored_of(parts_[u].nodes, [&](int other) { return other == u; })};
    };
    const Group from = stored_by(a), into = stored_by(b);
    const std::vector<const Node*> nodes_a = parts_[a].nodes, nodes_b = parts_[b].nodes;
    for (const Node* n : moved) {
      std::erase(parts_[a].nodes, n);
      parts_[b].nodes.push_back(n);
      unit_of_[n->out()->id] = b;
    }
    std::sort(parts_[b].nodes.begin(), parts_[b].nodes.end(),
              [](const Node* x, const Node* y) { return x->out()->id < y->out()->id; });
    const Group left = stored_by(a), more = stored_by(b);
    const double saved = bytes_of(from) + bytes_of(into) - bytes_of(left) - bytes_of(more);
    if (saved > kWaits && !left.stored.empty() && operand_count(more) <= kMaxOperands &&
        left.stored.size() <= kMaxStored && !waits_for(a, b, from, left, into, more) && !moves_within(more) &&
        one_space(left, true) && one_space(more, true)) {
      for (const Node* n : moved) {
        const double work = instructions_of(*n);
        parts_[a].instructions -= work, parts_[a].alone -= work;
        parts_[b].instructions += work, parts_[b].alone += work;
      }
      if (fuel_ > 0) --fuel_;
      return true;
    }
    parts_[a].nodes = nodes_a;
    parts_[b].nodes = nodes_b;
    for (const Node* n : moved) unit_of_[n->out()->id] = a;
    return false;
  }

  /// Does more lie in memory between the two, where calls take memory of their own?
  bool waits_for(int a, int b, const Group& from, const Group& left, const Group& into,
                 const Group& more) const {
    double bytes = 0;
    auto size = [](const Value* v) { return elements(v) * dtype_bytes(v->type.dtype); };
    for (const Value* v : left.stored) bytes += size(v);
    for (const Value* v : from.stored) bytes -= size(v);
    const std::vector<const Value*> known = sources_of(into);
    for (const Value* v : sources_of(more)) {
      if (!v->def || returned_[v->id] || unit_of_[v->id] == a) continue;
      if (std::find(known.begin(), known.end(), v) != known.end()) continue;
      const bool last_read_before =
          std::none_of(readers_[v->id].begin(), readers_[v->id].end(),
                       [&](const Node* r) { return unit(r) != b && place_[unit(r)] >= place_[b]; });
      if (last_read_before) bytes += size(v);
    }
    return bytes > 0;
  }

  // ---- computed again ----

  /// A value that a kernel stores for others is computed by each of them instead, where that moves fewer
  /// bytes: a normalised image in float32, which they can make of the image in bfloat16 that they read
  /// anyway, and of its statistics.
  bool compute_where_read() {
    std::vector<char> freed(f_.usage.role.size(), 0);
    bool any = false;
    for (const Node* n : of_node_) {
      if (f_.usage.role_of(n) != Role::Fused || !is_stored_for_others(n->out())) continue;
      const auto again = computed_again(
          n->out(), [&](const Value* v) { return lies_in_memory(v); },
          [&](const Node* m) {
            return f_.usage.role_of(m) == Role::Fused && (m == n || unit(m) == unit(n)) &&
                   !wanted_[m->out()->id] && !f_.constant[m->out()->id];
          });
      if (!again || fuel_ == 0 || !pays_again(n->out(), *again)) continue;
      for (const Node* m : again->nodes) freed[m->out()->id] = 1;
      any = true;
      if (fuel_ > 0) --fuel_;
    }
    if (any) free_nodes(freed);
    return any;
  }

  /// Not by a call that ends in it: what it is made of lies nowhere then.
  bool is_stored_for_others(const Value* v) const {
    const auto& readers = readers_[v->id];
    const int u = unit_of_[v->id];
    if (wanted_[v->id] || returned_[v->id] || parts_[u].call) return false;
    return std::any_of(readers.begin(), readers.end(), [&](const Node* r) { return unit(r) != u; }) &&
           std::none_of(readers.begin(), readers.end(), [&](const Node* r) { return is_only_kept(v, r); });
  }
  bool lies_in_memory(const Value* v) const {
    if (unit_of_[v->id] < 0) return f_.usage.materialized[v->id] != 0;
    const auto& readers = readers_[v->id];
    return f_.usage.materialized[v->id] || wanted_[v->id] ||
           std::any_of(readers.begin(), readers.end(),
                       [&](const Node* r) { return unit(r) != unit_of_[v->id]; });
  }

  /// Nothing waits longer in memory for it that is more than what is not stored, and no kernel gets too many
  /// operands.
  bool pays_again(const Value* v, const Again& again) const {
    auto size = [](const Value* x) { return elements(x) * dtype_bytes(x->type.dtype); };
    const int made_by = unit_of_[v->id];
    std::vector<int> units;
    for (const Node* r : readers_[v->id]) add_once(units, unit(r));
    double saved = size(v), repeated = 0;
    bool all_read_it = true;
    for (int u : units) {
      const Group group{parts_[u].nodes, stored_of(parts_[u].nodes, [&](int x) { return x == u; })};
      const std::vector<const Value*> read = sources_of(group);
      const bool reads_it = !again.from || std::find(read.begin(), read.end(), again.from) != read.end() ||
                            unit_of_[again.from->id] == u;
      if (!reads_it) saved -= size(again.from);
      if (u == made_by) continue;
      all_read_it &= reads_it;
      saved += size(v), repeated += again.instructions;
      if (operand_count(group) + again.nodes.size() > kMaxOperands ||
          group.nodes.size() + again.nodes.size() > kMaxNodes)
        return false;
    }
    const MachineSpeed& machine = graph::facts_of(parts_[made_by].device).speed;
    return (all_read_it || size(again.from) <= size(v)) && saved > kWaits &&
           repeated / machine.instructions_per_ns <= saved / machine.bytes_per_ns;
  }

  void free_nodes(const std::vector<char>& freed) {
    auto is_freed = [&](const Node* n) { return !n->outputs.empty() && freed[n->out()->id]; };
    for (const Node* n : of_node_) {
      if (!is_freed(n)) continue;
      Part& p = parts_[unit(n)];
      p.instructions -= instructions_of(*n), p.alone -= instructions_of(*n);
      std::erase(p.nodes, n);
      p.alive = !p.nodes.empty();
      unit_of_[n->out()->id] = -1;
      f_.usage.role[n->out()->id] = Role::Free;
    }
    std::erase_if(of_node_, is_freed);
    readers_.assign(readers_.size(), {});
    sources_.assign(sources_.size(), {});
    trial_strides_.clear();
    link();
  }

  bool same_extent(int a, int b) const { return extent(parts_[a]) == extent(parts_[b]); }
  static Sym extent(const Part& p) {
    Sym most = 0;
    for (const Node* n : p.nodes) {
      Sym here = larger(n)->type.numel();
      if (estimate(here) > estimate(most)) most = here;
    }
    return most;
  }

  bool try_merge(int a, int b) {
    if (place_[a] > place_[b]) std::swap(a, b);
    if (fuel_ == 0 || parts_[a].call || parts_[b].call || parts_[a].fold != parts_[b].fold) return false;
    if (parts_[a].device != parts_[b].device) return false;
    if (parts_[a].nodes.size() + parts_[b].nodes.size() > kMaxNodes) return false;
    Group g = united(a, b);
    if (!goes_together(g)) return false;
    if (g.stored.size() > kMaxStored || operand_count(g) > kMaxOperands) return false;
    std::vector<int> after;
    if (!acyclic(a, b, &after) || !one_space(g, parts_[a].reduces || parts_[b].reduces)) return false;
    if (leaves_more(a, g, after) || (keeps_ && waits_longer(a, b, after))) return false;
    double instructions = parts_[a].instructions + parts_[b].instructions;
    if (moves_within(g) && !affordable(a, b, g, &instructions)) return false;
    parts_[b].instructions = instructions;
    parts_[b].alone += parts_[a].alone;
    merge(a, b, std::move(g), after);
    if (fuel_ > 0) --fuel_;
    return true;
  }

  /// What the earlier one reads waits in memory for the later one then, instead of what it makes. In a
  /// training step the later one may be the update, and the gradient of a bias is far less than the image it
  /// is the sum of.
  bool waits_longer(int a, int b, const std::vector<int>& after) const {
    auto only_before = [&](const Value* v) {
      return std::all_of(readers_[v->id].begin(), readers_[v->id].end(),
                         [&](const Node* r) { return unit(r) != b && place_[unit(r)] < place_[b]; });
    };
    double more = 0;
    for (const Value* v : sources_of({parts_[a].nodes, {}}))
      if (v->def && !returned_[v->id] && only_before(v)) more += elements(v) * dtype_bytes(v->type.dtype);
    for (const Value* v : stored_of(parts_[a].nodes, [&](int u) { return u == a; }))
      more -= elements(v) * dtype_bytes(v->type.dtype);
    if (more < kWaits) return false;
    return std::any_of(order_.begin() + place_[a] + 1, order_.begin() + place_[b], [&](int u) {
      return parts_[u].alive && parts_[u].call && std::find(after.begin(), after.end(), u) == after.end();
    });
  }

  /// A kernel reduces, scans or scatters. What is scattered into is made before, and the result read behind
  /// it.
  bool goes_together(const Group& g) const {
    bool reduces = false, scans = false, scatters = false;
    auto member = [&](const Node* n) {
      return std::find(g.nodes.begin(), g.nodes.end(), n) != g.nodes.end();
    };
    for (const Node* n : g.nodes) {
      reduces |= kind_of(n) == OpKind::Reduce;
      scans |= kind_of(n) == OpKind::Scan;
      if (kind_of(n) != OpKind::Scatter) continue;
      scatters = true;
      const auto& readers = readers_[n->out()->id];
      if (member(n->operands[0]->def) || std::any_of(readers.begin(), readers.end(), member)) return false;
    }
    return reduces + scans + scatters <= 1;
  }

  /// Behind the merged group come calls that came before the later one so far. What that one made did not
  /// wait for them in memory: only what it is made of did, and that may be far less (of a normalisation in
  /// float32 the image in bfloat16).
  bool leaves_more(int a, const Group& g, const std::vector<int>& after) const {
    if (options_.bytes_apart == 0 ||
        std::none_of(after.begin(), after.end(), [&](int u) { return parts_[u].call != nullptr; }))
      return false;
    auto bytes = [](const std::vector<const Value*>& values) {
      int64_t sum = 0;
      for (const Value* v : values) sum += estimate(v->type.numel()) * dtype_bytes(v->type.dtype);
      return sum;
    };
    const auto left = stored_of(parts_[a].nodes, [&](int other) { return other == a; });
    return options_.are_apart(bytes(g.stored) - bytes(left), parts_[a].device);
  }

  // ---- prices ----

  /// Can a node of the group be asked for under several indices? Then only its kernel tells how often it is.
  bool moves_within(const Group& g) const {
    auto member = [&](const Value* v) {
      return v->def && std::find(g.nodes.begin(), g.nodes.end(), v->def) != g.nodes.end();
    };
    for (const Node* n : g.nodes)
      for (const Value* o : n->operands) {
        if (!crosses_odd_view(o) && kind_of(n) != OpKind::Index) continue;
        std::vector<const Value*> found;
        trace(o, &found);
        if (std::any_of(found.begin(), found.end(), member)) return true;
      }
    return false;
  }

  /// Is one kernel cheaper than the two? `instructions`: what it does.
  bool affordable(int a, int b, const Group& g, double* instructions) {
    if (!options_.repeats) return false;
    const std::optional<BuiltKernel> built = try_build(g, nullptr, -1);
    if (!built || built->kernel.exprs.size() > kMaxExprs) return false;
    const MachineSpeed& machine = graph::facts_of(parts_[b].device).speed;
    *instructions = work_of(built->kernel).instructions;
    if (!repeats_little(machine, *instructions, parts_[a].alone + parts_[b].alone)) return false;
    const double apart = price(machine, work_of_unit(a)) + price(machine, work_of_unit(b));
    return price(machine, {bytes_of(g), *instructions}) <= apart;
  }
  KernelWork work_of_unit(int u) const {
    const Part& p = parts_[u];
    const Group g{p.nodes, stored_of(p.nodes, [&](int other) { return other == u; })};
    return {bytes_of(g), p.instructions};
  }
  /// What lies in memory, once.
  double bytes_of(const Group& g) const {
    double bytes = 0;
    auto add = [&](const Value* v) { bytes += elements(v) * dtype_bytes(v->type.dtype); };
    for (const Value* v : sources_of(g)) add(v);
    for (const Value* v : g.stored) add(v);
    return bytes;
  }

  Group united(int a, int b) const {
    Group g;
    // Unit ids follow execution order only at first; the nodes are put in order by their value's number.
    g.nodes = parts_[a].nodes;
    g.nodes.insert(g.nodes.end(), parts_[b].nodes.begin(), parts_[b].nodes.end());
    std::sort(g.nodes.begin(), g.nodes.end(),
              [](const Node* x, const Node* y) { return x->out()->id < y->out()->id; });
    g.stored = stored_of(g.nodes, [&](int u) { return u == a || u == b; });
    return g;
  }

  template <typename Inside>
  std::vector<const Value*> stored_of(const std::vector<const Node*>& nodes, Inside inside) const {
    std::vector<const Value*> stored;
    for (const Node* n : nodes) {
      const Value* v = n->out();
      bool outside = wanted_[v->id] != 0;
      for (const Node* r : readers_[v->id]) outside |= !inside(unit(r));
      if (outside) stored.push_back(v);
    }
    return stored;
  }

  std::vector<const Value*> sources_of(const Group& g) const {
    std::vector<const Value*> read;
    for (const Node* n : g.nodes)
      for (const Value* v : sources(n)) {
        bool inside = v->def && std::find(g.nodes.begin(), g.nodes.end(), v->def) != g.nodes.end();
        if (!inside && std::find(read.begin(), read.end(), v) == read.end()) read.push_back(v);
      }
    return read;
  }
  size_t operand_count(const Group& g) const { return sources_of(g).size() + g.stored.size(); }

  bool one_space(const Group& g, bool reduces) {
    if (g.stored.empty()) return false;
    // A single result of pointwise work takes everything below it in, whatever the views between.
    const bool scatters = std::any_of(g.nodes.begin(), g.nodes.end(),
                                      [](const Node* n) { return kind_of(n) == OpKind::Scatter; });
    if (!reduces && !scatters && g.stored.size() == 1 && g.stored[0] == g.nodes.back()->out()) return true;
    std::optional<Space> space = align(f_.usage, g);
    if (!space) return false;
    if (!reduces) return true;
    return sweeps_well(*space, g) && reductions_in_place(g);
  }

  /// Reading whole rows again after a reduction is cheap only along memory, or when the rows are short. What
  /// waits for none of the sums is stored while these are made, by as many as make them.
  bool sweeps_well(const Space& space, const Group& g) const {
    const bool splits = graph::facts_of(g.nodes[0]->out()->type.device).splits_sums;
    const std::vector<const Value*> late = splits ? behind_reductions(g) : g.stored;
    bool again = std::any_of(g.stored.begin(), g.stored.end(), [&](const Value* v) {
      return (space.mask(*space.find(v)) & space.reduced) &&
             std::find(late.begin(), late.end(), v) != late.end();
    });
    if (!again || space.reductions.empty()) return true;
    const Value* x = space.reductions[0]->operands[0];
    int64_t row = 1;
    for (size_t i = 0; i < space.atoms.size(); ++i)
      if (space.reduced >> i & 1) row *= estimate(space.atoms[i].size);
    return row <= kMaxStridedRow || reduces_innermost(space, x);
  }
  std::vector<const Value*> behind_reductions(const Group& g) const {
    std::vector<const Value*> late;
    for (const Node* n : g.nodes) {  // in the order of their values
      const auto& from = sources(n);
      if (kind_of(n) == OpKind::Reduce || std::any_of(from.begin(), from.end(), [&](const Value* v) {
            return std::find(late.begin(), late.end(), v) != late.end();
          }))
        late.push_back(n->out());
    }
    return late;
  }
  static bool reduces_innermost(const Space& space, const Value* x) {
    const Index& index = *space.find(x);
    int best = -1;
    for (int i = 0; i < x->type.rank(); ++i) {
      if (x->type.sizes[i].is_const(1)) continue;
      if (best < 0 || estimate(x->type.strides[i]) <= estimate(x->type.strides[best])) best = i;
    }
    return best < 0 || (space.mask(index[best]) & space.reduced);
  }

  /// Slices and computed indices can ask for a reduction's result at another place than where it is made:
  /// only building the kernel tells.
  bool reductions_in_place(const Group& g) {
    bool doubtful = false;
    for (const Node* n : g.nodes) {
      doubtful |= kind_of(n) == OpKind::Index;
      for (const Value* o : n->operands) doubtful |= crosses_odd_view(o);
    }
    if (!doubtful) return true;
    return try_build(g, nullptr, -1).has_value();
  }
  bool crosses_odd_view(const Value* v) const {
    for (; v->def && f_.usage.role_of(v->def) == Role::Free && kind_of(v->def) == OpKind::View;
         v = v->def->operands[0])
      if (v->def->op == Op::slice || v->def->op == Op::as_strided || v->def->op == Op::flip ||
          v->def->op == Op::permute)
        return true;
    return false;
  }

  // ---- epilogues ----

  /// Pointwise work behind a contraction is done on its result while that is in registers. The call moves to
  /// where the last of that work stood: nothing else reads it.
  void epilogues() {
    if (!options_.accepts_epilogue) return;
    for (const Node* n : of_node_)
      if (f_.usage.role_of(n) == Role::Library && unit(n) >= 0 && parts_[unit(n)].packed &&
          !returned_[n->out()->id])
        attach(n, chain_behind(n));
  }
  std::vector<const Node*> chain_behind(const Node* call) const {
    std::vector<const Node*> chain;
    for (const Value* v = call->out(); chain.size() < kMaxEpilogue; v = chain.back()->out()) {
      const auto& readers = readers_[v->id];
      if (readers.size() != 1 || wanted_[v->id]) break;
      const Node* n = readers[0];
      bool fits = f_.usage.role_of(n) == Role::Fused && kind_of(n) == OpKind::Pointwise &&
                  n->out()->type.device == call->out()->type.device &&
                  n->out()->type.numel() == call->out()->type.numel();
      if (!fits || is_only_kept(v, n) || parts_[unit(n)].call ||
          parts_[unit(n)].fold != parts_[unit(call)].fold)
        break;
      chain.push_back(n);
    }
    return chain;
  }
  void attach(const Node* call, std::vector<const Node*> chain) {
    for (; !chain.empty(); chain.pop_back()) {
      std::optional<BuiltKernel> built =
          try_build({chain, {chain.back()->out()}}, call->out(), accumulator_column(*call));
      if (built && options_.accepts_epilogue(describe_call(f_, *call), built->kernel))
        return join(call, chain);
    }
  }
  void join(const Node* call, const std::vector<const Node*>& chain) {
    int u = unit(call), to = place_[unit(chain.back())];
    for (int i = place_[u]; i < to; ++i) order_[i] = order_[i + 1], place_[order_[i]] = i;
    order_[to] = u, place_[u] = to;
    for (const Node* n : chain) {
      Part& old = parts_[unit(n)];
      old.alive = false;
      old.nodes.clear();
      unit_of_[n->out()->id] = u;
    }
    parts_[u].nodes = chain;
  }

  /// Builds a group as if everything that any unit computes lay in memory.
  std::optional<BuiltKernel> try_build(const Group& g, const Value* acc, int column) {
    if (trial_strides_.empty()) {
      trial_materialized_ = f_.usage.materialized;
      for (size_t id = 0; id < unit_of_.size(); ++id) trial_materialized_[id] |= unit_of_[id] >= 0;
      trial_strides_ = f_.strides;
      for (const auto& n : g_.nodes)
        for (const auto& v : n->outputs)
          if (trial_strides_[v->id].empty()) trial_strides_[v->id] = memory_of(v.get());
    }
    std::swap(f_.usage.materialized, trial_materialized_);
    std::optional<BuiltKernel> built = build_kernel({f_.usage, trial_strides_, acc, column}, g);
    std::swap(f_.usage.materialized, trial_materialized_);
    return built;
  }
  static Syms memory_of(const Value* v) {
    return is_dense(v->type) ? v->type.strides : graph::contiguous_strides(v->type.sizes);
  }

  // ---- order ----

  template <typename F>
  void each_successor(int u, F&& f) const {
    const Part& p = parts_[u];
    auto visit = [&](const Node* n) {
      for (const auto& v : n->outputs)
        for (const Node* r : readers_[v->id]) f(unit(r));
    };
    if (p.call) visit(p.call);
    for (int next : p.next) f(next);
    for (const Node* n : p.nodes) visit(n);
  }

  /// Is there no way from a to b but the direct one? `after`: what lies between them and depends on a.
  bool acyclic(int a, int b, std::vector<int>* after) {
    if (stamp_.size() < parts_.size()) stamp_.resize(parts_.size(), 0);
    ++now_;
    std::vector<int> stack = {a};
    bool through = false;
    while (!stack.empty() && !through) {
      int u = stack.back();
      stack.pop_back();
      each_successor(u, [&](int s) {
        if (s < 0 || s == a) return;
        if (s == b)
          through |= u != a;
        else if (place_[s] < place_[b] && stamp_[s] != now_)
          stamp_[s] = now_, stack.push_back(s), after->push_back(s);
      });
    }
    return !through;
  }

  void merge(int a, int b, Group g, const std::vector<int>& after) {
    // The stretch [a .. b] becomes: what does not depend on a, the merged unit, what does.
    std::vector<int> before, later;
    for (int i = place_[a] + 1; i < place_[b]; ++i) {
      bool depends = std::find(after.begin(), after.end(), order_[i]) != after.end();
      (depends ? later : before).push_back(order_[i]);
    }
    int at = place_[a];
    auto put = [&](int u) { order_[at] = u, place_[u] = at, ++at; };
    for (int u : before) put(u);
    put(b);
    for (int u : later) put(u);
    order_[at] = a, place_[a] = at;  // a dead slot keeps the places dense
    parts_[b].nodes = std::move(g.nodes);
    parts_[b].reduces |= parts_[a].reduces;
    parts_[a].alive = false;
    parts_[a].nodes.clear();
    for (const Node* n : parts_[b].nodes) unit_of_[n->out()->id] = b;
  }

  // ---- the result ----

  Fusion collect() {
    for (int u : order_) {
      Part& p = parts_[u];
      if (!p.alive) continue;
      Unit unit;
      unit.call = p.call;
      unit.fold = p.fold;
      unit.packed = p.packed;
      if (!p.nodes.empty()) {
        unit.group.nodes = p.nodes;
        unit.group.stored = stored_of(p.nodes, [&](int x) { return x == u; });
        if (unit.group.stored.empty()) continue;  // nobody reads it
        for (const Value* v : unit.group.stored) store(v);
      }
      f_.units.push_back(std::move(unit));
    }
    return std::move(f_);
  }
  void store(const Value* v) {
    f_.usage.materialized[v->id] = 1;
    if (!f_.strides[v->id].empty()) return;
    f_.strides[v->id] = memory_of(v);
  }

  const Graph& g_;
  const PlanOptions& options_;
  Fusion f_;
  std::vector<char> wanted_;
  std::vector<char> returned_;  ///< by value id: whose memory is a result's, or is copied into one
  std::vector<Part> parts_;
  bool keeps_ = false;  ///< values are handed on to a later part
  int last_effect_ = -1;
  std::unordered_map<Sym, int> finders_;           ///< of sizes that are data: the unit that finds one out
  std::vector<const Node*> of_node_;               // of each unit as it began, in execution order
  std::vector<int> unit_of_;                       // by value id; -1: free or an input
  std::vector<int> order_, place_;                 // units in a topological order, and where each stands
  std::vector<std::vector<const Node*>> readers_;  // by value id
  std::vector<std::vector<const Value*>> sources_;
  std::vector<char> trial_materialized_;  // as try_build has them
  std::vector<Syms> trial_strides_;
  std::vector<int> stamp_;
  int now_ = 0;
  int fuel_;
};

}  // namespace

bool is_contraction(const Node& call) {
  return call.op == Op::linear || call.op == Op::matmul || call.op == Op::conv || call.op == Op::sdpa;
}

int accumulator_column(const Node& call) { return call.op == Op::conv ? 1 : call.out()->type.rank() - 1; }

PlannedContraction describe_call(const Fusion& f, const Node& node) {
  PlannedContraction call{node, {}, {}};
  for (const Value* v : node.operands) {
    graph::Type type = v->type;
    if (!f.strides[v->id].empty())
      type.strides = f.strides[v->id];
    else if (const auto shown = shown_over(v, f.strides))
      type.strides = shown->view.strides;
    call.operands.push_back(std::move(type));
    call.constant.push_back(f.constant[v->id]);
  }
  return call;
}

Fusion fuse(const Graph& graph, const PlanOptions& options) { return Fuser(graph, options).run(); }

}  // namespace bolt::loops

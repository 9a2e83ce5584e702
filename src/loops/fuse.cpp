// loops/fuse.cpp
#include "loops/fuse.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "loops/build.h"
#include "loops/compute_where_read.h"
#include "loops/cost.h"
#include "loops/directions.h"
#include "loops/order_units.h"
#include "loops/units.h"

namespace bolt::loops {
namespace {

using graph::Graph;
using graph::Node;
using graph::Op;
using graph::OpKind;
using graph::Value;

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

class Fuser : private Units {
 public:
  Fuser(const Graph& graph, const PlanOptions& options) : Units(graph, options), fuel_(options.fuel) {}

  Fusion run() {
    if (options.fuse) {
      epilogues();
      join_consumers();
      again_just_in_time(*this);
      if (siblings()) join_consumers();
      if (sink()) siblings();
      if (compute_where_read(*this, fuel_)) {
        trial_strides_.clear();
        join_consumers();
      }
      counters_last(*this);
      neighbours();
      again_just_in_time(*this);
    }
    return collect();
  }

 private:
  // ---- merging ----

  /// A value with several readers can join only once these are one unit: again while that helps.
  void join_consumers() {
    for (int round = 0; round < kMaxRounds && into_consumers(); ++round) {
    }
  }

  bool into_consumers() {
    bool any = false;
    for (const Node* n : nodes) {
      if (fusion.usage.role_of(n) != Role::Fused) continue;
      std::vector<const Value*> from;
      for (const Value* v : sources(n))
        if (v->def && fusion.usage.role_of(v->def) == Role::Fused) from.push_back(v);
      std::stable_sort(from.begin(), from.end(), [](const Value* a, const Value* b) {
        return estimate(a->type.numel()) > estimate(b->type.numel());
      });
      for (const Value* v : from)
        if (unit(v->def) != unit(n) && !is_only_kept(v, n) && pays(v, n))
          any |= try_merge(unit(v->def), unit(n));
    }
    return any;
  }

  /// Reading `v` in registers is a gain unless work is repeated for it: for each row of a larger result.
  bool pays(const Value* v, const Node* n) const {
    const Part& p = parts[unit(v->def)];
    if (p.reduces) return true;
    const double here = elements(v), there = elements(larger(n));
    if (there < 2 * here || here == 1 || broadcast_inside(v, n)) return true;
    if (!options.repeats) return false;
    const MachineSpeed& machine = graph::facts_of(p.device).speed;
    const double repeated = p.instructions / elements(p.nodes.back()->out()) * (there - here);
    const KernelWork store_and_load{2 * bytes_of(v), 0}, reader = work_of_unit(unit(n));
    const double apart = price(machine, reader) + price(machine, store_and_load);
    return price(machine, {reader.bytes, reader.instructions + repeated}) <= apart;
  }
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

  /// Neighbours in the order over one shape are merged too, if they are small: one start instead of two.
  void neighbours() {
    for (size_t i = 0; i + 1 < order.size(); ++i) {
      int a = order[i];
      if (!parts[a].alive || parts[a].call) continue;
      size_t j = i + 1;
      while (j < order.size() && !parts[order[j]].alive) ++j;
      if (j == order.size() || parts[order[j]].call) continue;
      int b = order[j];
      if (parts[a].nodes.size() + parts[b].nodes.size() <= kMaxNeighbours && same_extent(a, b))
        try_merge(a, b);
    }
  }

  /// Kernels that read the same.
  bool siblings() {
    bool any = false;
    for (const auto& readers : readers_of) {
      std::vector<int> units;
      for (const Node* n : readers)
        if (const int u = unit(n); u >= 0 && !parts[u].call) add_once(units, u);
      for (size_t i = 0; i + 1 < units.size(); ++i)
        for (size_t j = i + 1; j < units.size() && j <= i + kMaxSiblings; ++j) {
          const int a = units[i], b = units[j];
          if (!same_extent(a, b) || std::abs(place[a] - place[b]) >= 24 || !try_merge(a, b)) continue;
          any = true;  // the later of the two is both now
          const int both = parts[a].alive ? a : b;
          units[i] = both;
          units.erase(units.begin() + static_cast<std::ptrdiff_t>(j--));
        }
    }
    return any;
  }

  /// What a reduction's kernel computes for one later kernel alone is computed there, where that moves fewer
  /// bytes: a normalisation's column sums read the rounded image again and a number a row, and not float32
  /// images made of them.
  bool sink() {
    bool any = false;
    for (size_t i = 0; i < order.size(); ++i) {
      const int a = order[i];
      if (!parts[a].alive || !parts[a].reduces || parts[a].fold) continue;
      std::vector<int> readers;
      for (const Node* n : parts[a].nodes)
        for (const Node* r : readers_of[n->out()->id])
          if (const int b = unit(r); b >= 0 && b != a) add_once(readers, b);
      for (int b : readers)
        if (!parts[b].call && parts[b].reduces && parts[b].device == parts[a].device &&
            parts[b].piece == parts[a].piece && !parts[b].fold)
          any |= sink_into(a, b);
    }
    return any;
  }

  /// Pointwise nodes of `a` over its whole space that only `b` waits for, and what only these read; later
  /// ones first.
  std::vector<const Node*> only_for(int a, int b) const {
    const double most = static_cast<double>(estimate(extent(parts[a])));
    std::vector<const Node*> found;
    for (size_t i = parts[a].nodes.size(); i-- > 0;) {
      const Node* n = parts[a].nodes[i];
      const Value* v = n->out();
      const auto& readers = readers_of[v->id];
      if (kind_of(n) != OpKind::Pointwise || wanted[v->id] || returned[v->id]) continue;
      const bool is_whole = elements(v) >= most;
      const bool is_only = std::all_of(readers.begin(), readers.end(), [&](const Node* r) {
        return std::find(found.begin(), found.end(), r) != found.end() ||
               (is_whole && unit(r) == b && !is_only_kept(v, r));
      });
      if (is_only && !readers.empty()) found.push_back(n);
    }
    return found;
  }

  bool sink_into(int a, int b) {
    const std::vector<const Node*> moved = only_for(a, b);
    if (moved.empty() || moved.size() == parts[a].nodes.size() || fuel_ == 0) return false;
    if (parts[b].nodes.size() + moved.size() > kMaxNodes) return false;
    const Group from = group(a), into = group(b);
    const std::vector<const Node*> nodes_a = parts[a].nodes, nodes_b = parts[b].nodes;
    for (const Node* n : moved) {
      std::erase(parts[a].nodes, n);
      parts[b].nodes.push_back(n);
      unit_of[n->out()->id] = b;
    }
    std::sort(parts[b].nodes.begin(), parts[b].nodes.end(),
              [](const Node* x, const Node* y) { return x->out()->id < y->out()->id; });
    const Group left = group(a), more = group(b);
    const double saved = bytes_of(from) + bytes_of(into) - bytes_of(left) - bytes_of(more);
    if (saved > kWaits && !left.stored.empty() && operand_count(more) <= kMaxOperands &&
        left.stored.size() <= kMaxStored && !waits_for(a, b, from, left, into, more) && !moves_within(more) &&
        one_space(left, true) && one_space(more, true)) {
      for (const Node* n : moved) {
        const double work = instructions_of(*n);
        parts[a].instructions -= work, parts[a].alone -= work;
        parts[b].instructions += work, parts[b].alone += work;
      }
      if (fuel_ > 0) --fuel_;
      return true;
    }
    parts[a].nodes = nodes_a;
    parts[b].nodes = nodes_b;
    for (const Node* n : moved) unit_of[n->out()->id] = a;
    return false;
  }

  /// Does more lie in memory between the two, where calls take memory of their own?
  bool waits_for(int a, int b, const Group& from, const Group& left, const Group& into,
                 const Group& more) const {
    double bytes = 0;
    for (const Value* v : left.stored) bytes += bytes_of(v);
    for (const Value* v : from.stored) bytes -= bytes_of(v);
    const std::vector<const Value*> known = sources_of(into);
    for (const Value* v : sources_of(more)) {
      if (!v->def || returned[v->id] || unit_of[v->id] == a) continue;
      if (std::find(known.begin(), known.end(), v) != known.end()) continue;
      const bool last_read_before =
          std::none_of(readers_of[v->id].begin(), readers_of[v->id].end(),
                       [&](const Node* r) { return unit(r) != b && place[unit(r)] >= place[b]; });
      if (last_read_before) bytes += bytes_of(v);
    }
    return bytes > 0;
  }

  bool same_extent(int a, int b) const { return extent(parts[a]) == extent(parts[b]); }
  static Sym extent(const Part& p) {
    Sym most = 0;
    for (const Node* n : p.nodes) {
      Sym here = larger(n)->type.numel();
      if (estimate(here) > estimate(most)) most = here;
    }
    return most;
  }

  bool try_merge(int a, int b) {
    if (place[a] > place[b]) std::swap(a, b);
    if (fuel_ == 0 || parts[a].call || parts[b].call || parts[a].fold != parts[b].fold) return false;
    if (parts[a].device != parts[b].device || parts[a].piece != parts[b].piece) return false;
    if (parts[a].nodes.size() + parts[b].nodes.size() > kMaxNodes) return false;
    Group g = united(a, b);
    if (!goes_together(g)) return false;
    if (g.stored.size() > kMaxStored || operand_count(g) > kMaxOperands) return false;
    std::vector<int> after;
    if (!acyclic(a, b, &after) || !one_space(g, parts[a].reduces || parts[b].reduces)) return false;
    if (crosses_rows(*this, a, b, g)) return false;
    if (leaves_more(a, g, after) || (keeps && waits_longer(a, b, after))) return false;
    double instructions = parts[a].instructions + parts[b].instructions;
    if (moves_within(g) && !affordable(a, b, g, &instructions)) return false;
    parts[b].instructions = instructions;
    parts[b].alone += parts[a].alone;
    merge(a, b, std::move(g), after);
    if (fuel_ > 0) --fuel_;
    return true;
  }

  /// What the earlier one reads waits in memory for the later one then, instead of what it makes. In a
  /// training step the later one may be the update, and the gradient of a bias is far less than the image it
  /// is the sum of.
  bool waits_longer(int a, int b, const std::vector<int>& after) const {
    auto only_before = [&](const Value* v) {
      return std::all_of(readers_of[v->id].begin(), readers_of[v->id].end(),
                         [&](const Node* r) { return unit(r) != b && place[unit(r)] < place[b]; });
    };
    double more = 0;
    for (const Value* v : sources_of({parts[a].nodes, {}}))
      if (v->def && !returned[v->id] && only_before(v)) more += bytes_of(v);
    for (const Value* v : group(a).stored) more -= bytes_of(v);
    if (more < kWaits) return false;
    return std::any_of(order.begin() + place[a] + 1, order.begin() + place[b], [&](int u) {
      return parts[u].alive && parts[u].call && std::find(after.begin(), after.end(), u) == after.end();
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
      const auto& readers = readers_of[n->out()->id];
      if (member(n->operands[0]->def) || std::any_of(readers.begin(), readers.end(), member)) return false;
    }
    return reduces + scans + scatters <= 1;
  }

  /// Behind the merged group come calls that came before the later one so far. What that one made did not
  /// wait for them in memory: only what it is made of did, and that may be far less (of a normalisation in
  /// float32 the image in bfloat16).
  bool leaves_more(int a, const Group& g, const std::vector<int>& after) const {
    if (options.bytes_apart == 0 ||
        std::none_of(after.begin(), after.end(), [&](int u) { return parts[u].call != nullptr; }))
      return false;
    double more = 0;
    for (const Value* v : g.stored) more += bytes_of(v);
    for (const Value* v : group(a).stored) more -= bytes_of(v);
    return options.are_apart(static_cast<int64_t>(more), parts[a].device);
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
    if (!options.repeats) return false;
    const std::optional<BuiltKernel> built = try_build(g, nullptr, -1);
    if (!built || built->kernel.exprs.size() > kMaxExprs) return false;
    const MachineSpeed& machine = graph::facts_of(parts[b].device).speed;
    *instructions = work_of(built->kernel).instructions;
    if (!repeats_little(machine, *instructions, parts[a].alone + parts[b].alone)) return false;
    const double apart = price(machine, work_of_unit(a)) + price(machine, work_of_unit(b));
    return price(machine, {bytes_of(g), *instructions}) <= apart;
  }
  KernelWork work_of_unit(int u) const { return {bytes_of(group(u)), parts[u].instructions}; }

  Group united(int a, int b) const {
    Group g;
    // Unit ids follow execution order only at first; the nodes are put in order by their value's number.
    g.nodes = parts[a].nodes;
    g.nodes.insert(g.nodes.end(), parts[b].nodes.begin(), parts[b].nodes.end());
    std::sort(g.nodes.begin(), g.nodes.end(),
              [](const Node* x, const Node* y) { return x->out()->id < y->out()->id; });
    g.stored = stored_of(g.nodes, [&](int u) { return u == a || u == b; });
    return g;
  }

  bool one_space(const Group& g, bool reduces) {
    if (g.stored.empty()) return false;
    // A single result of pointwise work takes everything below it in, whatever the views between.
    const bool scatters = std::any_of(g.nodes.begin(), g.nodes.end(),
                                      [](const Node* n) { return kind_of(n) == OpKind::Scatter; });
    if (!reduces && !scatters && g.stored.size() == 1 && g.stored[0] == g.nodes.back()->out()) return true;
    std::optional<Space> space = align(fusion.usage, g);
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
    for (; v->def && fusion.usage.role_of(v->def) == Role::Free && kind_of(v->def) == OpKind::View;
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
    if (!options.accepts_epilogue) return;
    for (const Node* n : nodes)
      if (fusion.usage.role_of(n) == Role::Library && unit(n) >= 0 && parts[unit(n)].packed &&
          !returned[n->out()->id])
        attach(n, chain_behind(n));
  }
  std::vector<const Node*> chain_behind(const Node* call) const {
    std::vector<const Node*> chain;
    for (const Value* v = call->out(); chain.size() < kMaxEpilogue; v = chain.back()->out()) {
      const auto& readers = readers_of[v->id];
      if (readers.size() != 1 || wanted[v->id]) break;
      const Node* n = readers[0];
      bool fits = fusion.usage.role_of(n) == Role::Fused && kind_of(n) == OpKind::Pointwise &&
                  n->out()->type.device == call->out()->type.device &&
                  n->out()->type.numel() == call->out()->type.numel();
      if (!fits || is_only_kept(v, n) || parts[unit(n)].call || parts[unit(n)].fold != parts[unit(call)].fold)
        break;
      chain.push_back(n);
    }
    return chain;
  }
  void attach(const Node* call, std::vector<const Node*> chain) {
    for (; !chain.empty(); chain.pop_back()) {
      std::optional<BuiltKernel> built =
          try_build({chain, {chain.back()->out()}}, call->out(), accumulator_column(*call));
      if (built && options.accepts_epilogue(describe_call(fusion, *call), built->kernel))
        return join(call, chain);
    }
  }
  void join(const Node* call, const std::vector<const Node*>& chain) {
    int u = unit(call), to = place[unit(chain.back())];
    for (int i = place[u]; i < to; ++i) order[i] = order[i + 1], place[order[i]] = i;
    order[to] = u, place[u] = to;
    for (const Node* n : chain) {
      Part& old = parts[unit(n)];
      old.alive = false;
      old.nodes.clear();
      unit_of[n->out()->id] = u;
    }
    parts[u].nodes = chain;
  }

  /// Builds a group as if everything that any unit computes lay in memory.
  std::optional<BuiltKernel> try_build(const Group& g, const Value* acc, int column) {
    if (trial_strides_.empty()) {
      trial_materialized_ = fusion.usage.materialized;
      for (size_t id = 0; id < unit_of.size(); ++id) trial_materialized_[id] |= unit_of[id] >= 0;
      trial_strides_ = fusion.strides;
      for (const auto& n : source.nodes)
        for (const auto& v : n->outputs)
          if (trial_strides_[v->id].empty()) trial_strides_[v->id] = memory_of(v.get());
    }
    std::swap(fusion.usage.materialized, trial_materialized_);
    std::optional<BuiltKernel> built =
        build_kernel({fusion.usage, trial_strides_, options.rounds_as_eager, acc, column}, g);
    std::swap(fusion.usage.materialized, trial_materialized_);
    return built;
  }
  static Syms memory_of(const Value* v) {
    return is_dense(v->type) ? v->type.strides : graph::contiguous_strides(v->type.sizes);
  }

  // ---- order ----

  /// Is there no way from a to b but the direct one? `after`: what lies between them and depends on a.
  bool acyclic(int a, int b, std::vector<int>* after) {
    if (stamp_.size() < parts.size()) stamp_.resize(parts.size(), 0);
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
        else if (place[s] < place[b] && stamp_[s] != now_)
          stamp_[s] = now_, stack.push_back(s), after->push_back(s);
      });
    }
    return !through;
  }

  void merge(int a, int b, Group g, const std::vector<int>& after) {
    // The stretch [a .. b] becomes: what does not depend on a, the merged unit, what does.
    std::vector<int> before, later;
    for (int i = place[a] + 1; i < place[b]; ++i) {
      bool depends = std::find(after.begin(), after.end(), order[i]) != after.end();
      (depends ? later : before).push_back(order[i]);
    }
    int at = place[a];
    auto put = [&](int u) { order[at] = u, place[u] = at, ++at; };
    for (int u : before) put(u);
    put(b);
    for (int u : later) put(u);
    order[at] = a, place[a] = at;  // a dead slot keeps the places dense
    parts[b].nodes = std::move(g.nodes);
    parts[b].reduces |= parts[a].reduces;
    parts[a].alive = false;
    parts[a].nodes.clear();
    for (const Node* n : parts[b].nodes) unit_of[n->out()->id] = b;
  }

  // ---- the result ----

  Fusion collect() {
    for (int u : order) {
      Part& p = parts[u];
      if (!p.alive) continue;
      Unit unit;
      unit.call = p.call;
      unit.fold = p.fold;
      unit.packed = p.packed;
      if (!p.nodes.empty()) {
        unit.group = group(u);
        if (unit.group.stored.empty()) continue;  // nobody reads it
        for (const Value* v : unit.group.stored) store(v);
      }
      fusion.units.push_back(std::move(unit));
    }
    return std::move(fusion);
  }
  void store(const Value* v) {
    fusion.usage.materialized[v->id] = 1;
    if (!fusion.strides[v->id].empty()) return;
    fusion.strides[v->id] = memory_of(v);
  }

  std::vector<char> trial_materialized_;  // as try_build has them
  std::vector<Syms> trial_strides_;
  std::vector<int> stamp_;
  int now_ = 0;
  int fuel_;
};

}  // namespace

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

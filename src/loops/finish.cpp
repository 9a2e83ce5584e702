// loops/finish.cpp
#include "loops/finish.h"

#include <algorithm>

#include "loops/analysis.h"
#include "support/error.h"

namespace bolt::loops {
namespace {

using graph::Node;
using graph::Op;
using graph::OpKind;

class Finisher {
 public:
  Finisher(Space space, DraftKernel draft, const BuildInput& in, const Group& group)
      : space_(std::move(space)), draft_(std::move(draft)), in_(in), group_(group) {}

  std::optional<BuiltKernel> run() {
    drop_unused();
    if (may_not_run()) return std::nullopt;
    collect_indices();
    merge_atoms();
    order_atoms();
    return BuiltKernel{emit(), std::move(draft_.values)};
  }

 private:
  // ---- what is used ----

  void use(ExprId id) {
    if (used_[id]) return;
    used_[id] = true;
    each_operand(draft_.exprs[id], [this](ExprId a) { use(a); });
  }
  void drop_unused() {
    used_.assign(draft_.exprs.size(), false);
    for (const Store& s : draft_.stores) each_operand(s, [this](ExprId a) { use(a); });
  }

  void collect_indices() {
    for (size_t i = 0; i < draft_.exprs.size(); ++i) {
      const Expr& e = draft_.exprs[i];
      if (used_[i] && (e.kind == ExprKind::Load || e.kind == ExprKind::Index)) add_index(e.index);
    }
    first_store_ = factors_.size();
    for (const Store& s : draft_.stores) add_index(s.index);
    if (in_.acc)  // its rows and columns are the accumulator's own access
      for (Sym s : *space_.find(in_.acc)) add_index(s);
  }
  void add_index(Sym index) {
    std::vector<std::optional<Sym>> row;
    for (const Atom& a : space_.atoms) row.push_back(coefficient(index, a.symbol));
    factors_.push_back(std::move(row));
  }

  // ---- merging ----

  bool mergeable(size_t outer, size_t inner) {
    const Atom &a = space_.atoms[outer], &b = space_.atoms[inner];
    if (a.locked || b.locked || (space_.reduced >> outer & 1) != (space_.reduced >> inner & 1)) return false;
    if (in_.acc && is_column(a.symbol) != is_column(b.symbol)) return false;
    for (size_t i = 0; i < factors_.size(); ++i) {
      const auto &fa = factors_[i][outer], &fb = factors_[i][inner];
      // The dimensions of acc count as rows in their order, not as addresses.
      if (in_.acc && i >= first_store_ + draft_.stores.size()) continue;
      if (!fa || !fb || *fa != *fb * b.size) return false;
    }
    return !in_.acc || acc_order(a.symbol) + 1 == acc_order(b.symbol);
  }

  bool any_uses(size_t atom, uint32_t Expr::* dims) const {
    for (size_t i = 0; i < draft_.exprs.size(); ++i)
      if (used_[i] && draft_.exprs[i].*dims >> atom & 1) return true;
    return false;
  }
  size_t stores_over(size_t atom) const {
    return static_cast<size_t>(std::count_if(draft_.stores.begin(), draft_.stores.end(), [&](const Store& s) {
      return space_.mask(s.index) >> atom & 1;
    }));
  }

  /// Reduced, but nothing is: a constant was. Its size would be how often results are stored, none for 0.
  bool is_pointless(size_t atom) const {
    return space_.reduced >> atom & 1 && !any_uses(atom, &Expr::dims) &&
           !any_uses(atom, &Expr::reduce_dims) && !stores_over(atom);
  }

  /// Would a reduced constant be stored within the loop over a dimension that may have no elements, since
  /// another store needs that loop?
  bool may_not_run() const {
    for (size_t a = 0; a < space_.atoms.size(); ++a) {
      if (!(space_.reduced >> a & 1) || lower_bound(space_.atoms[a].size) > 0) continue;
      const size_t over = stores_over(a);
      if (over && over < draft_.stores.size() && !any_uses(a, &Expr::reduce_dims)) return true;
    }
    return false;
  }

  void merge_atoms() {
    merged_.assign(space_.atoms.size(), false);
    for (size_t a = 0; a < space_.atoms.size(); ++a) merged_[a] = !in_.acc && is_pointless(a);
    for (bool again = true; again;) {
      again = false;
      for (size_t a = 0; a < space_.atoms.size() && !again; ++a)
        for (size_t b = 0; b < space_.atoms.size() && !again; ++b)
          if (a != b && !merged_[a] && !merged_[b] && mergeable(a, b)) {
            merged_[a] = again = true;
            space_.atoms[b].size = space_.atoms[a].size * space_.atoms[b].size;
            if (in_.acc) drop_from_acc_order(space_.atoms[a].symbol);
          }
    }
  }

  // ---- accumulators: dimension order is the library's ----

  bool is_column(Sym atom) const {
    return space_.mask((*space_.find(in_.acc))[in_.acc_column]) & space_.mask(atom);
  }
  /// Atoms of acc outermost first, the column last.
  Syms& acc_atoms() {
    if (!acc_atoms_.empty()) return acc_atoms_;
    const Index& index = *space_.find(in_.acc);
    auto take = [&](Sym s) {
      // Atoms within one dimension stand outermost first in a sum of falling factors.
      std::vector<SymTerm> terms = sum_terms(s, nullptr);
      std::stable_sort(terms.begin(), terms.end(),
                       [](const SymTerm& x, const SymTerm& y) { return x.coef > y.coef; });
      for (const SymTerm& t : terms) acc_atoms_.push_back(t.term);
    };
    for (int i = 0; i < static_cast<int>(index.size()); ++i)
      if (i != in_.acc_column) take(index[i]);
    take(index[in_.acc_column]);
    return acc_atoms_;
  }
  int acc_order(Sym atom) {
    const Syms& order = acc_atoms();
    return static_cast<int>(std::find(order.begin(), order.end(), atom) - order.begin());
  }
  void drop_from_acc_order(Sym atom) {
    erase_if(acc_atoms(), [&](Sym s) { return s == atom; });
  }

  // ---- order ----

  void order_atoms() {
    size_t n = space_.atoms.size();
    for (size_t i = 0; i < n; ++i)
      if (!merged_[i]) order_.push_back(static_cast<int>(i));
    if (in_.acc) {
      std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) {
        return acc_order(space_.atoms[a].symbol) < acc_order(space_.atoms[b].symbol);
      });
      return;
    }
    if (std::any_of(draft_.stores.begin(), draft_.stores.end(), [](const Store& s) { return s.scatters(); }))
      return order_by_distance();
    const auto& main = factors_[first_store_ + main_store()];
    std::vector<int64_t> key(n, 0);
    std::vector<bool> stored(n, false);
    for (int i : order_) {
      stored[i] = !main[i] || !main[i]->is_const(0);
      key[i] = stored[i] ? distance(main[i]) : load_distance(i);
    }
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) {
      if (stored[a] != stored[b]) return static_cast<bool>(stored[a]);
      return key[a] > key[b];
    });
  }
  /// Where scatters go to says nothing of some atoms: the order is that of what is read, whose places are
  /// told.
  void order_by_distance() {
    std::vector<int64_t> key(space_.atoms.size(), 0);
    for (int i : order_)
      for (const auto& row : factors_) key[i] = std::max(key[i], distance(row[i]));
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return key[a] > key[b]; });
  }
  static int64_t distance(const std::optional<Sym>& factor) {
    return factor ? std::abs(estimate(*factor)) : INT64_MAX;
  }
  int64_t load_distance(int atom) const {
    for (size_t i = 0; i < first_store_; ++i) {
      int64_t d = distance(factors_[i][atom]);
      if (d > 0) return d;
    }
    return 0;
  }
  size_t main_store() const {
    size_t best = 0;
    int64_t most = -1;
    for (size_t i = 0; i < draft_.stores.size(); ++i) {
      int64_t points = 1;
      for (size_t a = 0; a < space_.atoms.size(); ++a)
        if (!merged_[a] && (!factors_[first_store_ + i][a] || !factors_[first_store_ + i][a]->is_const(0)))
          points *= std::max<int64_t>(estimate(space_.atoms[a].size), 1);
      if (points > most) best = i, most = points;
    }
    return best;
  }

  // ---- the kernel ----

  Sym rename(Sym s) const {
    return substitute(s, [&](Sym x) {
      for (size_t i = 0; i < space_.atoms.size(); ++i) {
        if (space_.atoms[i].symbol != x) continue;
        return merged_[i] ? Sym(0) : Kernel::dim(place_[i]);
      }
      return x;
    });
  }
  uint32_t rename(uint32_t mask) const {
    uint32_t out = 0;
    for (size_t i = 0; i < space_.atoms.size(); ++i)
      if ((mask >> i & 1) && !merged_[i]) out |= 1u << place_[i];
    return out;
  }

  Kernel emit() {
    place_.assign(space_.atoms.size(), 0);
    uint32_t reduced = 0;
    for (size_t i = 0; i < draft_.exprs.size(); ++i)
      if (used_[i]) reduced |= draft_.exprs[i].reduce_dims;
    for (size_t i = 0; i < order_.size(); ++i) {
      place_[order_[i]] = static_cast<int>(i);
      kernel_.dims.push_back({space_.atoms[order_[i]].size, (reduced >> order_[i] & 1) != 0});
    }
    // A contraction has columns, if only one: its tiles' last dimension.
    if (in_.acc &&
        std::none_of(order_.begin(), order_.end(), [&](int a) { return is_column(space_.atoms[a].symbol); }))
      kernel_.dims.push_back({1, false});
    emit_exprs();
    for (Store s : draft_.stores) {
      s.index = rename(s.index);
      each_operand(s, [this](ExprId& a) { a = id_[a]; });
      kernel_.stores.push_back(std::move(s));
    }
    emit_buffers();
    kernel_.symbols = symbols();
    kernel_.name = name();
    kernel_.sources = sources();
    return std::move(kernel_);
  }

  void emit_exprs() {
    id_.assign(draft_.exprs.size(), kNone);
    for (size_t i = 0; i < draft_.exprs.size(); ++i) {
      if (!used_[i]) continue;
      Expr e = std::move(draft_.exprs[i]);
      if (e.kind == ExprKind::Load || e.kind == ExprKind::Index) e.index = rename(e.index);
      each_operand(e, [this](ExprId& a) { a = id_[a]; });
      e.reduce_dims = rename(e.reduce_dims);
      e.dims = rename(e.dims);
      id_[i] = static_cast<ExprId>(kernel_.exprs.size());
      kernel_.exprs.push_back(std::move(e));
    }
  }

  /// Buffers that only unused loads named are gone; what is read comes before what is written.
  void emit_buffers() {
    std::vector<int> to(draft_.buffers.size(), -1);
    std::vector<const graph::Value*> values;
    auto keep = [&](int b) {
      if (to[b] >= 0) return;
      to[b] = static_cast<int>(kernel_.buffers.size());
      kernel_.buffers.push_back(draft_.buffers[b]);
      values.push_back(draft_.values[b]);
    };
    for (Expr& e : kernel_.exprs)
      if (e.kind == ExprKind::Load) keep(e.buffer), e.buffer = to[e.buffer];
    for (Store& s : kernel_.stores) keep(s.buffer), s.buffer = to[s.buffer];
    draft_.values = std::move(values);
  }

  Syms symbols() const {
    Syms found;
    for (const Dim& d : kernel_.dims) collect_symbols(d.size, &found);
    for (const Expr& e : kernel_.exprs) {
      if (e.kind == ExprKind::Load || e.kind == ExprKind::Index) collect_symbols(e.index, &found);
      for (const GatherTerm& g : e.gather) collect_symbols(g.coef, &found);
    }
    for (const Store& s : kernel_.stores) collect_symbols(s.index, &found);
    erase_if(found, [&](Sym s) { return kernel_.varies(s) != 0; });
    std::sort(found.begin(), found.end(), [](Sym a, Sym b) { return a.str() < b.str(); });
    return found;
  }

  /// The two or three operations that say what the kernel is about.
  std::string name() const {
    bool root = false, power = false, mean = false, top = false;
    std::vector<std::string_view> words;
    for (const Node* n : group_.nodes) {
      root |= n->op == Op::rsqrt || n->op == Op::sqrt;
      power |= n->op == Op::exp;
      mean |= n->op == Op::sum;
      top |= n->op == Op::amax;
    }
    if (top && power && mean) return "softmax";
    for (const Node* n : group_.nodes) {
      std::string_view w = graph::op_info(n->op).name;
      bool dull = n->op == Op::cast || n->op == Op::reshape || n->op == Op::permute || n->op == Op::expand;
      if ((dull && group_.nodes.size() > 1) || std::find(words.begin(), words.end(), w) != words.end())
        continue;
      words.push_back(w);
    }
    std::string out;
    if (root && mean) {
      if (group_.nodes[0]->op == Op::add) out = "add_";
      return out + "norm";
    }
    for (size_t i = 0; i < words.size() && i < 3; ++i) out += (i ? "_" : "") + std::string(words[i]);
    return out.empty() ? "copy" : out;
  }

  std::vector<std::string> sources() const {
    std::vector<std::string> out;
    constexpr size_t kMost = 8;
    for (const Node* n : group_.nodes) {
      if (n->loc.file.empty() || out.size() == kMost) continue;
      std::string s = std::string(n->loc.file) + ":" + std::to_string(n->loc.line);
      if (std::find(out.begin(), out.end(), s) == out.end()) out.push_back(std::move(s));
    }
    return out;
  }

  Space space_;
  DraftKernel draft_;
  const BuildInput& in_;
  const Group& group_;
  Kernel kernel_;
  std::vector<bool> used_, merged_;
  std::vector<std::vector<std::optional<Sym>>> factors_;  // per index, per atom
  size_t first_store_ = 0;
  Syms acc_atoms_;
  std::vector<int> order_, place_;  // atoms outermost first; dimension of each atom
  std::vector<ExprId> id_;
};

}  // namespace

std::optional<BuiltKernel> finish(Space space, DraftKernel draft, const BuildInput& in, const Group& group) {
  return Finisher(std::move(space), std::move(draft), in, group).run();
}

}  // namespace bolt::loops

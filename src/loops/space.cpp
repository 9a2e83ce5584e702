// loops/space.cpp
#include "loops/space.h"

#include <algorithm>

#include "support/error.h"
#include "support/symbols.h"

namespace bolt::loops {
namespace {

using graph::Node;
using graph::Op;
using graph::OpKind;
using graph::Value;

constexpr size_t kMaxAtoms = 24;

int count_divisions(Sym s) {
  if (s.is_const()) return 0;
  const SymNode& n = *s.node();
  int count = n.op == SymOp::FloorDiv || n.op == SymOp::Mod;
  for (Sym a : n.args) count += count_divisions(a);
  return count;
}

bool has_division(const Index& index) {
  return std::any_of(index.begin(), index.end(), [](Sym s) { return count_divisions(s) > 0; });
}

Sym atom_symbol(size_t number, Sym size) {
  return symbol_of({SymbolKind::atom, static_cast<int32_t>(number), -1}, size.value_or(0));
}

/// Divisions inside s, innermost last.
void collect_divisions(Sym s, std::vector<const SymNode*>* out) {
  if (s.is_const()) return;
  const SymNode* n = s.node();
  if (n->op == SymOp::FloorDiv || n->op == SymOp::Mod) out->push_back(n);
  for (Sym a : n->args) collect_divisions(a, out);
}

Syms without_ones(const Syms& sizes) {
  Syms out;
  for (Sym s : sizes)
    if (!s.is_const(1)) out.push_back(s);
  return out;
}

class Aligner {
 public:
  Aligner(const Usage& usage, const Group& group) : usage_(usage), group_(group) {
    for (const Node* n : group.nodes) {
      member_[n->out()->id] = true;
      const OpKind kind = graph::op_info(n->op).kind;
      if (kind == OpKind::Reduce) space_.reductions.push_back(n);
      if (kind == OpKind::Scan) space_.scans.push_back(n);
      if (kind == OpKind::Scatter) space_.scatters.push_back(n);
    }
  }

  std::optional<Space> run() {
    root_ = choose_root();
    for (Sym size : root_->type.sizes) {
      if (size.is_const(1)) {
        root_index_.push_back(0);
        continue;
      }
      Sym symbol = atom_symbol(space_.atoms.size(), size);
      space_.atoms.push_back({symbol, size});
      root_index_.push_back(symbol);
    }
    if (space_.atoms.size() > kMaxAtoms) return std::nullopt;
    lock_arg_dims();
    set(root_, root_index_);
    drain();
    if (!reach_the_rest() || !check_reductions() || !check_scans() || !check_stored()) return std::nullopt;
    return std::move(space_);
  }

 private:
  const Value* choose_root() const {
    const Value* best = nullptr;
    int64_t most = -1;
    auto offer = [&](const Value* v) {
      int64_t n = estimate(v->type.numel());
      if (!best || n > most) best = v, most = n;
    };
    for (const Node* n : space_.reductions) offer(n->operands[0]);
    for (const Node* n : space_.scans) offer(n->out());
    for (const Node* n : space_.scatters) offer(n->operands[1]);
    if (best) return best;
    for (const Value* v : group_.stored) offer(v);
    BOLT_CHECK(best, "a group without results");
    return best;
  }

  void lock_arg_dims() {
    for (const Node* n : space_.reductions) {
      if (n->op != Op::argmax && n->op != Op::argmin) continue;
      if (n->operands[0] != root_) continue;
      Sym at = root_index_[int_list(*n, "dims")[0]];
      for (Atom& a : space_.atoms) a.locked |= a.symbol == at;
    }
    for (const Node* n : space_.scans)
      if (n->out() == root_)
        for (Atom& a : space_.atoms) a.locked |= a.symbol == root_index_[dim_of(*n)];
  }
  static size_t dim_of(const Node& n) { return static_cast<size_t>(sym_attr(n, "dim").value()); }

  bool enters(const Node* n) const {
    if (n->outputs.empty()) return false;
    auto it = member_.find(n->out()->id);
    return it != member_.end() || usage_.role_of(n) == Role::Free;
  }

  void set(const Value* v, Index index) {
    if (space_.index.count(v->id)) return;
    while (has_division(index)) {
      std::optional<Space::Split> s;
      for (size_t i = 0; i < index.size() && !s; ++i) s = space_.find_split(index[i]);
      if (!s || space_.atoms.size() >= kMaxAtoms) break;
      // The index goes along with all others through the split.
      space_.index[kInFlight] = std::move(index);
      space_.split(*s);
      index = std::move(space_.index[kInFlight]);
      space_.index.erase(kInFlight);
    }
    space_.index[v->id] = std::move(index);
    queue_.push_back(v);
  }

  void drain() {
    while (!queue_.empty()) {
      const Value* v = queue_.back();
      queue_.pop_back();
      if (v->def && enters(v->def)) up(v);
      // Constants are shared by everything and tie nothing together; but one that is reduced spans the space.
      if (v != root_ && v->def && graph::op_info(v->def->op).kind == OpKind::Create) continue;
      for (const Node* user : usage_.users_of(v))
        if (enters(user)) down(v, user);
    }
  }

  void up(const Value* v) {
    const Node& n = *v->def;
    switch (graph::op_info(n.op).kind) {
      case OpKind::Scan:
      case OpKind::Pointwise:
        for (const Value* o : n.operands) set(o, broadcast_up(o->type, space_.index[v->id]));
        break;
      case OpKind::View:
        // Only a view that shows all of its operand gives an index which covers it.
        if (n.op == Op::reshape || n.op == Op::permute || n.op == Op::expand || n.op == Op::flip ||
            n.op == Op::keep)
          set(n.operands[0], view_up(n, space_.index[v->id]));
        break;
      default: break;
    }
  }

  void down(const Value* v, const Node* user) {
    const Index& index = space_.index[v->id];
    const graph::Type& type = user->out()->type;
    switch (graph::op_info(user->op).kind) {
      case OpKind::Scan:
      case OpKind::Pointwise:
        if (type.sizes == v->type.sizes) set(user->out(), index);
        break;
      case OpKind::View:
        if (auto out = view_down(*user, index)) set(user->out(), *out);
        break;
      case OpKind::Reduce: set(user->out(), reduced_index(*user, index)); break;
      default: break;
    }
  }

  static Index reduced_index(const Node& reduce, const Index& operand) {
    std::vector<int> dims = int_list(reduce, "dims");
    bool keep = reduce.attr_or<bool>("keepdim", false);
    Index out;
    for (int i = 0; i < static_cast<int>(operand.size()); ++i) {
      bool gone = std::find(dims.begin(), dims.end(), i) != dims.end();
      if (gone && keep) out.push_back(0);
      if (!gone) out.push_back(operand[i]);
    }
    return out;
  }

  /// Values of the root's shape that no edge ties to it (siblings) are laid over it.
  bool reach_the_rest() {
    Syms shape = without_ones(root_->type.sizes);
    auto adopt = [&](const Value* v) {
      if (space_.find(v)) return true;
      if (without_ones(v->type.sizes) != shape) return false;
      Index index;
      size_t next = 0;
      Syms source = without_zeros(space_.index[root_->id], root_->type.sizes);
      for (Sym size : v->type.sizes) index.push_back(size.is_const(1) ? Sym(0) : source[next++]);
      set(v, index);
      drain();
      return true;
    };
    for (const Node* n : space_.reductions)
      if (!adopt(n->operands[0])) return false;
    for (const Node* n : space_.scans)
      if (!adopt(n->out())) return false;
    for (const Node* n : space_.scatters)
      if (!adopt(n->operands[1]) || !adopt(n->operands[2])) return false;
    for (const Value* v : group_.stored)
      if (!is_scattered(v) && !adopt(v)) return false;
    return true;
  }
  static Index without_zeros(const Index& index, const Syms& sizes) {
    Index out;
    for (size_t i = 0; i < index.size(); ++i)
      if (!sizes[i].is_const(1)) out.push_back(index[i]);
    return out;
  }

  bool check_reductions() {
    bool first = true;
    for (const Node* n : space_.reductions) {
      const Index& operand = space_.index[n->operands[0]->id];
      uint32_t reduced = 0;
      for (int d : int_list(*n, "dims")) reduced |= space_.mask(operand[d]);
      Index out = reduced_index(*n, operand);
      if (!covers_once(n->operands[0], space_.all()) || (space_.mask(out) & reduced)) return false;
      auto [it, fresh] = space_.index.try_emplace(n->out()->id, out);
      if (!fresh && it->second != out) return false;
      if (!first && reduced != space_.reduced) return false;
      space_.reduced = reduced;
      first = false;
      bool arg = n->op == Op::argmax || n->op == Op::argmin;
      if (arg && !lock_single(operand[int_list(*n, "dims")[0]])) return false;
    }
    return true;
  }

  static bool is_scattered(const Value* v) {
    return v->def && graph::op_info(v->def->op).kind == OpKind::Scatter;
  }

  bool check_scans() {
    for (const Node* n : space_.scans) {
      if (!covers_once(n->out(), space_.all()) || !space_.run_along(n->out())) return false;
      const Sym at = space_.index[n->out()->id][dim_of(*n)];
      const uint32_t along = space_.mask(at);
      if (at.is_const() || !lock_single(at) || (space_.reduced && space_.reduced != along)) return false;
      space_.reduced = along;
    }
    return true;
  }

  bool lock_single(Sym at) {
    if (at.is_const()) return true;
    for (Atom& a : space_.atoms)
      if (a.symbol == at) return a.locked = true;
    return false;
  }

  /// A stored value covers the whole space, or all but the reduced atoms.
  bool check_stored() const {
    for (const Node* n : space_.scatters)
      for (const Value* v : {n->operands[1], n->operands[2]})
        if (!space_.find(v) || !covers_once(v, space_.all())) return false;
    for (const Value* v : group_.stored) {
      if (is_scattered(v)) continue;
      const Index* index = space_.find(v);
      if (!index) return false;
      if (!covers_once(v, space_.all()) && !covers_once(v, space_.all() & ~space_.reduced)) return false;
    }
    return true;
  }

  /// Are the value's elements met at one place of these atoms each? What is repeated behind a reshape has an
  /// index of all atoms too, x[a0 % 48], and meets each of them several times.
  bool covers_once(const Value* v, uint32_t atoms) const {
    Sym count = 1;
    for (size_t i = 0; i < space_.atoms.size(); ++i)
      if (atoms >> i & 1) count *= space_.atoms[i].size;
    return space_.mask(*space_.find(v)) == atoms && v->type.numel() == count;
  }

  static constexpr int kInFlight = -1;
  const Usage& usage_;
  const Group& group_;
  Space space_;
  const Value* root_ = nullptr;
  Index root_index_;
  std::unordered_map<int, bool> member_;
  std::vector<const Value*> queue_;
};

}  // namespace

std::optional<Space> align(const Usage& usage, const Group& group) { return Aligner(usage, group).run(); }

int64_t estimate(Sym s) {
  if (s.is_const()) return s.value();
  // Sizes are larger than the numbers that are taken away from them. Even so an expression may come to
  // nothing, and be divided by.
  try {
    return std::max<int64_t>(
        evaluate(s, [](const SymNode& symbol) { return int64_t{number_step(symbol) >= 0 ? 2 : 64}; }), 0);
  } catch (const Error&) {
    return 64;
  }
}

uint32_t Space::mask(Sym s) const {
  if (s.is_const()) return 0;
  Syms found;
  collect_symbols(s, &found);
  uint32_t mask = 0;
  for (size_t i = 0; i < atoms.size(); ++i)
    if (std::find(found.begin(), found.end(), atoms[i].symbol) != found.end()) mask |= 1u << i;
  return mask;
}

uint32_t Space::mask(const Index& index) const {
  uint32_t m = 0;
  for (Sym s : index) m |= mask(s);
  return m;
}

std::optional<Space::Split> Space::find_split(Sym s) const {
  std::vector<const SymNode*> divisions;
  collect_divisions(s, &divisions);
  for (size_t k = divisions.size(); k-- > 0;) {
    const SymNode& n = *divisions[k];
    if (!n.args[1].is_const()) continue;
    int64_t divisor = n.args[1].value();
    for (const SymTerm& t : sum_terms(n.args[0], nullptr)) {
      for (size_t i = 0; i < atoms.size(); ++i) {
        const Atom& a = atoms[i];
        if (a.symbol != t.term || a.locked || !a.size.is_const() || t.coef <= 0 || divisor % t.coef) continue;
        int64_t inner = divisor / t.coef, size = a.size.value();
        if (inner <= 1 || inner >= size || size % inner) continue;
        // Worth it only if a division goes away: 4*a + b over 6 stays what it is.
        Sym hi = atom_symbol(98, size / inner), lo = atom_symbol(99, inner);
        Sym after = substitute(s, [&](Sym x) { return x == a.symbol ? hi * Sym(inner) + lo : x; });
        if (count_divisions(after) < count_divisions(s)) return Split{static_cast<int>(i), inner};
      }
    }
  }
  return std::nullopt;
}

bool Space::run_along(const graph::Value* v) {
  const Index* at = find(v);
  if (!at) return false;
  uint32_t falling = 0;
  for (Sym s : *at)
    for (const SymTerm& t : sum_terms(s, nullptr))
      if (t.coef < 0) falling |= mask(t.term);
  for (size_t i = 0; i < atoms.size(); ++i) {
    if (!(falling >> i & 1)) continue;
    const Atom& atom = atoms[i];
    if (atom.locked) return false;
    const Sym turned = atom.size - 1 - atom.symbol;
    for (auto& [id, idx] : index)
      for (Sym& x : idx) x = substitute(x, [&](Sym y) { return y == atom.symbol ? turned : y; });
  }
  for (Sym s : *at) {
    int64_t constant = 0;
    for (const SymTerm& t : sum_terms(s, &constant))
      if (t.coef < 0 || !mask(t.term)) return false;
    if (constant != 0) return false;
  }
  return true;
}

void Space::split(Split s) {
  Atom old = atoms[s.atom];
  Sym outer_size = floordiv(old.size, s.inner);
  // Numbers are not used again, or two atoms of one size could be one symbol.
  size_t number = atoms.size();
  for (const Atom& a : atoms) number = std::max(number, static_cast<size_t>(a.symbol.node()->what.of) + 1);
  Atom outer{atom_symbol(number, outer_size), outer_size}, inner{atom_symbol(number + 1, s.inner), s.inner};
  Sym both = outer.symbol * Sym(s.inner) + inner.symbol;
  for (auto& [id, idx] : index)
    for (Sym& x : idx) x = substitute(x, [&](Sym y) { return y == old.symbol ? both : y; });
  atoms[s.atom] = outer;
  atoms.insert(atoms.begin() + s.atom + 1, inner);
  // Bits above the atom move up by one; the atom's own is copied to its inner part.
  uint32_t low = reduced & ((1u << s.atom) - 1), own = reduced >> s.atom & 1, high = reduced >> s.atom >> 1;
  reduced = low | own << s.atom | own << (s.atom + 1) | high << (s.atom + 2);
}

}  // namespace bolt::loops

// loops/normalise.cpp
// See normalise.h. Two neighbouring dimensions i, i+1 merge when every index that mentions either is linear
// in both with coef(i) = coef(i+1) * size(i+1), and every reduction runs over both or neither.

#include "loops/normalise.h"

#include <algorithm>
#include <functional>

#include "support/symbols.h"

namespace bolt::loops {

bool mentions(Sym index, Sym symbol) {
  Syms symbols;
  collect_symbols(index, &symbols);
  return std::find(symbols.begin(), symbols.end(), symbol) != symbols.end();
}

LinearIn linear_in(Sym index, Sym dim) {
  LinearIn result;
  result.linear = true;
  int64_t constant = 0;
  const std::vector<SymTerm> terms = sum_terms(index, &constant);
  result.rest = Sym(constant);
  for (const SymTerm& t : terms) {
    if (t.term == dim) {
      result.coef += Sym(t.coef);
    } else if (!mentions(t.term, dim)) {
      result.rest += Sym(t.coef) * t.term;
    } else if (t.term.node()->op == SymOp::Mul) {
      Sym factor(t.coef);
      int count = 0;
      for (Sym a : t.term.node()->args) {
        if (a == dim) {
          ++count;
        } else {
          factor *= a;
          if (mentions(a, dim)) return {};
        }
      }
      if (count != 1) return {};
      result.coef += factor;
    } else {
      return {};
    }
  }
  return result;
}

namespace {

void for_each_index(Kernel& k, const std::function<void(Sym&)>& visit) {
  for (Expr& e : k.exprs)
    if (e.kind == ExprKind::Load || e.kind == ExprKind::Index) visit(e.index);
  for (Store& s : k.stores) visit(s.index);
}

/// Replaces loop variables in every index and size, then rebuilds which dimensions each expression varies
/// over.
void rename(Kernel& k, const std::function<Sym(int)>& replacement, const std::vector<Dim>& dims) {
  const int count = static_cast<int>(k.dims.size());
  auto change = [&](Sym symbol) {
    for (int i = 0; i < count; ++i)
      if (symbol == Kernel::dim(i)) return replacement(i);
    return symbol;
  };
  for_each_index(k, [&](Sym& index) { index = substitute(index, change); });
  k.dims = dims;
  for (Dim& d : k.dims) d.size = substitute(d.size, change);
}

uint32_t map_mask(uint32_t mask, const std::vector<int>& to) {
  uint32_t result = 0;
  for (size_t i = 0; i < to.size(); ++i)
    if ((mask >> i & 1) && to[i] >= 0) result |= 1u << to[i];
  return result;
}

void remap(Kernel& k, const std::vector<int>& to) {
  for (Expr& e : k.exprs) {
    e.dims = map_mask(e.dims, to);
    e.reduce_dims = map_mask(e.reduce_dims, to);
  }
}

bool drop_unit_dim(Kernel& k) {
  for (size_t i = 0; i < k.dims.size(); ++i) {
    const bool reduced = std::any_of(k.exprs.begin(), k.exprs.end(),
                                     [&](const Expr& e) { return e.reduce_dims == (1u << i); });
    // A reduction over nothing but this dimension needs it, and a kernel needs one dimension at least.
    if (!k.dims[i].size.is_const(1) || reduced || k.dims.size() == 1) continue;
    std::vector<Dim> dims = k.dims;
    dims.erase(dims.begin() + static_cast<long>(i));
    const int gone = static_cast<int>(i);
    std::vector<int> to;
    for (int d = 0; d < static_cast<int>(k.dims.size()); ++d) to.push_back(d == gone ? -1 : d - (d > gone));
    rename(k, [&](int d) { return d == gone ? Sym(0) : Kernel::dim(to[d]); }, dims);
    remap(k, to);
    return true;
  }
  return false;
}

bool can_merge(Kernel& k, int outer) {
  const Sym a = Kernel::dim(outer), b = Kernel::dim(outer + 1);
  const Sym size = k.dims[static_cast<size_t>(outer) + 1].size;
  if (k.dims[outer].reduce != k.dims[static_cast<size_t>(outer) + 1].reduce) return false;
  for (const Dim& d : k.dims)  // how long a chunk is may rest on its number
    if (mentions(d.size, a) || mentions(d.size, b)) return false;
  for (const Expr& e : k.exprs) {
    const bool over_a = e.reduce_dims >> outer & 1, over_b = e.reduce_dims >> (outer + 1) & 1;
    const bool arg = e.reduce_op == ReduceOp::ArgMax || e.reduce_op == ReduceOp::ArgMin;
    if (over_a != over_b || (e.kind == ExprKind::Reduce && arg && over_a)) return false;
  }
  bool same = true;
  for_each_index(k, [&](Sym& index) {
    const LinearIn la = linear_in(index, a), lb = linear_in(index, b);
    same = same && la.linear && lb.linear && la.coef == lb.coef * size && !mentions(la.coef, b);
  });
  return same;
}

bool merge_pair(Kernel& k) {
  for (int i = 0; i + 1 < static_cast<int>(k.dims.size()); ++i) {
    if (!can_merge(k, i)) continue;
    std::vector<Dim> dims = k.dims;
    dims[i].size = k.dims[i].size * k.dims[static_cast<size_t>(i) + 1].size;
    dims.erase(dims.begin() + i + 1);
    std::vector<int> to;
    for (int d = 0; d < static_cast<int>(k.dims.size()); ++d) to.push_back(d <= i ? d : d - 1);
    rename(k, [&](int d) { return d == i ? Sym(0) : Kernel::dim(to[d]); }, dims);
    remap(k, to);
    return true;
  }
  return false;
}

}  // namespace

Kernel with_symbols_by_place(const Kernel& kernel) {
  Kernel k = kernel;
  k.symbols = by_place(kernel.symbols);
  if (k.symbols == kernel.symbols) return k;
  auto change = [&](Sym& s) { s = renamed(s, kernel.symbols, k.symbols); };
  auto change_all = [&](std::vector<GatherTerm>& gather) {
    for (GatherTerm& g : gather) change(g.coef);
  };
  for (Dim& d : k.dims) change(d.size);
  for (Expr& e : k.exprs) change(e.index), change_all(e.gather);
  for (Store& s : k.stores) change(s.index), change_all(s.gather);
  return k;
}

Kernel normalise(const Kernel& kernel) {
  Kernel k = kernel;
  k.name = std::string("k");  // g++ 12 warns of an overlap in the assignment of a literal
  k.sources.clear();
  for (Buffer& b : k.buffers) b.name.clear();
  while (drop_unit_dim(k) || merge_pair(k)) {
  }
  return k;
}

}  // namespace bolt::loops

// loops/analysis.cpp
#include "loops/analysis.h"

#include <algorithm>

namespace bolt::loops {
namespace {

bool contains(Sym s, Sym variable) {
  if (s.is_const()) return false;
  if (s == variable) return true;
  const auto& args = s.node()->args;
  return std::any_of(args.begin(), args.end(), [&](Sym a) { return contains(a, variable); });
}

/// The factor in one term of a sum.
std::optional<Sym> term_coefficient(Sym term, Sym variable) {
  if (term == variable) return Sym(1);
  if (!contains(term, variable)) return Sym(0);
  if (term.node()->op != SymOp::Mul) return std::nullopt;
  Sym rest = 1;
  int found = 0;
  for (Sym f : term.node()->args) {
    if (f == variable)
      ++found;
    else if (contains(f, variable))
      return std::nullopt;
    else
      rest *= f;
  }
  if (found != 1) return std::nullopt;
  return rest;
}

}  // namespace

std::optional<Sym> coefficient(Sym index, Sym variable) {
  if (index.is_const() || index.node()->op != SymOp::Add)
    return index.is_const() ? Sym(0) : term_coefficient(index, variable);
  Sym total = 0;
  for (Sym t : index.node()->args) {
    std::optional<Sym> c = t.is_const() ? Sym(0) : term_coefficient(t, variable);
    if (!c) return std::nullopt;
    total += *c;
  }
  return total;
}

std::vector<int> reduction_levels(const Kernel& k, const std::vector<ExprId>& follows) {
  std::vector<int> level(k.exprs.size(), 0);
  for (size_t i = 0; i < k.exprs.size(); ++i) {
    each_operand(k.exprs[i], [&](ExprId a) { level[i] = std::max(level[i], level[a]); });
    const bool beside = !follows.empty() && follows[i] != kNone;
    if (k.exprs[i].kind == ExprKind::Reduce && !beside) ++level[i];
  }
  return level;
}

std::vector<bool> taken_by_stores(const Kernel& k) {
  std::vector<bool> taken(k.exprs.size(), false);
  for (const Store& s : k.stores) each_operand(s, [&](ExprId a) { taken[a] = true; });
  return taken;
}

}  // namespace bolt::loops

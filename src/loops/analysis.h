// loops/analysis.h
// What a schedule asks of a kernel: how addresses move along each dimension, and what must be known before
// what.
#pragma once

#include <optional>
#include <vector>

#include "loops/kernel.h"

namespace bolt::loops {

/// The factor of `variable` in `index` when the index is linear in it; nothing when it stands inside a
/// division.
BOLT_API std::optional<Sym> coefficient(Sym index, Sym variable);

/// How many reductions in a row each expression waits for: 0 before any, 1 for the first reduction's result
/// and what uses it, and so on. A schedule that keeps nothing needs one sweep over the reduced dimensions for
/// each level. `follows`, by expression: of a sum, the maximum that it is computed beside, in one sweep, so
/// that it stays at that one's level, or kNone. Empty: there is no such sum.
BOLT_API std::vector<int> reduction_levels(const Kernel& k, const std::vector<ExprId>& follows = {});

/// Which expressions the stores take.
BOLT_API std::vector<bool> taken_by_stores(const Kernel& k);

/// Of the marked expressions, marks all that they are made of. What is `given` is not made here: its operands
/// are left out.
template <typename Given>
std::vector<bool> with_operands(const Kernel& k, std::vector<bool> marked, Given&& given) {
  for (size_t i = k.exprs.size(); i-- > 0;)
    if (marked[i] && !given(static_cast<ExprId>(i)))
      each_operand(k.exprs[i], [&](ExprId a) { marked[a] = true; });
  return marked;
}

}  // namespace bolt::loops

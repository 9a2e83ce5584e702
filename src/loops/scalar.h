// loops/scalar.h
// A pointwise graph operation on one element -> scalar operations of a kernel, by ATen's formulas.
//
// ExprList is a kernel's expression list while it is being built: indices are in the atoms of a Space and
// `dims` has one bit per atom. Equal expressions are one. Constants fold where that is exact.
#pragma once

#include <unordered_map>
#include <vector>

#include "graph/ir.h"
#include "loops/kernel.h"
#include "loops/space.h"

namespace bolt::loops {

class ExprList {
 public:
  explicit ExprList(const Space& space) : space_(space) {}

  ExprId add(Expr e);
  ExprId op(ScalarOp op, std::vector<ExprId> args);
  ExprId cast(DType to, ExprId x);
  ExprId real(DType t, double v);      // t floating
  ExprId integer(DType t, int64_t v);  // t integer or b8
  ExprId index(Sym s);                 // i64
  ExprId land(ExprId a, ExprId b);     // either may be kNone: true
  const Expr& operator[](ExprId id) const { return exprs_[id]; }
  const std::vector<Expr>& all() const { return exprs_; }

 private:
  uint32_t dims_of(const Expr& e) const;
  const Space& space_;
  std::vector<Expr> exprs_;
  std::unordered_multimap<size_t, ExprId> known_;
};

/// `args` are in compute types; so is the result, except that a cast to bf16 or f16 has been rounded there
/// and back.
ExprId expand_pointwise(ExprList& list, const graph::Node& node, const std::vector<ExprId>& args);

}  // namespace bolt::loops

// codegen/cpu/emit_index.cpp
// Sym -> i64 values. A sum is built term by term from the outermost scope inwards, so each partial sum is
// computed once per round of the loop it depends on: the innermost loop adds one term and never divides.

#include <algorithm>

#include "codegen/cpu/emitter.h"

namespace bolt::codegen::cpu {

uint32_t Emitter::dims_of(Sym index) const {
  uint32_t mask = 0;
  Syms symbols;
  collect_symbols(index, &symbols);
  for (Sym s : symbols)
    for (size_t d = 0; d < k_.dims.size(); ++d)
      if (s == loops::Kernel::dim(static_cast<int>(d))) mask |= 1u << d;
  return mask;
}

Emitter::Value Emitter::size(int dim) { return index(k_.dims[dim].size, {}, false).value; }

Emitter::Placed Emitter::wide(Placed p, int lanes) {
  if (lanes == 1 || p.value->getType()->isVectorTy()) return p;
  at(p.depth);
  return {ops_.splat(p.value, static_cast<unsigned>(lanes)), p.depth};
}

Emitter::Placed Emitter::symbol(Sym s, Sub sub, bool want_wide) {
  for (size_t d = 0; d < k_.dims.size(); ++d) {
    if (s != loops::Kernel::dim(static_cast<int>(d))) continue;
    const Open& open = open_[d];
    BOLT_CHECK(open.index, "loop variable d", d, " is used where its loop is not open");
    const int dim = static_cast<int>(d);
    int64_t offset = 0;
    if (dim == s_.vec_dim) offset = static_cast<int64_t>(sub.v) * (open.lanes ? s_.lanes : 1);
    if (dim == tile_dim_) offset = sub.t;
    at(open.depth);
    Value value = offset ? b_.CreateAdd(open.index, constant(offset)) : open.index;
    if (want_wide && dim == s_.vec_dim && lanes_now() > 1) {
      std::vector<llvm::Constant*> numbers;
      for (int i = 0; i < s_.lanes; ++i) numbers.push_back(b_.getInt64(static_cast<uint64_t>(i)));
      value = b_.CreateAdd(ops_.splat(value, static_cast<unsigned>(s_.lanes)),
                           llvm::ConstantVector::get(numbers));
    }
    return {value, open.depth};
  }
  auto it = symbols_.find(s.node());
  BOLT_CHECK(it != symbols_.end(), "size symbol ", s.str(), " is not passed to the kernel");
  return {it->second, 0};
}

// Floor division; both sides non-negative unless the text shows a subtraction.
Emitter::Placed Emitter::divide(SymOp op, Sym a, Sym b, Sub sub, bool want_wide) {
  Placed x = index(a, sub, want_wide), y = index(b, sub, want_wide);
  const bool vector = x.value->getType()->isVectorTy() || y.value->getType()->isVectorTy();
  if (vector) x = wide(x, s_.lanes), y = wide(y, s_.lanes);
  const int d = std::max(x.depth, y.depth);
  at(d);
  int64_t constant_part = 0;
  bool negative = false;
  for (const SymTerm& t : sum_terms(a, &constant_part)) negative |= t.coef < 0;
  if (!negative && constant_part >= 0)
    return {op == SymOp::FloorDiv ? b_.CreateUDiv(x.value, y.value) : b_.CreateURem(x.value, y.value), d};
  return {ops_.apply(op == SymOp::FloorDiv ? loops::ScalarOp::floor_div : loops::ScalarOp::remainder,
                     DType::I64, {x.value, y.value}),
          d};
}

Emitter::Placed Emitter::index_node(Sym s, Sub sub, bool want_wide) {
  const SymNode& node = *s.node();
  switch (node.op) {
    case SymOp::Symbol: return symbol(s, sub, want_wide);
    case SymOp::FloorDiv:
    case SymOp::Mod: return divide(node.op, node.args[0], node.args[1], sub, want_wide);
    case SymOp::Add: return index_sum(s, sub, want_wide);
    default: break;
  }
  Placed result = index(node.args[0], sub, want_wide);
  for (size_t i = 1; i < node.args.size(); ++i) {
    Placed next = index(node.args[i], sub, want_wide);
    if (next.value->getType() != result.value->getType())
      next = wide(next, s_.lanes), result = wide(result, s_.lanes);
    const int d = std::max(result.depth, next.depth);
    at(d);
    if (node.op == SymOp::Mul)
      result = {b_.CreateMul(result.value, next.value), d};
    else
      result = {
          b_.CreateBinaryIntrinsic(node.op == SymOp::Min ? llvm::Intrinsic::smin : llvm::Intrinsic::smax,
                                   result.value, next.value),
          d};
  }
  return result;
}

Emitter::Placed Emitter::index_sum(Sym s, Sub sub, bool want_wide) {
  int64_t constant_part = 0;
  std::vector<Placed> parts;
  for (const SymTerm& t : sum_terms(s, &constant_part)) {
    // A product of symbols is its own only term.
    Placed p = t.term == s ? index_node(s, sub, want_wide) : index(t.term, sub, want_wide);
    if (t.coef != 1) {
      at(p.depth);
      Value factor = ops_.splat(constant(t.coef),
                                p.value->getType()->isVectorTy() ? static_cast<unsigned>(s_.lanes) : 1);
      p.value = b_.CreateMul(p.value, factor);
    }
    parts.push_back(p);
  }
  Placed sum{constant(constant_part), 0};
  for (int level = 0; level <= depth(); ++level)
    for (Placed p : parts) {
      if (p.depth != level) continue;
      if (p.value->getType() != sum.value->getType()) p = wide(p, s_.lanes), sum = wide(sum, s_.lanes);
      at(level);
      sum = {b_.CreateAdd(sum.value, p.value), level};
    }
  return sum;
}

Emitter::Placed Emitter::index(Sym s, Sub sub, bool want_wide) {
  if (s.is_const()) return {constant(s.value()), 0};
  sub = normal(dims_of(s), sub);
  const Key key{want_wide ? KeyKind::WideIndex : KeyKind::Index, s.node(), 0, sub.v, sub.t};
  if (auto known = find(key)) return *known;
  Placed p = s.node()->op == SymOp::Symbol                              ? symbol(s, sub, want_wide)
             : s.node()->op == SymOp::Add || s.node()->op == SymOp::Mul ? index_sum(s, sub, want_wide)
                                                                        : index_node(s, sub, want_wide);
  return remember(key, p.value, p.depth);
}

}  // namespace bolt::codegen::cpu

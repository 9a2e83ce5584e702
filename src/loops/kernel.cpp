// loops/kernel.cpp
// Building kernels: the dimension mask of each expression, sharing of equal expressions, and what a kernel
// costs.
#include "loops/kernel.h"

#include <algorithm>
#include <bit>

#include "loops/analysis.h"
#include "loops/kernel_ops.h"

namespace bolt::loops {
namespace {

/// Bits of NaN compare too, so that two `nan` constants are one expression.
bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

bool same_gather(const std::vector<GatherTerm>& a, const std::vector<GatherTerm>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].value != b[i].value || a[i].coef != b[i].coef) return false;
  return true;
}

bool same_expr(const Expr& a, const Expr& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.dims == b.dims && a.args == b.args &&
         a.buffer == b.buffer && a.index == b.index && a.reduce_op == b.reduce_op &&
         a.reduce_dims == b.reduce_dims && a.ivalue == b.ivalue && same_bits(a.value, b.value) &&
         a.mask == b.mask && same_bits(a.fill, b.fill) && same_gather(a.gather, b.gather);
}

/// Product of the sizes of the dimensions in `mask`.
Sym points(const Kernel& k, uint32_t mask) {
  Sym n = 1;
  for (size_t i = 0; i < k.dims.size(); ++i)
    if (mask >> i & 1) n *= k.dims[i].size;
  return n;
}

}  // namespace

Sym Kernel::dim(int i) {
  // Asked for at every turn: the symbols are kept.
  static const Syms known = [] {
    Syms v;
    for (int k = 0; k < 32; ++k) v.push_back(Sym::symbol("d" + std::to_string(k)));
    return v;
  }();
  return known[i];
}

uint32_t Kernel::varies(Sym index) const {
  Syms symbols;
  collect_symbols(index, &symbols);
  uint32_t mask = 0;
  for (Sym s : symbols)
    for (size_t i = 0; i < dims.size(); ++i)
      if (s == dim(static_cast<int>(i))) mask |= 1u << i;
  return mask;
}

uint32_t Kernel::dims_of(const Store& st) const {
  if (st.scatters()) return (1u << dims.size()) - 1;
  uint32_t mask = varies(st.index);
  each_operand(st, [&](ExprId a) { mask |= exprs[a].dims; });
  return mask;
}

uint32_t Kernel::met_along() const {
  uint32_t mask = 0;
  for (const Store& st : stores) {
    if (!st.scatters()) continue;
    for (size_t i = 0; i < dims.size(); ++i) {
      const std::optional<Sym> step = coefficient(st.index, dim(static_cast<int>(i)));
      if (!step || step->is_const(0)) mask |= 1u << i;
    }
  }
  return mask;
}

bool Kernel::has_scans() const {
  return std::any_of(exprs.begin(), exprs.end(), [](const Expr& e) { return e.kind == ExprKind::Scan; });
}

bool Kernel::has_checks() const {
  return std::any_of(exprs.begin(), exprs.end(), [](const Expr& e) { return e.kind == ExprKind::Check; });
}

uint32_t dims_of(const Kernel& k, const Expr& e) {
  if (e.kind == ExprKind::Acc) return (1u << k.dims.size()) - 1;
  uint32_t mask = 0;
  if (e.kind == ExprKind::Load || e.kind == ExprKind::Index) mask = k.varies(e.index);
  each_operand(e, [&](ExprId a) { mask |= k.exprs[a].dims; });
  return e.kind == ExprKind::Scan ? mask | e.reduce_dims : mask & ~e.reduce_dims;
}

ExprId Kernel::add(Expr e) {
  e.dims = loops::dims_of(*this, e);
  for (size_t i = exprs.size(); i-- > 0;)
    if (same_expr(exprs[i], e)) return static_cast<ExprId>(i);
  exprs.push_back(std::move(e));
  return static_cast<ExprId>(exprs.size()) - 1;
}

bool same_code(const Kernel& a, const Kernel& b) {
  auto all = [](const auto& x, const auto& y, auto same) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), same);
  };
  auto dims = [](const Dim& x, const Dim& y) { return x.size == y.size && x.reduce == y.reduce; };
  auto buffers = [](const Buffer& x, const Buffer& y) { return x.dtype == y.dtype && x.role == y.role; };
  auto stores = [](const Store& x, const Store& y) {
    return x.buffer == y.buffer && x.index == y.index && x.value == y.value && x.mask == y.mask &&
           x.into == y.into && same_gather(x.gather, y.gather);
  };
  return a.symbols == b.symbols && all(a.dims, b.dims, dims) && all(a.buffers, b.buffers, buffers) &&
         all(a.exprs, b.exprs, same_expr) && all(a.stores, b.stores, stores);
}

uint64_t hash_code(const Kernel& k) {
  uint64_t h = k.exprs.size() << 16 | k.stores.size() << 8 | k.dims.size();
  auto mix = [&](uint64_t x) { h = (h ^ x) * 0x9e3779b97f4a7c15u + (h >> 29); };
  for (const Dim& d : k.dims)
    mix(d.size.is_const() ? static_cast<uint64_t>(d.size.value()) : d.size.node()->id);
  for (const Expr& e : k.exprs) mix(static_cast<uint64_t>(e.kind) << 8 | static_cast<uint64_t>(e.op));
  return h;
}

Traffic traffic(const Kernel& k) {
  Traffic t{0, 0};
  for (const Expr& e : k.exprs) {
    if (e.kind == ExprKind::Load) t.bytes += points(k, e.dims) * dtype_bytes(e.dtype);
    if (e.kind == ExprKind::Op) t.flops += points(k, e.dims);
    if (e.kind == ExprKind::Reduce) t.flops += points(k, k.exprs[e.args[0]].dims);
    if (e.kind == ExprKind::Scan) t.flops += points(k, e.dims);
  }
  for (const Store& s : k.stores) {
    t.bytes += points(k, k.dims_of(s)) * dtype_bytes(k.buffers[s.buffer].dtype) * (s.combines() ? 2 : 1);
  }
  return t;
}

}  // namespace bolt::loops

// loops/scalar.cpp
#include "loops/scalar.h"

#include <array>
#include <bit>
#include <cmath>

#include "graph/pointwise.h"
#include "loops/kernel_ops.h"
#include "support/error.h"

namespace bolt::loops {
namespace {

using graph::Node;
using graph::Op;
using S = ScalarOp;

size_t hash_expr(const Expr& e) {
  size_t h = static_cast<size_t>(e.kind) * 31 + static_cast<size_t>(e.dtype) * 7 + static_cast<size_t>(e.op);
  auto mix = [&](size_t v) { h = (h ^ v) * 0x9e3779b97f4a7c15ull + (h >> 27); };
  for (ExprId a : e.args) mix(static_cast<size_t>(a) + 1);
  mix(std::bit_cast<uint64_t>(e.value));
  mix(static_cast<size_t>(e.ivalue));
  mix(static_cast<size_t>(e.buffer + 1));
  mix(std::hash<Sym>()(e.index));
  mix(static_cast<size_t>(e.mask + 1) * 64 + static_cast<size_t>(e.reduce_op));
  mix(e.reduce_dims);
  return h;
}

bool same(const Expr& a, const Expr& b) {
  if (a.kind != b.kind || a.dtype != b.dtype || a.op != b.op || a.args != b.args || a.ivalue != b.ivalue ||
      std::bit_cast<uint64_t>(a.value) != std::bit_cast<uint64_t>(b.value) || a.buffer != b.buffer ||
      a.index != b.index || a.mask != b.mask ||
      std::bit_cast<uint64_t>(a.fill) != std::bit_cast<uint64_t>(b.fill) || a.reduce_op != b.reduce_op ||
      a.reduce_dims != b.reduce_dims || a.gather.size() != b.gather.size())
    return false;
  for (size_t i = 0; i < a.gather.size(); ++i)
    if (a.gather[i].value != b.gather[i].value || a.gather[i].coef != b.gather[i].coef) return false;
  return true;
}

/// The ScalarOp of the same name, for graph operations that are one.
std::optional<ScalarOp> direct(Op op) {
  static const auto* table = [] {
    auto* t = new std::array<std::optional<ScalarOp>, static_cast<size_t>(Op::kCount)>;
    for (const graph::PointwiseRow& row : graph::pointwise_rows())
      if (row.form == graph::Form::Scalar) (*t)[static_cast<size_t>(row.op)] = scalar_op_from_name(row.name);
    return t;
  }();
  return (*table)[static_cast<size_t>(op)];
}

double number_attr(const Node& n, std::string_view name, double fallback) {
  auto it = n.attrs.find(name);
  if (it == n.attrs.end()) return fallback;
  if (const double* v = std::get_if<double>(&it->second)) return *v;
  if (const int64_t* v = std::get_if<int64_t>(&it->second)) return static_cast<double>(*v);
  BOLT_CHECK(false, "attribute ", name, " is no number");
  return fallback;
}

/// Formulas read best with operators; this is an expression with them.
struct ExprTerm {
  ExprList* list;
  ExprId id;
};
ExprTerm apply(S op, ExprTerm a) { return {a.list, a.list->op(op, {a.id})}; }
ExprTerm apply(S op, ExprTerm a, ExprTerm b) { return {a.list, a.list->op(op, {a.id, b.id})}; }
ExprTerm lift(ExprTerm like, double v) {
  DType t = (*like.list)[like.id].dtype;
  return {like.list, is_float(t) ? like.list->real(t, v) : like.list->integer(t, static_cast<int64_t>(v))};
}
ExprTerm operator+(ExprTerm a, ExprTerm b) { return apply(S::add, a, b); }
ExprTerm operator-(ExprTerm a, ExprTerm b) { return apply(S::sub, a, b); }
ExprTerm operator*(ExprTerm a, ExprTerm b) { return apply(S::mul, a, b); }
ExprTerm operator/(ExprTerm a, ExprTerm b) { return apply(S::div, a, b); }
ExprTerm operator+(ExprTerm a, double b) { return a + lift(a, b); }
ExprTerm operator*(ExprTerm a, double b) { return a * lift(a, b); }
ExprTerm operator/(ExprTerm a, double b) { return a / lift(a, b); }
ExprTerm operator-(ExprTerm a) { return apply(S::neg, a); }
ExprTerm pick(ExprTerm condition, ExprTerm yes, ExprTerm no) {
  return {yes.list, yes.list->op(S::where, {condition.id, yes.id, no.id})};
}
ExprTerm clamp(ExprTerm x, double lo, double hi) {
  return apply(S::minimum, apply(S::maximum, x, lift(x, lo)), lift(x, hi));
}

ExprTerm gelu(ExprTerm x, const Node& n) {
  if (n.attr_or<std::string>("approximate", "none") == "tanh") {
    ExprTerm inner = (x + x * x * x * 0.044715) * (M_SQRT2 * M_2_SQRTPI * 0.5);
    return x * 0.5 * (apply(S::tanh, inner) + 1);
  }
  return x * apply(S::ndtr, x);
}

ExprTerm softplus(ExprTerm x, double beta, double threshold) {
  ExprTerm scaled = beta == 1 ? x : x * beta;
  ExprTerm soft = apply(S::log1p, apply(S::exp, scaled));
  if (beta != 1) soft = soft / beta;
  return pick(apply(S::gt, scaled, lift(x, threshold)), x, soft);
}

ExprTerm elu(ExprTerm x, const Node& n) {
  double scale = number_attr(n, "scale", 1), input_scale = number_attr(n, "input_scale", 1);
  ExprTerm negative = input_scale == 1 ? x : x * input_scale;
  negative = apply(S::expm1, negative) * (number_attr(n, "alpha", 1) * scale);
  return pick(apply(S::le, x, lift(x, 0)), negative, scale == 1 ? x : x * scale);
}

std::optional<ExprTerm> activation(ExprTerm x, const Node& n) {
  switch (n.op) {
    case Op::relu: return apply(S::maximum, x, lift(x, 0));
    case Op::gelu: return gelu(x, n);
    case Op::silu: return x / (apply(S::exp, -x) + 1);
    case Op::mish: return x * apply(S::tanh, apply(S::log1p, apply(S::exp, x)));
    case Op::hardswish: return x * clamp(x + 3, 0, 6) / 6;
    case Op::hardsigmoid: return clamp(x + 3, 0, 6) / 6;
    case Op::hardtanh: return clamp(x, number_attr(n, "min", -1), number_attr(n, "max", 1));
    case Op::leaky_relu: return pick(apply(S::gt, x, lift(x, 0)), x, x * number_attr(n, "slope", 0.01));
    case Op::elu: return elu(x, n);
    case Op::softplus: return softplus(x, number_attr(n, "beta", 1), number_attr(n, "threshold", 20));
    case Op::log_sigmoid: {
      ExprTerm tail = apply(S::log1p, apply(S::exp, -apply(S::abs, x)));
      return apply(S::minimum, x, lift(x, 0)) - tail;
    }
    default: return std::nullopt;
  }
}

/// The powers that ATen computes without pow.
std::optional<ExprTerm> easy_power(ExprTerm x, const Expr& exponent) {
  if (exponent.kind != ExprKind::Const || !is_float(exponent.dtype)) return std::nullopt;
  if (exponent.value == 1) return x;
  if (exponent.value == 2) return x * x;
  if (exponent.value == 3) return x * x * x;
  if (exponent.value == 0.5) return apply(S::sqrt, x);
  if (exponent.value == -0.5) return apply(S::rsqrt, x);
  if (exponent.value == -1) return apply(S::reciprocal, x);
  if (exponent.value == -2) return apply(S::reciprocal, x * x);
  return std::nullopt;
}

}  // namespace

uint32_t ExprList::dims_of(const Expr& e) const {
  uint32_t mask = 0;
  if (e.kind == ExprKind::Acc) return space_.all();
  if (e.kind == ExprKind::Load || e.kind == ExprKind::Index) mask = space_.mask(e.index);
  each_operand(e, [&](ExprId a) { mask |= exprs_[a].dims; });
  return e.kind == ExprKind::Scan ? mask | e.reduce_dims : mask & ~e.reduce_dims;
}

ExprId ExprList::add(Expr e) {
  size_t h = hash_expr(e);
  auto [from, to] = known_.equal_range(h);
  for (auto it = from; it != to; ++it)
    if (same(exprs_[it->second], e)) return it->second;
  e.dims = dims_of(e);
  auto id = static_cast<ExprId>(exprs_.size());
  exprs_.push_back(std::move(e));
  known_.emplace(h, id);
  return id;
}

ExprId ExprList::op(ScalarOp op, std::vector<ExprId> args) {
  std::vector<DType> types;
  for (ExprId a : args) types.push_back(exprs_[a].dtype);
  Expr e{};
  e.kind = ExprKind::Op;
  e.op = op;
  e.dtype = op_result_dtype(op, types);
  e.args = std::move(args);
  return add(std::move(e));
}

ExprId ExprList::cast(DType to, ExprId x) {
  const Expr& from = exprs_[x];
  if (from.dtype == to) return x;
  if (from.kind == ExprKind::Const && to != DType::Bool && compute_type(to) == to) {
    if (is_float(from.dtype) && is_float(to))
      return real(to, to == DType::F32 ? static_cast<float>(from.value) : from.value);
    if (!is_float(from.dtype) && is_float(to)) {
      auto v = static_cast<double>(from.ivalue);
      return real(to, to == DType::F32 ? static_cast<float>(v) : v);
    }
  }
  Expr e{};
  e.kind = ExprKind::Cast;
  e.dtype = to;
  e.args = {x};
  return add(std::move(e));
}

ExprId ExprList::real(DType t, double v) {
  Expr e{};
  e.kind = ExprKind::Const;
  e.dtype = t;
  e.value = v;
  return add(std::move(e));
}

ExprId ExprList::integer(DType t, int64_t v) {
  Expr e{};
  e.kind = ExprKind::Const;
  e.dtype = t;
  e.ivalue = t == DType::Bool ? v != 0 : v;
  return add(std::move(e));
}

ExprId ExprList::index(Sym s) {
  if (s.is_const()) return integer(DType::I64, s.value());
  Expr e{};
  e.kind = ExprKind::Index;
  e.dtype = DType::I64;
  e.index = s;
  return add(std::move(e));
}

ExprId ExprList::land(ExprId a, ExprId b) {
  if (a == kNone) return b;
  if (b == kNone || a == b) return a;
  return op(ScalarOp::bitwise_and, {a, b});
}

ExprId expand_pointwise(ExprList& list, const Node& node, const std::vector<ExprId>& args) {
  if (node.op == Op::cast) {
    DType to = node.out()->type.dtype;
    return list.cast(compute_type(to), list.cast(to, args[0]));
  }
  ExprTerm x{&list, args[0]};
  if (node.op == Op::pow)
    if (auto easy = easy_power(x, list[args[1]])) return easy->id;
  if (const auto op = direct(node.op)) return list.op(*op, args);
  if (auto y = activation(x, node)) return y->id;
  throw_unsupported("no scalar form of ", graph::op_info(node.op).name);
}

}  // namespace bolt::loops

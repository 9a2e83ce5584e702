// loops/index_number.cpp
#include "loops/index_number.h"

namespace bolt::loops {
namespace {

using graph::Node;
using graph::Op;

/// So long a chain costs little more than an address has to; a longer one is computed once and read.
constexpr int kMostIndexOperations = 24;

/// The whole number that an attribute is.
std::optional<Sym> whole_attr(const Node& n, std::string_view name, Sym fallback) {
  auto it = n.attrs.find(name);
  if (it == n.attrs.end()) return fallback;
  if (std::holds_alternative<double>(it->second) || std::holds_alternative<bool>(it->second))
    return std::nullopt;
  return sym_attr(n, name);
}

/// Is what is left of it to divide never negative? A constant is brought above zero by the division itself,
/// so it is where all that is added to one is not negative. Addresses divide without a sign.
bool is_divided_upwards(Sym a) {
  int64_t constant = 0;
  for (const SymTerm& t : sum_terms(a, &constant))
    if (t.coef < 0 || lower_bound(t.term) < 0) return lower_bound(a) >= 0;
  return true;
}

std::optional<Sym> index_number(const graph::Value* v, const Index& at, int& left) {
  if (!v->def || v->type.dtype != DType::I64) return std::nullopt;
  const Node& n = *v->def;
  if (graph::op_info(n.op).kind == graph::OpKind::View)
    return index_number(n.operands[0], view_up(n, at), left);
  if (n.op == Op::scalar || n.op == Op::full) return whole_attr(n, "value", 0);
  if (n.op == Op::iota) {
    const auto start = whole_attr(n, "start", 0), step = whole_attr(n, "step", 1);
    if (!start || !step) return std::nullopt;
    return *start + at[0] * *step;
  }
  auto operand = [&](size_t i) {
    return index_number(n.operands[i], broadcast_up(n.operands[i]->type, at), left);
  };
  const bool binary = n.op == Op::add || n.op == Op::sub || n.op == Op::mul || n.op == Op::minimum ||
                      n.op == Op::maximum || n.op == Op::floor_div || n.op == Op::remainder;
  if ((!binary && n.op != Op::neg) || --left < 0) return std::nullopt;
  const auto a = operand(0), b = binary ? operand(1) : a;
  if (!a || !b) return std::nullopt;
  switch (n.op) {
    case Op::neg: return *a * Sym(-1);
    case Op::add: return *a + *b;
    case Op::sub: return *a - *b;
    case Op::minimum: return min(*a, *b);
    case Op::maximum: return max(*a, *b);
    case Op::mul: return a->is_const() || b->is_const() ? std::optional(*a * *b) : std::nullopt;
    default: break;
  }
  if (!b->is_const() || b->value() <= 0 || !is_divided_upwards(*a)) return std::nullopt;
  return n.op == Op::floor_div ? floordiv(*a, *b) : mod(*a, *b);
}

}  // namespace

std::optional<Sym> index_number(const graph::Value* v, const Index& at) {
  int left = kMostIndexOperations;
  return index_number(v, at, left);
}

}  // namespace bolt::loops

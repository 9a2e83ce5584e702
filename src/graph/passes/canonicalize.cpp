// graph/passes/canonicalize.cpp
// Algebra on single nodes, as one table of rules: operation -> functions that give a simpler value or
// nothing.
//
// A rule must be exact: it may change neither a rounding nor the sign of a zero nor what happens to NaN. (So
// x + 0.0 stays, -0.0 + 0.0 being 0.0; x - 0.0 goes.) It looks at the node and the makers of its operands
// only, and what it makes is not visited again in the same walk; walks repeat until nothing changes, a few
// times at most.
#include <algorithm>
#include <cmath>
#include <utility>

#include "graph/op_rules.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace bolt::graph {
namespace {

using Sizes = Syms;
constexpr int kMaxWalks = 4;

Value* operand_of(const Value* v) { return v->def->operands[0]; }
bool same_shape(const Value* a, const Node* n) {
  return a->type.sizes == n->out()->type.sizes && a->type.dtype == n->out()->type.dtype;
}

// ---- casts ----

// Every value of `from` is a value of `to`.
bool exact(DType from, DType to) {
  if (from == to || from == DType::Bool) return true;
  int a = dtype_bytes(from), b = dtype_bytes(to);
  if (is_opaque(from) || is_opaque(to) || to == DType::Bool) return false;
  if (is_float(from)) return is_float(to) && b > a;
  if (is_float(to))
    return (a == 1 && b >= 2 && to != DType::BF16) || (a == 2 && b >= 4) || (a == 4 && b == 8);
  return b > a && (is_signed_int(to) || !is_signed_int(from));
}

// cast to what it is; cast(cast(x)) where the inner one loses nothing
Value* cast(const Maker& m, Node* n) {
  Value* x = n->operands[0];
  DType to = n->attr<DType>("dtype");
  if (x->type.dtype == to) return x;
  if (!is_op(x, Op::cast)) return nullptr;
  Value* origin = operand_of(x);
  if (!exact(origin->type.dtype, x->type.dtype)) return nullptr;
  return m.cast(origin, to);
}

// ---- arithmetic ----

bool is_number(const Value* v, double x) {
  std::optional<double> s = scalar_of(v);
  return s && *s == x && std::signbit(*s) == std::signbit(x);
}

// x * 1, 1 * x
Value* mul(const Maker&, Node* n) {
  for (int side = 0; side < 2; ++side)
    if (is_number(n->operands[1 - side], 1) && same_shape(n->operands[side], n)) return n->operands[side];
  return nullptr;
}

// x + 0 on integers
Value* add(const Maker&, Node* n) {
  if (is_float(n->out()->type.dtype)) return nullptr;
  for (int side = 0; side < 2; ++side)
    if (is_number(n->operands[1 - side], 0) && same_shape(n->operands[side], n)) return n->operands[side];
  return nullptr;
}

// x - 0
Value* sub(const Maker&, Node* n) {
  return is_number(n->operands[1], 0) && same_shape(n->operands[0], n) ? n->operands[0] : nullptr;
}

// x / 1; x / 2^k -> x * 2^-k
Value* div(const Maker& m, Node* n) {
  if (is_number(n->operands[1], 1) && same_shape(n->operands[0], n)) return n->operands[0];
  std::optional<double> by = scalar_of(n->operands[1]);
  int exponent = 0;
  if (!by || !is_float(n->out()->type.dtype) || std::fabs(std::frexp(*by, &exponent)) != 0.5) return nullptr;
  if (std::abs(exponent) > 12) return nullptr;  // far from where a reciprocal could overflow, in f16 too
  return m.mul(n->operands[0], m.scalar(n->out()->type.dtype, 1 / *by));
}

// x^1, x^2, x^3, x^0.5: as ATen computes them
Value* pow(const Maker& m, Node* n) {
  Value* x = n->operands[0];
  std::optional<double> e = scalar_of(n->operands[1]);
  if (!e || !same_shape(x, n)) return nullptr;
  if (*e == 1) return x;
  if (*e == 2) return m.mul(x, x);
  if (*e == 3 && !is_half(x->type.dtype)) return m.mul(m.mul(x, x), x);  // a square of halves is rounded
  if (*e == 0.5 && is_float(x->type.dtype)) return m.make(Op::sqrt, {x});
  return nullptr;
}

// -(-x), !(!x), ~(~x)
Value* involution(const Maker&, Node* n) {
  Value* x = n->operands[0];
  return is_op(x, n->op) && same_shape(operand_of(x), n) ? operand_of(x) : nullptr;
}

// relu(relu(x)), abs(abs(x)), floor(floor(x)), ...
Value* idempotent(const Maker&, Node* n) { return is_op(n->operands[0], n->op) ? n->operands[0] : nullptr; }

// ---- views ----

Value* reshape(const Maker& m, Node* n) {
  Value* x = n->operands[0];
  if (x->type.sizes == n->out()->type.sizes) return x;
  return is_op(x, Op::reshape) ? m.reshape(operand_of(x), n->out()->type.sizes) : nullptr;
}

Value* permute(const Maker& m, Node* n) {
  Value* x = n->operands[0];
  Sizes dims = n->attr<Sizes>("dims");
  bool inner = is_op(x, Op::permute);
  if (inner)
    for (Sym& d : dims) d = x->def->attr<Sizes>("dims")[d.value()];
  bool identity = true;
  for (size_t i = 0; i < dims.size(); ++i) identity &= dims[i].is_const(static_cast<int64_t>(i));
  if (identity) return inner ? operand_of(x) : x;
  return inner ? m.make(Op::permute, {operand_of(x)}, {{"dims", dims}}) : nullptr;
}

// What is made of nothing is not kept: it is made wherever it is read.
Value* keep(const Maker&, Node* n) {
  const Value* made = n->operands[0];
  while (made->def && op_info(made->def->op).kind == OpKind::View) made = made->def->operands[0];
  return made->def && op_info(made->def->op).kind == OpKind::Create ? n->operands[0] : nullptr;
}

Value* expand(const Maker& m, Node* n) {
  Value* x = n->operands[0];
  if (x->type.sizes == n->out()->type.sizes) return x;
  return is_op(x, Op::expand) ? m.make(Op::expand, {operand_of(x)}, {{"sizes", n->out()->type.sizes}})
                              : nullptr;
}

// A slice of one piece of a cat is a slice of that piece.
Value* slice_of_cat(const Maker& m, Node* n) {
  const Node* cat = n->operands[0]->def;
  int64_t dim = n->attr<int64_t>("dim");
  Sym start = n->sym("start"), length = n->sym("length");
  if (cat->attr<int64_t>("dim") != dim || !start.is_const() || !length.is_const() || length.is_const(0))
    return nullptr;
  int64_t first = start.value(), last = first + (length.value() - 1) * n->attr<int64_t>("step"), begin = 0;
  for (Value* piece : cat->operands) {
    Sym size = piece->type.sizes[dim];
    if (!size.is_const()) return nullptr;
    int64_t end = begin + size.value();
    if (first >= begin && last < end) {
      Attrs attrs = n->attrs;
      attrs["start"] = Sizes{first - begin};
      return m.make(Op::slice, {piece}, attrs);
    }
    begin = end;
  }
  return nullptr;
}

Value* slice(const Maker& m, Node* n) {
  Value* x = n->operands[0];
  int64_t dim = n->attr<int64_t>("dim"), step = n->attr<int64_t>("step");
  if (step == 1 && n->sym("start").is_const(0) && x->type.sizes == n->out()->type.sizes) return x;
  if (is_op(x, Op::cat)) return slice_of_cat(m, n);
  if (!is_op(x, Op::slice) || x->def->attr<int64_t>("dim") != dim) return nullptr;
  int64_t inner = x->def->attr<int64_t>("step");
  Attrs attrs = n->attrs;
  attrs["start"] = Sizes{x->def->sym("start") + n->sym("start") * Sym(inner)};
  attrs["step"] = inner * step;
  return m.make(Op::slice, {operand_of(x)}, attrs);
}

Value* cat(const Maker&, Node* n) { return n->operands.size() == 1 ? n->operands[0] : nullptr; }

bool all_zero(const Sizes& xs) {
  return std::all_of(xs.begin(), xs.end(), [](Sym x) { return x.is_const(0); });
}
bool all_natural(const Sizes& xs) {
  return std::all_of(xs.begin(), xs.end(), [](Sym x) { return x.is_const() && x.value() >= 0; });
}

// pad by nothing
Value* pad(const Maker&, Node* n) {
  return all_zero(n->attr<Sizes>("low")) && all_zero(n->attr<Sizes>("high")) ? n->operands[0] : nullptr;
}

bool fills_with_zero(const Node* pad) {
  const Attr& fill = pad->attrs.find("value")->second;
  if (const double* real = std::get_if<double>(&fill)) return *real == 0;
  const int64_t* whole = std::get_if<int64_t>(&fill);
  return whole && *whole == 0;
}

// conv(pad(x, zeros)) -> conv(x) with more padding, which may differ in front and behind
Value* conv(const Maker& m, Node* n) {
  Value* x = n->operands[0];
  if (!is_op(x, Op::pad) || !fills_with_zero(x->def) || n->attr<bool>("transposed")) return nullptr;
  const Sizes &low = x->def->attr<Sizes>("low"), &high = x->def->attr<Sizes>("high");
  if (!all_natural(low) || !all_natural(high)) return nullptr;
  // Only pixels: more images or channels are no padding.
  if (!all_zero({low[0], low[1], high[0], high[1]})) return nullptr;
  Sizes front = n->attr<Sizes>("padding"), behind = n->attr_or<Sizes>("padding_end", front);
  for (size_t d = 0; d < front.size(); ++d) front[d] += low[d + 2], behind[d] += high[d + 2];
  Attrs attrs = n->attrs;
  attrs["padding"] = front;
  attrs.erase("padding_end");
  if (behind != front) attrs["padding_end"] = behind;
  std::vector<Value*> operands = n->operands;
  operands[0] = operand_of(x);
  Value* v = m.make(Op::conv, operands, attrs);
  v->type.strides = n->out()->type.strides;
  return v;
}

// A reduction over dimensions of size one.
Value* reduce(const Maker& m, Node* n) {
  Value* x = n->operands[0];
  for (Sym d : n->attr<Sizes>("dims"))
    if (!x->type.sizes[d.value()].is_const(1)) return nullptr;
  return x->type.dtype == n->out()->type.dtype ? m.reshape(x, n->out()->type.sizes) : nullptr;
}

// A running result of one element. A sum begins with 0, so it is never -0.
Value* scan(const Maker& m, Node* n) {
  Value* x = n->operands[0];
  const auto dim = static_cast<size_t>(n->attr<int64_t>("dim"));
  if (!x->type.sizes[dim].is_const(1) || x->type.dtype != n->out()->type.dtype) return nullptr;
  return n->attr<std::string>("op") == "sum" ? m.add(x, m.scalar(x->type.dtype, 0)) : x;
}

// Pointwise operations broadcast by themselves: an operand need not be expanded first. What is one number
// everywhere is computed once, and that is expanded.
Value* without_expand(const Maker& m, Node* n) {
  auto sizes_of = [](const std::vector<Value*>& values) {
    Sizes sizes;
    for (const Value* v : values) sizes = broadcast(sizes, v->type.sizes);
    return sizes;
  };
  std::vector<Value*> operands = n->operands;
  for (Value*& v : operands)
    if (is_op(v, Op::expand)) v = operand_of(v);
  const Sizes& whole = n->out()->type.sizes;
  if (operands == n->operands) return nullptr;
  if (std::ranges::all_of(operands, [](const Value* v) { return v->type.numel().is_const(1); }) &&
      sizes_of(operands) != whole)
    return lying_as(m.make(Op::expand, {m.make(n->op, operands, n->attrs)}, {{"sizes", whole}}), n->out());
  operands = n->operands;
  for (Value*& v : operands) {
    if (!is_op(v, Op::expand)) continue;
    Value* expanded = std::exchange(v, operand_of(v));
    if (sizes_of(operands) != whole) v = expanded;
  }
  return operands == n->operands ? nullptr : m.make(n->op, operands, n->attrs);
}

/// Is each element its own index along `dim`?
bool counts_along(const Value* v, int64_t dim) {
  const Type& t = v->type;
  for (int d = 0; d < t.rank(); ++d)
    if (d != dim && !t.sizes[d].is_const(1)) return false;
  while (is_op(v, Op::reshape) || is_op(v, Op::expand)) v = operand_of(v);
  if (!is_op(v, Op::iota) || is_float(v->type.dtype)) return false;
  const Attrs& attrs = v->def->attrs;
  auto is = [&](const char* name, int64_t wanted) {
    const auto at = attrs.find(name);
    return at == attrs.end() ||
           (std::holds_alternative<int64_t>(at->second) && std::get<int64_t>(at->second) == wanted);
  };
  return is("start", 0) && is("step", 1) && v->type.sizes[0] == t.sizes[dim];
}

// sum(where(positions == place, x, 0)) is x if there is such a place: what is left of a gradient of
// log_softmax where each row has one label
Value* sum(const Maker& m, Node* n) {
  const std::vector<int64_t> dims = n->ints("dims");
  const Value* chosen = n->operands[0];
  if (dims.size() != 1 || !is_op(chosen, Op::where) || n->out()->type.dtype != chosen->type.dtype)
    return reduce(m, n);
  const auto& [is_there, x, none] =
      std::tie(chosen->def->operands[0], chosen->def->operands[1], chosen->def->operands[2]);
  if (!is_op(is_there, Op::eq) || !is_number(none, 0)) return reduce(m, n);
  const size_t dim = static_cast<size_t>(dims[0]);
  auto same_all_along = [&](const Value* v) {
    return v->type.rank() == chosen->type.rank() && v->type.sizes[dim].is_const(1);
  };
  for (int side = 0; side < 2; ++side) {
    Value *positions = is_there->def->operands[side], *place = is_there->def->operands[1 - side];
    if (positions->type.rank() != chosen->type.rank() || !counts_along(positions, dims[0]) ||
        !same_all_along(place) || !same_all_along(x))
      continue;
    const DType t = place->type.dtype;
    if (is_float(t)) continue;
    Value* inside = m.make(Op::bitwise_and, {m.make(Op::ge, {place, m.scalar(t, 0)}),
                                             m.make(Op::lt, {place, m.size(t, chosen->type.sizes[dim])})});
    Value* kept = m.add(m.make(Op::where, {inside, x, none}), none);  // a sum with zeros is never -0
    return kept->type.sizes == n->out()->type.sizes ? kept : m.reshape(kept, n->out()->type.sizes);
  }
  return reduce(m, n);
}

/// The operand in which alone elements along `dim` differ, and which has all other sizes of the result.
std::optional<size_t> only_differing(const Node* n, size_t dim) {
  const Sizes& sizes = n->out()->type.sizes;
  std::optional<size_t> found;
  for (size_t i = 0; i < n->operands.size(); ++i) {
    const Sizes& of = n->operands[i]->type.sizes;
    const size_t missing = sizes.size() - of.size();
    if (dim < missing || (of[dim - missing].is_const(1) && !sizes[dim].is_const(1))) continue;
    if (found || of != sizes) return std::nullopt;
    found = i;
  }
  return found;
}

// gather(f(x, row), i) -> f(gather(x, i), row): of one element a row nothing is computed for all the others
Value* gather(const Maker& m, Node* n) {
  Value *x = n->operands[0], *index = n->operands[1];
  const auto dim = static_cast<size_t>(n->attr<int64_t>("dim"));
  Sizes one_each = x->type.sizes;
  one_each[dim] = 1;
  if (index->type.sizes != one_each) return nullptr;
  std::vector<std::pair<Node*, size_t>> links;
  while (x->def && op_info(x->def->op).kind == OpKind::Pointwise) {
    const std::optional<size_t> next = only_differing(x->def, dim);
    if (!next) break;
    links.emplace_back(x->def, *next);
    x = x->def->operands[*next];
  }
  if (links.empty()) return nullptr;
  Value* v = m.make(Op::gather, {x, index}, n->attrs);
  for (auto link = links.rbegin(); link != links.rend(); ++link) {
    std::vector<Value*> operands = link->first->operands;
    operands[link->second] = v;
    v = m.make(link->first->op, operands, link->first->attrs);
  }
  return v;
}

using Rule = Value* (*)(const Maker&, Node*);
struct Rewrite {
  Op op;
  Rule rule;
};
constexpr Rewrite kRewrites[] = {
    {Op::cast, cast},
    {Op::mul, mul},
    {Op::add, add},
    {Op::sub, sub},
    {Op::div, div},
    {Op::pow, pow},
    {Op::neg, involution},
    {Op::bitwise_not, involution},
    {Op::logical_not, involution},
    {Op::relu, idempotent},
    {Op::abs, idempotent},
    {Op::floor, idempotent},
    {Op::ceil, idempotent},
    {Op::trunc, idempotent},
    {Op::round, idempotent},
    {Op::sign, idempotent},
    {Op::reshape, reshape},
    {Op::permute, permute},
    {Op::expand, expand},
    {Op::slice, slice},
    {Op::keep, keep},
    {Op::cat, cat},
    {Op::pad, pad},
    {Op::conv, conv},
    {Op::sum, sum},
    {Op::prod, reduce},
    {Op::amax, reduce},
    {Op::amin, reduce},
    {Op::scan, scan},
    {Op::gather, gather},
};

Value* simplified(Graph& g, Node* n) {
  Maker m(g, n);
  for (const Rewrite& row : kRewrites)
    if (row.op == n->op)
      if (Value* v = row.rule(m, n)) return v;
  if (op_info(n->op).kind == OpKind::Pointwise) return without_expand(m, n);
  return nullptr;
}

}  // namespace

bool canonicalize(Graph& g) {
  bool changed = false;
  for (int walk = 0; walk < kMaxWalks; ++walk) {
    if (!rewrite(g, [&](Node* n) { return simplified(g, n); })) break;
    changed = true;
  }
  return changed;
}

}  // namespace bolt::graph

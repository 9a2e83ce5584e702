// graph/passes/fold_masks.cpp
// sdpa(q, k, v, mask) -> sdpa(q, k, v), where the mask hides nothing, or hides just what lies ahead (causal)
//
// Libraries build masks of nothing but positions (`k_index <= q_index`, `q_index >= 0`) when they believe to
// be compiled, which eager never has, and any mask sends attention to slower kernels. Two facts are derived
// about values, through views:
//
//   Affine   an integer value is c + a0*i0 + a1*i1 + ..., i the element's own indices (positions are)
//   Truth    a b8 value is true everywhere, false everywhere, or true where an Affine is at least 0
//
// A mask that is added is looked at as where(keep, 0, low). Everything else is unknown and stays as it is.
// The positions of a causal mask start at the same number; sizes may be symbols.
//
// Without a mask another kernel of the library runs. Where that lays heads beside each other, as the queries
// of a model lie, the node's type says so, or its result would be copied.
#include <algorithm>

#include "graph/device_facts.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace bolt::graph {
namespace {

constexpr double kHidesWholly = -65504;  // f16's lowest: no score shows beside it

struct Affine {
  int64_t constant = 0;
  std::vector<int64_t> factors;  // by dimension of the value
};
using MaybeAffine = std::optional<Affine>;

struct Truth {
  enum class Kind : uint8_t { Unknown, True, False, AtLeastZero } kind = Kind::Unknown;
  Affine affine = {};  // AtLeastZero
};

/// The operand's indices as the result's: what its dimension d is there; -1: it is gone, being of size 1.
std::optional<std::vector<int>> places_in_reshape(const Type& from, const Type& to) {
  std::vector<int> places;
  int at = 0;
  for (const Sym& size : from.sizes) {
    if (size.is_const(1)) {
      places.push_back(-1);
      continue;
    }
    while (at < to.rank() && to.sizes[at].is_const(1)) ++at;
    if (at == to.rank() || to.sizes[at] != size) return std::nullopt;
    places.push_back(at++);
  }
  while (at < to.rank() && to.sizes[at].is_const(1)) ++at;
  return at == to.rank() ? std::optional(places) : std::nullopt;
}

/// What the view shows of an Affine value.
MaybeAffine through(const Node& view, const Affine& x) {
  const Type &from = view.operands[0]->type, &to = view.out()->type;
  Affine out{x.constant, std::vector<int64_t>(static_cast<size_t>(to.rank()))};
  auto put = [&](int d, int place) {
    if (place >= 0) out.factors[place] = x.factors[d];
  };
  switch (view.op) {
    case Op::reshape: {
      const auto places = places_in_reshape(from, to);
      if (!places) return std::nullopt;
      for (int d = 0; d < from.rank(); ++d) put(d, (*places)[d]);
      return out;
    }
    case Op::expand:
      for (int d = 0; d < from.rank(); ++d)
        put(d, from.sizes[d].is_const(1) ? -1 : d + to.rank() - from.rank());
      return out;
    case Op::permute: {
      const std::vector<int64_t> dims = view.ints("dims");
      for (int d = 0; d < to.rank(); ++d) put(static_cast<int>(dims[d]), d);
      return out;
    }
    case Op::slice: {
      const Sym start = view.sym("start");
      if (!start.is_const()) return std::nullopt;
      const auto dim = static_cast<size_t>(view.attr<int64_t>("dim"));
      out.factors = x.factors;
      out.constant += start.value() * out.factors[dim];
      out.factors[dim] *= view.attr<int64_t>("step");
      return out;
    }
    default: return std::nullopt;
  }
}

/// a + by*b, as broadcasting aligns them.
Affine sum(const Affine& a, const Affine& b, int64_t by) {
  Affine out{a.constant + by * b.constant, {}};
  out.factors.resize(std::max(a.factors.size(), b.factors.size()));
  for (size_t i = 1; i <= out.factors.size(); ++i) {
    int64_t& f = out.factors[out.factors.size() - i];
    if (i <= a.factors.size()) f += a.factors[a.factors.size() - i];
    if (i <= b.factors.size()) f += by * b.factors[b.factors.size() - i];
  }
  return out;
}

std::optional<int64_t> whole(const Node& n, const char* name) {
  const Attr& a = n.attrs.find(name)->second;
  if (const auto* i = std::get_if<int64_t>(&a)) return *i;
  return std::nullopt;
}

class PositionFacts {
 public:
  MaybeAffine affine(const Value* v) {
    // Narrower integers wrap where positions still count.
    if (!v->def || !is_int(v->type.dtype) || dtype_bytes(v->type.dtype) < 4) return std::nullopt;
    const Node& n = *v->def;
    const auto rank = static_cast<size_t>(v->type.rank());
    if (op_info(n.op).kind == OpKind::View) {
      const MaybeAffine x = affine(n.operands[0]);
      return x ? through(n, *x) : std::nullopt;
    }
    switch (n.op) {
      case Op::scalar:
      case Op::full: {
        const auto value = whole(n, "value");
        return value ? MaybeAffine({*value, std::vector<int64_t>(rank)}) : std::nullopt;
      }
      case Op::iota: {
        const auto start = whole(n, "start"), step = whole(n, "step");
        return start && step ? MaybeAffine({*start, {*step}}) : std::nullopt;
      }
      case Op::cast: return affine(n.operands[0]);
      case Op::add:
      case Op::sub: {
        const MaybeAffine a = affine(n.operands[0]), b = affine(n.operands[1]);
        if (!a || !b) return std::nullopt;
        return sum(*a, *b, n.op == Op::add ? 1 : -1);
      }
      default: return std::nullopt;
    }
  }

  Truth truth(const Value* v) {
    if (!v->def || v->type.dtype != DType::Bool) return {};
    const Node& n = *v->def;
    if (op_info(n.op).kind == OpKind::View) return truth_of_view(n);
    switch (n.op) {
      case Op::scalar:
      case Op::full:
        if (const auto value = whole(n, "value")) return constant(*value != 0);
        return {};
      case Op::ge: return compared(n.operands[0], n.operands[1], 0, v->type);
      case Op::gt: return compared(n.operands[0], n.operands[1], -1, v->type);
      case Op::le: return compared(n.operands[1], n.operands[0], 0, v->type);
      case Op::lt: return compared(n.operands[1], n.operands[0], -1, v->type);
      case Op::bitwise_and: return joined(n, Truth::Kind::True, Truth::Kind::False);
      case Op::bitwise_or: return joined(n, Truth::Kind::False, Truth::Kind::True);
      case Op::cast: return truth(n.operands[0]);  // a copy
      case Op::logical_not: return negated(truth(n.operands[0]));
      default: return {};
    }
  }

  /// Of a mask: what it keeps, whether it is chosen or added.
  Truth keeps(const Value* mask) {
    if (mask->type.dtype == DType::Bool) return truth(mask);
    if (!mask->def) return {};
    const Node& n = *mask->def;
    if (n.op == Op::cast)  // truth values made numbers are added, and hide nothing
      return is_float(n.operands[0]->type.dtype) ? keeps(n.operands[0]) : Truth{};
    if (op_info(n.op).kind == OpKind::View) {
      const Truth t = keeps(n.operands[0]);
      return seen_through(n, t);
    }
    if (n.op != Op::where) return {};
    const auto kept = number(n.operands[1]), hidden = number(n.operands[2]);
    if (!kept || !hidden || *kept != 0 || *hidden > kHidesWholly) return {};
    return aligned(truth(n.operands[0]), mask->type.rank());
  }

 private:
  static Truth constant(bool value) { return {value ? Truth::Kind::True : Truth::Kind::False}; }

  /// The one number that a value is everywhere.
  static std::optional<double> number(const Value* v) {
    while (v->def && (op_info(v->def->op).kind == OpKind::View || v->def->op == Op::cast))
      v = v->def->operands[0];
    if (!v->def || (v->def->op != Op::scalar && v->def->op != Op::full)) return std::nullopt;
    const Attr& a = v->def->attrs.find("value")->second;
    if (const auto* d = std::get_if<double>(&a)) return *d;
    if (const auto* i = std::get_if<int64_t>(&a)) return static_cast<double>(*i);
    return std::nullopt;
  }

  static Truth aligned(Truth t, int rank) {
    auto& f = t.affine.factors;
    if (t.kind == Truth::Kind::AtLeastZero) f.insert(f.begin(), static_cast<size_t>(rank) - f.size(), 0);
    return t;
  }
  static Truth seen_through(const Node& view, const Truth& t) {
    if (t.kind != Truth::Kind::AtLeastZero) return t;
    const MaybeAffine x = through(view, t.affine);
    return x ? Truth{Truth::Kind::AtLeastZero, *x} : Truth{};
  }
  Truth truth_of_view(const Node& n) { return seen_through(n, truth(n.operands[0])); }

  /// a - b + more >= 0?
  Truth compared(const Value* a, const Value* b, int64_t more, const Type& result) {
    const MaybeAffine x = affine(a), y = affine(b);
    if (!x || !y) return {};
    Affine d = sum(*x, *y, -1);
    d.constant += more;
    Sym least = d.constant, most = d.constant;
    for (size_t i = 0; i < d.factors.size(); ++i) {
      const Sym far = (result.sizes[i] - Sym(1)) * Sym(d.factors[i]);
      (d.factors[i] < 0 ? least : most) += far;
    }
    if (least.is_const() && least.value() >= 0) return constant(true);
    if (most.is_const() && most.value() < 0) return constant(false);
    return {Truth::Kind::AtLeastZero, std::move(d)};
  }

  /// `neutral` leaves the other as it is, `decides` is the result whatever the other is.
  Truth joined(const Node& n, Truth::Kind neutral, Truth::Kind decides) {
    const int rank = n.out()->type.rank();
    const Truth a = truth(n.operands[0]), b = truth(n.operands[1]);
    if (a.kind == decides || b.kind == decides) return {decides};
    if (a.kind == neutral) return aligned(b, rank);
    if (b.kind == neutral) return aligned(a, rank);
    return {};
  }

  static Truth negated(Truth t) {
    switch (t.kind) {
      case Truth::Kind::Unknown: return t;
      case Truth::Kind::True: return constant(false);
      case Truth::Kind::False: return constant(true);
      case Truth::Kind::AtLeastZero: break;
    }
    t.affine.constant = -t.affine.constant - 1;
    for (int64_t& f : t.affine.factors) f = -f;
    return t;
  }
};

/// True where the key's position is at most the query's.
bool is_causal(const Truth& t) {
  const auto& f = t.affine.factors;
  if (t.kind != Truth::Kind::AtLeastZero || f.size() < 2) return false;
  const int64_t query = f[f.size() - 2], key = f[f.size() - 1];
  return query > 0 && key == -query && t.affine.constant >= 0 && t.affine.constant < query &&
         std::all_of(f.begin(), f.end() - 2, [](int64_t other) { return other == 0; });
}

}  // namespace

MaskHides what_mask_hides(const Value* mask) {
  PositionFacts facts;
  const Truth keeps = facts.keeps(mask);
  if (keeps.kind == Truth::Kind::True) return MaskHides::Nothing;
  return is_causal(keeps) ? MaskHides::WhatLiesAhead : MaskHides::Something;
}

bool fold_masks(Graph& g) {
  auto type_of = [](const Type& masked) {
    Type t = masked;
    if (facts_of(t.device).lays_heads_beside && t.rank() == 4)
      t.strides = strides_in_order(t.sizes, {0, 2, 1, 3});
    return t;
  };
  return rewrite(g, [&](Node* n) -> Value* {
    if (n->op != Op::sdpa || n->operands.size() != 4 || n->attr<bool>("causal")) return nullptr;
    const MaskHides hides = what_mask_hides(n->operands[3]);
    if (hides == MaskHides::Something) return nullptr;
    Attrs attrs = n->attrs;
    attrs["causal"] = hides == MaskHides::WhatLiesAhead;
    return g
        .make_typed(Op::sdpa, {n->operands[0], n->operands[1], n->operands[2]}, std::move(attrs),
                    {type_of(n->out()->type)}, n->loc, n)
        ->out();
  });
}

}  // namespace bolt::graph

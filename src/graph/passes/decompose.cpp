// graph/passes/decompose.cpp
// Composites -> pointwise operations and reductions, which loops/ fuses into one kernel each.
//
// bf16 and f16 are computed in f32 from the first cast to the last, as ATen does. Accuracy is ATen's or
// better: the maximum is subtracted before exp, variances come from the differences from the mean (never
// E[x^2] - E[x]^2). Average and maximum pools stay whole, but for adaptive pools whose windows are equal and
// do not overlap.
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace bolt::graph {
namespace {

using Sizes = Syms;

/// One composite being taken apart: x in its compute type, the result rounded back at the end.
struct Composite {
  Maker m;
  Node* node;
  DType type;
  Value* x;

  Composite(Graph& g, Node* n)
      : m(g, n), node(n), type(compute_type(n->out()->type.dtype)), x(m.cast(n->operands[0], type)) {}

  const Sizes& sizes() const { return node->operands[0]->type.sizes; }
  int rank() const { return static_cast<int>(sizes().size()); }
  Value* operand(size_t i) const { return m.cast(node->operands[i], type); }
  Value* eps() const { return m.scalar(type, node->attr<double>("eps")); }
  Value* done(Value* v) const { return m.cast(v, node->out()->type.dtype); }

  Sizes dims_from(int first) const {
    Sizes dims;
    for (int d = first; d < rank(); ++d) dims.push_back(d);
    return dims;
  }
  /// How many elements a reduction over dims adds up, as a number of the graph.
  Value* count(const Value* v, const Sizes& dims) const {
    Sym n = 1;
    for (Sym d : dims) n *= v->type.sizes[d.value()];
    return m.size(type, n);
  }
  Value* mean(Value* v, const Sizes& dims, bool keepdim) const {
    return m.div(m.reduce(Op::sum, v, dims, keepdim), count(v, dims));
  }
};

Value* softmax(Composite& s) {
  Sizes dim{s.node->attr<int64_t>("dim")};
  Value* shifted = s.m.sub(s.x, s.m.reduce(Op::amax, s.x, dim, true));
  Value* e = s.m.make(Op::exp, {shifted});
  Value* total = s.m.reduce(Op::sum, e, dim, true);
  if (s.node->op == Op::softmax) return s.m.div(e, total);
  return s.m.sub(shifted, s.m.make(Op::log, {total}));
}

// An infinite maximum is not subtracted: inf - inf would be NaN.
Value* logsumexp(Composite& s) {
  const Sizes& dims = s.node->attr<Sizes>("dims");
  bool keepdim = s.node->attr<bool>("keepdim");
  Value* top = s.m.reduce(Op::amax, s.x, dims, true);
  Value* safe = s.m.make(Op::where, {s.m.make(Op::isinf, {top}), s.m.scalar(s.type, 0), top});
  Value* sum = s.m.reduce(Op::sum, s.m.make(Op::exp, {s.m.sub(s.x, safe)}), dims, keepdim);
  return s.m.add(s.m.make(Op::log, {sum}), s.m.reshape(safe, sum->type.sizes));
}

Value* var(Composite& s) {
  const Sizes& dims = s.node->attr<Sizes>("dims");
  Value* centred = s.m.sub(s.x, s.mean(s.x, dims, true));
  Value* squares = s.m.reduce(Op::sum, s.m.mul(centred, centred), dims, s.node->attr<bool>("keepdim"));
  Value* freedom = s.m.sub(s.count(s.x, dims), s.m.scalar(s.type, s.node->attr<double>("correction")));
  return s.m.div(squares, s.m.make(Op::maximum, {freedom, s.m.scalar(s.type, 0)}));
}

/// v * weight + bias with the operands from `first` on, each brought to `sizes`.
Value* affine(Composite& s, Value* v, size_t first, const Sizes& sizes) {
  auto shaped = [&](size_t i) { return s.m.reshape(s.operand(i), sizes); };
  if (s.node->attr<bool>("has_weight")) v = s.m.mul(v, shaped(first++));
  if (s.node->attr<bool>("has_bias")) v = s.m.add(v, shaped(first));
  return v;
}

Value* deviation_reciprocal(Composite& s, Value* centred, const Sizes& dims) {
  return s.m.make(Op::rsqrt, {s.m.add(s.mean(s.m.mul(centred, centred), dims, true), s.eps())});
}

Value* normalized(Composite& s, Value* x, const Sizes& dims, bool centre) {
  if (centre) x = s.m.sub(x, s.mean(x, dims, true));
  return s.m.mul(x, deviation_reciprocal(s, x, dims));
}

Value* layer_norm(Composite& s) {
  int first = s.rank() - static_cast<int>(s.node->attr<int64_t>("normalized_rank"));
  Sizes shape(s.sizes().begin() + first, s.sizes().end());
  return affine(s, normalized(s, s.x, s.dims_from(first), true), 1, shape);
}

Value* rms_norm(Composite& s) {
  int first = s.rank() - static_cast<int>(s.node->attr<int64_t>("normalized_rank"));
  Value* v = normalized(s, s.x, s.dims_from(first), false);
  return s.node->operands.size() > 1 ? s.m.mul(v, s.operand(1)) : v;
}

/// [C] against [N, C, ...]: [C, 1, ...].
Sizes per_channel(const Composite& s) {
  Sizes shape(static_cast<size_t>(s.rank()) - 1, Sym(1));
  shape[0] = s.sizes()[1];
  return shape;
}

Value* group_norm(Composite& s) {
  Sym groups = s.node->attr<int64_t>("groups");
  Sizes split = s.sizes();
  split[1] = floordiv(split[1], groups);
  split.insert(split.begin() + 1, groups);
  Sizes dims;
  for (size_t d = 2; d < split.size(); ++d) dims.push_back(static_cast<int64_t>(d));
  // The differences are written in both ways: where several kernels compute this, each makes its own, and
  // none are stored.
  Value *x = s.m.reshape(s.x, split), *mean = s.mean(x, dims, true);
  Value* minus = s.m.make(Op::neg, {deviation_reciprocal(s, s.m.sub(x, mean), dims)});
  return affine(s, s.m.reshape(s.m.mul(s.m.sub(mean, x), minus), s.sizes()), 1, per_channel(s));
}

// As ATen: one multiplication and one addition per element.
Value* batch_norm(Composite& s) {
  Value* scale = s.m.make(Op::rsqrt, {s.m.add(s.operand(2), s.eps())});
  size_t next = 3;
  if (s.node->attr<bool>("has_weight")) scale = s.m.mul(scale, s.operand(next++));
  Value* shift = s.m.mul(s.operand(1), scale);
  shift = s.node->attr<bool>("has_bias") ? s.m.sub(s.operand(next), shift) : s.m.make(Op::neg, {shift});
  Sizes shape = per_channel(s);
  return s.m.add(s.m.mul(s.x, s.m.reshape(scale, shape)), s.m.reshape(shift, shape));
}

bool splits_evenly(const Node& n) {
  const Sizes &from = n.operands[0]->type.sizes, &to = n.attr<Sizes>("sizes");
  for (size_t i = 0; i < to.size(); ++i) {
    Sym size = from[from.size() - to.size() + i];
    if (!to[i].is_const() || to[i].value() < 1) return false;
    if (!to[i].is_const(1) && (!size.is_const() || size.value() % to[i].value() != 0)) return false;
  }
  return true;
}

// [..., H, W] -> [..., h, H/h, w, W/w], the mean of the second of each pair.
Value* adaptive_avg_pool(Composite& s) {
  const Sizes& to = s.node->attr<Sizes>("sizes");
  size_t lead = s.sizes().size() - to.size();
  Sizes split(s.sizes().begin(), s.sizes().begin() + static_cast<std::ptrdiff_t>(lead)), dims;
  for (size_t i = 0; i < to.size(); ++i) {
    split.push_back(to[i]);
    dims.push_back(static_cast<int64_t>(split.size()));
    split.push_back(floordiv(s.sizes()[lead + i], to[i]));
  }
  return s.mean(s.m.reshape(s.x, split), dims, false);
}

Value* taken_apart(Composite& s) {
  switch (s.node->op) {
    case Op::softmax:
    case Op::log_softmax: return softmax(s);
    case Op::mean: return s.mean(s.x, s.node->attr<Sizes>("dims"), s.node->attr<bool>("keepdim"));
    case Op::var: return var(s);
    case Op::logsumexp: return logsumexp(s);
    case Op::layer_norm: return layer_norm(s);
    case Op::rms_norm: return rms_norm(s);
    case Op::group_norm: return group_norm(s);
    case Op::batch_norm: return batch_norm(s);
    default: return adaptive_avg_pool(s);
  }
}

}  // namespace

bool decompose(Graph& g) {
  return rewrite(g, [&](Node* node) -> Value* {
    if (op_info(node->op).kind != OpKind::Composite || !is_float(node->out()->type.dtype)) return nullptr;
    if (node->op == Op::avg_pool || node->op == Op::max_pool) return nullptr;
    if (node->op == Op::adaptive_avg_pool && !splits_evenly(*node)) return nullptr;
    Composite s(g, node);
    return s.done(taken_apart(s));
  });
}

}  // namespace bolt::graph

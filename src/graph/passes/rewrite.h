// graph/passes/rewrite.h
// What passes are written with: one ordered walk that replaces values, and short names for making nodes.
#pragma once

#include <functional>

#include "graph/ir.h"

namespace bolt::graph {

/// Makes nodes before `at`, with its source line; what is made of numbers lies where at's result does.
class Maker {
 public:
  Maker(Graph& g, Node* at) : g_(g), at_(at) {}

  Value* make(Op op, std::vector<Value*> operands, Attrs attrs = {}) const {
    Value* made = g_.make(op, std::move(operands), std::move(attrs), at_->loc, at_)->out();
    if (made->def->operands.empty() && !at_->outputs.empty()) made->type.device = at_->out()->type.device;
    return made;
  }
  Value* scalar(DType t, double v) const {
    Attr value = is_float(t) ? Attr(v) : Attr(static_cast<int64_t>(v));
    return make(Op::scalar, {}, {{"value", value}, {"dtype", t}});
  }
  Value* size(DType t, Sym v) const {
    if (v.is_const()) return scalar(t, static_cast<double>(v.value()));
    return make(Op::scalar, {}, {{"value", Syms{v}}, {"dtype", t}});
  }
  Value* cast(Value* v, DType t) const {
    return v->type.dtype == t ? v : make(Op::cast, {v}, {{"dtype", t}});
  }
  Value* reshape(Value* v, Syms sizes) const {
    return v->type.sizes == sizes ? v : make(Op::reshape, {v}, {{"sizes", std::move(sizes)}});
  }
  Value* slice(Value* v, int64_t dim, Sym start, Sym length, int64_t step = 1) const {
    return make(Op::slice, {v}, slice_attrs(dim, start, length, step));
  }
  Value* reduce(Op op, Value* v, Syms dims, bool keepdim) const {
    return make(op, {v}, {{"dims", std::move(dims)}, {"keepdim", keepdim}});
  }
  Value* add(Value* a, Value* b) const { return make(Op::add, {a, b}); }
  Value* sub(Value* a, Value* b) const { return make(Op::sub, {a, b}); }
  Value* mul(Value* a, Value* b) const { return make(Op::mul, {a, b}); }
  Value* div(Value* a, Value* b) const { return make(Op::div, {a, b}); }

 private:
  Graph& g_;
  Node* at_;
};

/// Gives the rule every node in order, its operands already replaced. A value that it returns (of the same
/// sizes and element type) takes the place of the node's only result; nullptr keeps the node. Nodes made on
/// the way are not visited. Nodes without uses are removed at the end. True when anything was replaced.
bool rewrite(Graph& g, const std::function<Value*(Node*)>& rule);
/// The same for nodes of several results: as many values as these, or none to keep the node.
bool rewrite_results(Graph& g, const std::function<std::vector<Value*>(Node*)>& rule);

/// The number in a `scalar` node; nothing for anything else and for unknown sizes.
std::optional<double> scalar_of(const Value* v);
inline bool is_op(const Value* v, Op op) { return v->def && v->def->op == op; }
/// Is it another matrix turned round?
inline bool is_transposed(const Value* v) {
  return is_op(v, Op::permute) && v->type.rank() == 2 && v->def->ints("dims") == std::vector<int64_t>{1, 0};
}

/// Whoever needs `v` in memory under its own name gets it as `recorded` lay.
inline Value* lying_as(Value* v, const Value* recorded) {
  v->type.strides = recorded->type.strides;
  return v;
}

}  // namespace bolt::graph

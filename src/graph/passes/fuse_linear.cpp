// graph/passes/fuse_linear.cpp
// Contractions with a weight become `linear`, the form that libraries pack and finish with an epilogue:
//
//   matmul(x, permute(w))        -> linear(x, w)             w[N, K]
//   matmul(x, w), w a parameter  -> linear(x, permute(w))    the transposed weight is made once
//   add(linear(x, w), b)         -> linear(x, w, b)          b[N], the linear has no other use
//   add(matmul(x, w), b)         -> linear(x, permute(w), b) as well, where a library reads w either way
#include "graph/device_facts.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace bolt::graph {
namespace {

Value* turned(const Maker& m, Value* w) { return m.make(Op::permute, {w}, {{"dims", Syms{1, 0}}}); }

Value* from_matmul(Graph& g, Node* node, const std::vector<bool>& fixed) {
  Value *x = node->operands[0], *w = node->operands[1];
  if (w->type.rank() != 2 || !is_float(w->type.dtype)) return nullptr;
  Maker m(g, node);
  if (is_transposed(w)) return m.make(Op::linear, {x, w->def->operands[0]});
  if (w->id < 0 || !fixed[w->id]) return nullptr;
  return m.make(Op::linear, {x, turned(m, w)});
}

bool is_bias(const Value* v, const Value* result) {
  return v->type.rank() == 1 && result->type.rank() > 1 && v->type.sizes[0] == result->type.sizes.back();
}

/// The weight of a product that a library may add a bias to, as `linear` has it; null of others.
Value* weight_of(const Maker& m, const Value* product) {
  if (is_op(product, Op::linear) && product->def->operands.size() == 2) return product->def->operands[1];
  if (!is_op(product, Op::matmul) || !facts_of(product->type.device).reads_turned_matrices) return nullptr;
  Value *x = product->def->operands[0], *w = product->def->operands[1];
  return w->type.rank() == 2 && x->type.rank() >= 2 && is_float(w->type.dtype) ? turned(m, w) : nullptr;
}

Value* with_bias(Graph& g, Node* node, std::unordered_map<const Value*, int>& uses) {
  const Maker m(g, node);
  for (int side = 0; side < 2; ++side) {
    Value *product = node->operands[side], *bias = node->operands[1 - side];
    if (uses[product] != 1 || !is_bias(bias, product) || product->type.sizes != node->out()->type.sizes)
      continue;
    if (Value* w = weight_of(m, product)) return m.make(Op::linear, {product->def->operands[0], w, bias});
  }
  return nullptr;
}

}  // namespace

bool fuse_linear(Graph& g, const PassOptions& options) {
  std::vector<bool> fixed = static_values(g);
  // Counted by value, since a new linear takes over the uses of its matmul.
  std::unordered_map<const Value*, int> uses;
  for (const auto& node : g.nodes)
    for (const Value* v : node->operands) ++uses[v];
  for (const Output& out : g.outputs) ++uses[out.value];
  return rewrite(g, [&](Node* node) -> Value* {
    if (node->op == Op::add) return options.rounds_each(*node) ? nullptr : with_bias(g, node, uses);
    if (node->op != Op::matmul) return nullptr;
    Value* made = from_matmul(g, node, fixed);
    if (made) uses[made] = uses[node->out()];
    return made;
  });
}

}  // namespace bolt::graph

// graph/passes/fold_batch_norm.cpp
// batch_norm(conv(x, w, b)) -> conv(x, w * s, (b - mean) * s + beta) with s = gamma / sqrt(var + eps), and
// linear alike.
//
// Only where the convolution has no other use and weights and statistics depend on parameters alone: the new
// weight is then computed once per instance. Rounding differs from eager's in the last place, since the scale
// meets the weight instead of the sum. Before decompose, which would take batch_norm apart.
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace bolt::graph {
namespace {

bool foldable(const Node* norm, const std::vector<bool>& fixed, const std::vector<int>& uses) {
  const Value* x = norm->operands[0];
  if (!is_op(x, Op::conv) && !is_op(x, Op::linear)) return false;
  const Node* source = x->def;
  // Values made by this pass (id -1) are not looked at twice.
  if (x->id < 0 || uses[x->id] != 1 || source->out()->type.rank() < 2) return false;
  // A linear layer's channels are its last dimension, batch_norm's the second.
  if (source->op == Op::linear && x->type.rank() != 2) return false;
  if (source->op == Op::conv && source->attr<bool>("transposed") && source->attr<int64_t>("groups") != 1)
    return false;
  for (size_t i = 1; i < norm->operands.size(); ++i)
    if (norm->operands[i]->id < 0 || !fixed[norm->operands[i]->id]) return false;
  for (size_t i = 1; i < source->operands.size(); ++i)
    if (source->operands[i]->id < 0 || !fixed[source->operands[i]->id]) return false;
  return true;
}

Value* folded(Graph& g, Node* norm) {
  Maker m(g, norm);
  const Node* source = norm->operands[0]->def;
  // In double: it is computed once, and each weight is then rounded once, as a weight is.
  DType stored = norm->out()->type.dtype, type = DType::F64;
  auto operand = [&](const Node* n, size_t i) { return m.cast(n->operands[i], type); };

  Value* scale = m.make(Op::rsqrt, {m.add(operand(norm, 2), m.scalar(type, norm->attr<double>("eps")))});
  size_t next = 3;
  if (norm->attr<bool>("has_weight")) scale = m.mul(scale, operand(norm, next++));
  Value* shift = operand(norm, 1);
  bool had_bias = source->operands.size() > 2;
  shift = had_bias ? m.sub(operand(source, 2), shift) : m.make(Op::neg, {shift});
  shift = m.mul(shift, scale);
  if (norm->attr<bool>("has_bias")) shift = m.add(shift, operand(norm, next));

  Value* weight = operand(source, 1);
  Syms along(weight->type.sizes.size(), Sym(1));
  bool transposed = source->op == Op::conv && source->attr<bool>("transposed");
  along[transposed ? 1 : 0] = scale->type.sizes[0];
  weight = m.mul(weight, m.reshape(scale, along));
  Node* made = g.make(source->op, {source->operands[0], m.cast(weight, stored), m.cast(shift, stored)},
                      source->attrs, norm->loc, norm);
  made->out()->type.strides = source->out()->type.strides;
  return made->out();
}

}  // namespace

bool fold_batch_norm(Graph& g, const PassOptions& options) {
  std::vector<bool> fixed = static_values(g);
  std::vector<int> uses = g.use_counts();
  return rewrite(g, [&](Node* node) -> Value* {
    if (node->op != Op::batch_norm || !foldable(node, fixed, uses)) return nullptr;
    return options.rounds_each(*node) ? nullptr : folded(g, node);
  });
}

}  // namespace bolt::graph

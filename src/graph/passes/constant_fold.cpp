// graph/passes/constant_fold.cpp
// Pointwise operations whose operands are all numbers (`scalar`) become one number. The reference execution
// computes it, in double or exact integers, so the result is at least as exact as the operations would have
// been.
#include <functional>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "graph/reference_ops.h"
#include "support/error.h"

namespace bolt::graph {
namespace {

std::optional<HostTensor> constant(const Value* v) {
  if (!is_op(v, Op::scalar) || is_opaque(v->type.dtype)) return std::nullopt;
  if (std::holds_alternative<Syms>(v->def->attrs.find("value")->second)) return std::nullopt;
  reference::Operands none;
  reference::ReferenceCall call{*v->def, none, [](Sym s) { return s.value(); },
                                make_tensor(v->type.dtype, {})};
  reference::create(call);
  return call.out;
}

Value* fold(Graph& g, Node* node) {
  if (op_info(node->op).kind != OpKind::Pointwise || is_opaque(node->out()->type.dtype)) return nullptr;
  std::vector<HostTensor> values;
  for (const Value* v : node->operands) {
    std::optional<HostTensor> c = constant(v);
    if (!c) return nullptr;
    values.push_back(std::move(*c));
  }
  reference::Operands operands;
  for (const HostTensor& t : values) operands.push_back(&t);
  DType t = node->out()->type.dtype;
  reference::ReferenceCall call{*node, operands, [](Sym s) { return s.value(); }, make_tensor(t, {})};
  reference::pointwise(call);
  Cell result = call.out.cells[0];
  Attr value = is_float(t)        ? Attr(result.real)
               : t == DType::Bool ? Attr(result.whole != 0)
                                  : Attr(result.whole);
  return Maker(g, node).make(Op::scalar, {}, {{"value", value}, {"dtype", t}});
}

}  // namespace

bool constant_fold(Graph& g, const PassOptions& options) {
  return rewrite(g, [&](Node* node) -> Value* {
    // What has been folded is a number like those that were given, which are not rounded.
    const bool rounds = options.rounds_each(*node) && node->op != Op::cast;
    return rounds ? nullptr : fold(g, node);
  });
}

}  // namespace bolt::graph

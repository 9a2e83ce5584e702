// graph/passes/constant_fold.cpp
// Pointwise operations whose operands are all numbers (`scalar`) become one number, computed in double or
// exact integers, so the result is at least as exact as the operations would have been.
#include "graph/cell.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace bolt::graph {
namespace {

std::optional<Cell> constant(const Value* v) {
  if (!is_op(v, Op::scalar) || is_opaque(v->type.dtype)) return std::nullopt;
  const Attr& value = v->def->attrs.find("value")->second;
  if (std::holds_alternative<Syms>(value)) return std::nullopt;
  return number_cell(value, v->type.dtype);
}

Value* fold(Graph& g, Node* node) {
  if (op_info(node->op).kind != OpKind::Pointwise || is_opaque(node->out()->type.dtype)) return nullptr;
  std::vector<Cell> values;
  for (const Value* v : node->operands) {
    const std::optional<Cell> number = constant(v);
    if (!number) return nullptr;
    values.push_back(*number);
  }
  const DType t = node->out()->type.dtype;
  const Cell result = pointwise_cell(*node, values.data());
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

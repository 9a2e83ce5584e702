// graph/passes/empty.cpp
// Values without elements are not computed: each becomes a `full` of its sizes, and a reduction over none its
// neutral element. What comes after may then divide by the sizes that are left.
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace bolt::graph {

namespace {

bool has_no_elements(const Value* v) { return v->type.numel().is_const(0); }

/// What an operation gives that looks at no element; nothing: it does look at some.
std::optional<int> number_of_nothing(const Node& node) {
  if (has_no_elements(node.out())) return 0;
  if (node.operands.empty() || !has_no_elements(node.operands[0])) return std::nullopt;
  switch (node.op) {
    case Op::sum:
    case Op::any:
    case Op::matmul: return 0;
    case Op::prod:
    case Op::all: return 1;
    default: return std::nullopt;
  }
}

}  // namespace

bool empty(Graph& g) {
  return rewrite(g, [&](Node* node) -> Value* {
    if (node->op == Op::full || node->outputs.size() != 1 || node->attr_or<bool>("effect", false))
      return nullptr;
    std::optional<int> number = number_of_nothing(*node);
    if (!number) return nullptr;
    const Type& type = node->out()->type;
    Attr value = is_float(type.dtype) ? Attr(static_cast<double>(*number)) : Attr(int64_t{*number});
    return Maker(g, node).make(Op::full, {},
                               {{"value", value}, {"sizes", type.sizes}, {"dtype", type.dtype}});
  });
}

}  // namespace bolt::graph

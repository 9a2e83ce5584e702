// graph/passes/widen_halves.cpp
// Contractions of half precision, on devices that are faster in float32 -> the same of float32, between casts
//
//   linear(x: bf16, w: bf16)  ->  cast(linear(cast(x, f32), cast(w, f32)), bf16)
//
// A processor without instructions for bfloat16 or float16 products has no library kernels for them either,
// and what is left is slower by an order of magnitude. Sums were float32 before, too, so that results are the
// same up to the order of additions; each is rounded once, as it was. The casts become part of the kernels
// that make the operands and read the result, and those of parameters are made once.
//
// Attention of halves is rounded between its two products as well: with numerics="eager" it stays as it is.
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace bolt::graph {

bool widen_halves(Graph& g, const PassOptions& options) {
  if (!options.widens) return false;
  return rewrite(g, [&](Node* node) -> Value* {
    if (options.rounds_as_eager && node->op == Op::sdpa) return nullptr;
    if (!is_contraction(node->op) || !is_half(node->out()->type.dtype) || !options.widens(*node))
      return nullptr;
    const Maker maker(g, node);
    std::vector<Value*> operands = node->operands;
    for (Value*& v : operands)
      if (is_half(v->type.dtype)) v = maker.cast(v, DType::F32);
    Value* narrow =
        maker.cast(maker.make(node->op, std::move(operands), node->attrs), node->out()->type.dtype);
    // Whoever needs it in memory under its own name gets it as it was recorded.
    narrow->type.strides = node->out()->type.strides;
    return narrow;
  });
}

}  // namespace bolt::graph

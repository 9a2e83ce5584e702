// graph/passes/match_gelu.cpp
// gelu's approximation, written out by hand, -> gelu(x) {approximate="tanh"}
//
//   0.5 * x * (1 + tanh(0.79788456 * (x + 0.044715 * x^3)))
//
// as canonicalize leaves it, factors in any order. What was written out is computed in the same steps; whole,
// a library may end a product in it (loops/end_in_activations.h). Only where nothing else reads the tanh,
// which a backward pass would: then both would be computed.
#include <cmath>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace bolt::graph {
namespace {

constexpr double kHalf = 0.5, kCubic = 0.044715, kScale = 0.79788456080286536;  // sqrt(2 / pi)

bool is_about(const Value* v, double number) {
  const std::optional<double> found = scalar_of(v);
  return found && std::abs(*found - number) <= 1e-6 * number;
}

/// The other operand of op(v, number), in whichever order they stand; nullptr: it is none.
Value* beside(const Value* v, Op op, double number) {
  if (!is_op(v, op)) return nullptr;
  for (int side = 0; side < 2; ++side)
    if (is_about(v->def->operands[side], number)) return v->def->operands[1 - side];
  return nullptr;
}
/// The other operand of op(v, one).
Value* beside(const Value* v, Op op, const Value* one) {
  if (!is_op(v, op)) return nullptr;
  for (int side = 0; side < 2; ++side)
    if (v->def->operands[side] == one) return v->def->operands[1 - side];
  return nullptr;
}

bool is_cube(const Value* v, const Value* x) {
  const Value* square = v ? beside(v, Op::mul, x) : nullptr;
  return square && is_op(square, Op::mul) && square->def->operands[0] == x && square->def->operands[1] == x;
}

/// 0.5 * x * (1 + tanh(...)), of which `half` is 0.5 * x and `rest` the other factor.
bool is_gelu(const Value* x, const Value* rest, const std::vector<int>& uses) {
  const Value* curve = beside(rest, Op::add, 1.0);
  if (!curve || !is_op(curve, Op::tanh) || curve->id < 0 || uses[curve->id] != 1) return false;
  const Value* inner = beside(curve->def->operands[0], Op::mul, kScale);
  const Value* cubic = inner ? beside(inner, Op::add, x) : nullptr;
  return cubic && is_cube(beside(cubic, Op::mul, kCubic), x);
}

}  // namespace

bool match_gelu(Graph& g, const PassOptions& options) {
  g.renumber();
  const std::vector<int> uses = g.use_counts();
  return rewrite(g, [&](Node* node) -> Value* {
    if (node->op != Op::mul) return nullptr;
    if (options.rounds_each(*node)) return nullptr;
    for (int side = 0; side < 2; ++side) {
      Value* x = beside(node->operands[side], Op::mul, kHalf);
      if (x && x->type == node->out()->type && is_gelu(x, node->operands[1 - side], uses))
        return Maker(g, node).make(Op::gelu, {x}, {{"approximate", std::string("tanh")}});
    }
    return nullptr;
  });
}

}  // namespace bolt::graph

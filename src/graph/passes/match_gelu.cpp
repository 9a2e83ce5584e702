// graph/passes/match_gelu.cpp
// gelu and its approximation, written out by hand
//
//   0.5 * x * (1 + tanh(0.79788456 * (x + 0.044715 * x^3)))  -> gelu(x) {approximate="tanh"}
//   0.5 * (1 + erf(x / sqrt(2)))                             -> ndtr(x), which gelu multiplies by x
//
// as canonicalize leaves them, factors in any order. The approximation is computed in the same steps; whole,
// a library may end a product in it (loops/end_in_activations.h). The normal distribution takes half as long
// as an erf. Only where nothing else reads the tanh or the erf, which a backward pass would: then both would
// be computed.
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

/// What makes op(v), of 1 + op(v) that is read once and alone reads op(v).
const Node* one_and(const Value* v, Op op, const std::vector<int>& uses) {
  auto read_once = [&](const Value* read) { return read->id >= 0 && uses[read->id] == 1; };
  const Value* curve = beside(v, Op::add, 1.0);
  return curve && is_op(curve, op) && read_once(curve) && read_once(v) ? curve->def : nullptr;
}

/// 0.5 * x * (1 + tanh(...)), of which `half` is 0.5 * x and `rest` the other factor.
bool is_gelu(const Value* x, const Value* rest, const std::vector<int>& uses) {
  const Node* curve = one_and(rest, Op::tanh, uses);
  const Value* inner = curve ? beside(curve->operands[0], Op::mul, kScale) : nullptr;
  const Value* cubic = inner ? beside(inner, Op::add, x) : nullptr;
  return cubic && is_cube(beside(cubic, Op::mul, kCubic), x);
}

/// x, of 1 + erf(x / sqrt(2)).
Value* of_erf(const Value* v, const std::vector<int>& uses) {
  const Node* curve = one_and(v, Op::erf, uses);
  if (!curve) return nullptr;
  const Value* inner = curve->operands[0];
  if (Value* x = beside(inner, Op::mul, M_SQRT1_2)) return x;
  return is_op(inner, Op::div) && is_about(inner->def->operands[1], M_SQRT2) ? inner->def->operands[0]
                                                                             : nullptr;
}

/// ndtr(x), or y * ndtr(x), of the product of a half, 1 + erf(...) and y in any order; nullptr: it is none.
Value* distribution(const Maker& m, const Node* product, const std::vector<int>& uses) {
  for (int side = 0; side < 2; ++side) {
    Value *one = product->operands[side], *other = product->operands[1 - side];
    if (is_about(one, kHalf)) {
      if (Value* x = of_erf(other, uses)) return m.make(Op::ndtr, {x});
      for (int inner = 0; inner < 2 && is_op(other, Op::mul); ++inner)
        if (Value* x = of_erf(other->def->operands[inner], uses))
          return m.mul(other->def->operands[1 - inner], m.make(Op::ndtr, {x}));
    }
    if (Value* y = beside(one, Op::mul, kHalf))
      if (Value* x = of_erf(other, uses)) return m.mul(y, m.make(Op::ndtr, {x}));
  }
  return nullptr;
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
    Value* v = distribution(Maker(g, node), node, uses);
    return v && v->type == node->out()->type ? v : nullptr;
  });
}

}  // namespace bolt::graph

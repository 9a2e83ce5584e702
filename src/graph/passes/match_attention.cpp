// graph/passes/match_attention.cpp
// softmax(q @ kT * scale + mask) @ v, written out by hand, -> sdpa(q, permute(kT), v, mask) {scale}
//
// Scale (a multiplication or division by a number) and mask are optional; scores and weights have no other
// use. A mask is added, or chosen: where(keep, scores, -inf) is a b8 mask, and so is a number so low that no
// score shows beside it, as a mask of 0 and that number. A row that sees nothing stays NaN. The transposed
// key becomes a permute, which meets the one that made it in canonicalize. Softmax computed in f32 between
// casts from and to bf16 or f16 matches too: sdpa does the same inside. Before decompose, which would take
// softmax apart.
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

#include <cmath>

namespace bolt::graph {
namespace {

/// Beside a number so low every score is lost in rounding.
constexpr double kLostInRounding = -1e30;

class Matcher {
 public:
  explicit Matcher(Graph& g) : g_(g) {
    for (const auto& node : g.nodes)
      for (const Value* v : node->operands) ++uses_[v];
    for (const Output& out : g.outputs) ++uses_[out.value];
  }

  Value* match(Node* node) {
    if (node->op != Op::matmul || !is_float(node->out()->type.dtype)) return nullptr;
    Value* weights = skip_casts(node->operands[0]);
    int rank = node->operands[0]->type.rank();
    if (!weights || !is_op(weights, Op::softmax) || uses_[weights] != 1 || rank < 3) return nullptr;
    if (weights->def->attr<int64_t>("dim") != rank - 1) return nullptr;
    Value* scores = skip_casts(weights->def->operands[0]);
    Mask mask;
    if (scores) mask = take_mask(scores);
    double scale = 1;
    if (scores) scores = take_scale(scores, &scale);
    if (!scores || !is_op(scores, Op::matmul) || uses_[scores] != 1) return nullptr;
    return build(node, scores->def, mask, scale);
  }

 private:
  bool single(const Value* v) { return v->def && uses_[v] == 1; }

  // Widening and narrowing around the softmax; every value on the way has one use.
  Value* skip_casts(Value* v) {
    while (is_op(v, Op::cast) && single(v) && is_float(v->def->operands[0]->type.dtype))
      v = v->def->operands[0];
    return v;
  }

  /// Added to the scores, or what is kept of them and the number elsewhere.
  struct Mask {
    Value* added = nullptr;
    Value* choice = nullptr;  // b8
    bool kept = true;         // where `choice` is true; else where it is false
    double hidden = 0;
  };

  Mask take_mask(Value*& scores) {
    const bool sum = is_op(scores, Op::add), choice = is_op(scores, Op::where);
    if ((!sum && !choice) || !single(scores)) return {};
    const std::vector<Value*>& operands = scores->def->operands;
    for (size_t side = 0; side < 2; ++side) {
      Value *product = operands[side + choice], *other = operands[1 - side + choice];
      if (product->type.sizes != scores->type.sizes || !leads_to_matmul(product)) continue;
      std::optional<double> number = scalar_of(other);
      if (choice && (!number || *number > kLostInRounding)) continue;
      Mask mask;
      if (sum) mask.added = other;
      if (choice) mask = {nullptr, operands[0], side == 0, *number};
      scores = product;
      return mask;
    }
    return {};
  }
  /// The mask as sdpa's operand of type t.
  static Value* operand(Maker& m, const Mask& mask, DType t) {
    if (mask.added) return m.cast(mask.added, t);
    Value* keep = mask.kept ? mask.choice : m.make(Op::logical_not, {mask.choice});
    if (std::isinf(mask.hidden)) return keep;
    return m.make(Op::where, {keep, m.scalar(t, 0), m.scalar(t, mask.hidden)});
  }
  bool leads_to_matmul(const Value* v) {
    if (is_op(v, Op::mul) || is_op(v, Op::div)) v = v->def->operands[scalar_of(v->def->operands[0]) ? 1 : 0];
    return is_op(v, Op::matmul);
  }

  Value* take_scale(Value* v, double* scale) {
    bool product = is_op(v, Op::mul), quotient = is_op(v, Op::div);
    if ((!product && !quotient) || !single(v)) return v;
    const std::vector<Value*>& operands = v->def->operands;
    for (size_t side = 0; side < (product ? 2u : 1u); ++side)
      if (std::optional<double> by = scalar_of(operands[1 - side])) {
        *scale = product ? *by : 1 / *by;
        return operands[side];
      }
    return v;
  }

  Value* build(Node* node, const Node* scores, const Mask& mask, double scale) {
    Value *q = scores->operands[0], *kt = scores->operands[1], *v = node->operands[1];
    size_t rank = node->out()->type.sizes.size();
    if (q->type.sizes.size() != rank || kt->type.sizes.size() != rank || v->type.sizes.size() != rank)
      return nullptr;
    DType t = node->out()->type.dtype;
    if (q->type.dtype != t || kt->type.dtype != t || v->type.dtype != t) return nullptr;
    for (size_t d = 0; d + 2 < rank; ++d)  // batch dimensions that broadcast are left to matmul
      if (q->type.sizes[d] != kt->type.sizes[d] || q->type.sizes[d] != v->type.sizes[d]) return nullptr;
    const Value* shown = mask.added ? mask.added : mask.choice;
    if (shown && (shown->type.rank() < 2 || shown->type.rank() > static_cast<int>(rank))) return nullptr;
    Maker m(g_, node);
    Syms dims;
    for (size_t d = 0; d < rank; ++d) dims.push_back(static_cast<int64_t>(d));
    std::swap(dims[rank - 1], dims[rank - 2]);
    std::vector<Value*> operands{q, m.make(Op::permute, {kt}, {{"dims", dims}}), v};
    if (shown) operands.push_back(operand(m, mask, t));
    return m.make(Op::sdpa, operands, {{"scale", scale}, {"empty_rows_nan", true}});
  }

  Graph& g_;
  std::unordered_map<const Value*, int> uses_;
};

}  // namespace

bool match_attention(Graph& g, const PassOptions& options) {
  Matcher matcher(g);
  return rewrite(g, [&](Node* node) -> Value* {
    if (options.rounds_each(*node)) return nullptr;
    return matcher.match(node);
  });
}

}  // namespace bolt::graph

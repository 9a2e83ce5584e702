// graph/passes/attention_batches.cpp
// Attention of more or fewer than four dimensions -> the same of four, and a view of it
//
//   sdpa(q[B, H, T, N, D], k, v)   -> permute(sdpa(joined(q)[B * T, H, N, D], joined(k), joined(v)))
//   sdpa(q[B, N, D], k, v)         -> sdpa(q[B, 1, N, D], k, v)
//
// Libraries' fused kernels are of [batches, heads, positions, width]. Anything else ATen writes out as
// products and a softmax in float32, five times as long. In training autograd/attention_of_four.h does this.
#include <algorithm>
#include <optional>

#include "graph/attention_heads.h"
#include "graph/device_facts.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace bolt::graph {
namespace {

constexpr int kRank = 4, kWithin = kWithinHead;

Syms outer(const Type& t) { return {t.sizes.begin(), t.sizes.end() - kWithin}; }

int heads_of(const Node& attention) {
  return heads_among(attention.operands[0]->type.rank(), [&](int heads) {
    return std::all_of(attention.operands.begin(), attention.operands.begin() + 3, [&](const Value* v) {
      return are_one_as_they_lie(v->type.sizes, v->type.strides, heads);
    });
  });
}

/// A mask is one for all of them, or has their dimensions.
bool takes_apart(const Value* mask, const Syms& batches) {
  const Syms own = mask->type.rank() > kWithin ? outer(mask->type) : Syms{};
  return own == batches || std::ranges::all_of(own, [](Sym size) { return size.is_const(1); });
}

class Joining {
 public:
  Joining(const Maker& maker, int rank, int heads) : maker_(maker), heads_(heads) {
    for (int d : with_heads_last(rank, heads)) order_.push_back(d);
  }

  Value* joined(Value* v) const {
    const Type& t = v->type;
    if (t.rank() <= kWithin) return v;
    if (static_cast<size_t>(t.rank()) != order_.size())  // a mask for all
      return maker_.reshape(v, {1, 1, t.sizes[t.rank() - 2], t.sizes[t.rank() - 1]});
    Value* turned = permuted(v, order_);
    Sym batches = 1;
    for (int d = 0; d < t.rank(); ++d)
      if (d < t.rank() - kWithin && d != heads_) batches *= t.sizes[d];
    return maker_.reshape(turned, {batches, heads_ < 0 ? Sym(1) : t.sizes[heads_], t.sizes[t.rank() - 2],
                                   t.sizes[t.rank() - 1]});
  }
  /// As `recorded`, which has another width than what was joined.
  Value* parted(Value* v, const Type& recorded) const {
    Syms sizes, back(order_.size(), 0);
    for (size_t i = 0; i < order_.size(); ++i) {
      sizes.push_back(recorded.sizes[static_cast<size_t>(order_[i].value())]);
      back[static_cast<size_t>(order_[i].value())] = static_cast<int64_t>(i);
    }
    return permuted(maker_.reshape(v, std::move(sizes)), back);
  }

 private:
  Value* permuted(Value* v, const Syms& dims) const {
    const auto in_order = [](Sym a, Sym b) { return a.value() < b.value(); };
    if (std::ranges::is_sorted(dims, in_order)) return v;
    return maker_.make(Op::permute, {v}, {{"dims", dims}});
  }

  const Maker& maker_;
  int heads_;
  Syms order_;
};

}  // namespace

bool attention_batches(Graph& g) {
  return rewrite(g, [&](Node* node) -> Value* {
    if (node->op != Op::sdpa || !facts_of(node->out()->type.device).has_several_ways) return nullptr;
    const Type& q = node->operands[0]->type;
    const Syms batches = outer(q);
    if (q.rank() == kRank || node->attr_or<bool>("enable_gqa", false)) return nullptr;
    if (outer(node->operands[1]->type) != batches || outer(node->operands[2]->type) != batches)
      return nullptr;
    if (node->operands.size() > 3 && !takes_apart(node->operands[3], batches)) return nullptr;
    const Maker maker(g, node);
    const Joining joining(maker, q.rank(), heads_of(*node));
    std::vector<Value*> operands;
    for (Value* v : node->operands) operands.push_back(joining.joined(v));
    Value* result = maker.make(Op::sdpa, std::move(operands), node->attrs);
    return lying_as(joining.parted(result, node->out()->type), node->out());
  });
}

}  // namespace bolt::graph

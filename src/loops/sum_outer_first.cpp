// loops/sum_outer_first.cpp
#include "loops/sum_outer_first.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "graph/device_facts.h"
#include "loops/roles.h"

namespace bolt::loops {
namespace {

using graph::Node;
using graph::Op;
using graph::Value;

/// A GPU reads memory in pieces of so many bytes.
constexpr int64_t kPiece = 32;
/// On an H200, a norm over groups of 4 channels goes at .06 of a copy's speed, of 8 at .2, of 16 at .4; the
/// four more launches cost 8 us. So the two ways take as long at a million elements in groups of 4, at two of
/// 8, and groups that are a whole piece stay.
constexpr int64_t kElementsByChannel = int64_t{1} << 18;
/// Fewer pixels are no column worth the name.
constexpr int64_t kLeastOutside = 64;

/// How the memory lies that is read for `v`: its own, or that of what it is computed of, element by element.
std::optional<Syms> strides_of(const Value* v, int levels = 16) {
  const Value* base = view_base(v);
  Syms lies = base->type.strides;
  if (base->def && levels > 0 && kind_of(base->def) == graph::OpKind::Pointwise) {
    const auto& from = base->def->operands;
    const auto alike =
        std::ranges::find_if(from, [&](const Value* o) { return o->type.sizes == base->type.sizes; });
    if (alike != from.end())
      if (std::optional<Syms> found = strides_of(*alike, levels - 1)) lies = *found;
  }
  if (base == v) return lies;
  const std::optional<StridedView> shown = over_base(v, lies);
  return shown ? std::optional(shown->strides) : std::nullopt;
}

/// The dimensions that are summed first; none: the sum stays as it is.
std::vector<int64_t> outer_dims(const Node& n) {
  if (n.op != Op::sum || !graph::facts_of(n.out()->type.device).splits_sums) return {};
  const Value* x = n.operands[0];
  if (is_half(x->type.dtype) || estimate(x->type.numel()) < 2 * kElementsByChannel) return {};
  const std::optional<Syms> strides = strides_of(x);
  if (!strides || strides->size() != x->type.sizes.size()) return {};

  const std::vector<int64_t> dims = n.ints("dims");
  int64_t between = INT64_MAX;  // the least stride of what stays
  for (size_t d = 0; d < strides->size(); ++d)
    if (!x->type.sizes[d].is_const(1) && std::ranges::find(dims, static_cast<int64_t>(d)) == dims.end())
      between = std::min(between, estimate((*strides)[d]));
  std::vector<int64_t> outer;
  int64_t inside = 1, outside = 1;
  for (int64_t d : dims) {
    const Sym size = x->type.sizes[d];
    if (size.is_const(1)) continue;
    const bool is_outer = estimate((*strides)[d]) > between;
    (is_outer ? outside : inside) *= estimate(size);
    if (is_outer) outer.push_back(d);
  }
  // Of what is computed nothing says how wide the memory is that it comes of: halves, at the least.
  const bool pays = inside > 1 && inside * 2 < kPiece && outside >= kLeastOutside &&
                    estimate(x->type.numel()) >= inside * kElementsByChannel;
  return pays ? outer : std::vector<int64_t>{};
}

}  // namespace

bool sum_outer_first(graph::Graph& g) {
  std::vector<std::pair<Node*, std::vector<int64_t>>> found;
  for (const auto& n : g.nodes)
    if (std::vector<int64_t> outer = outer_dims(*n); !outer.empty()) found.emplace_back(n.get(), outer);
  for (auto& [n, outer] : found) {
    Node* first = g.make(Op::sum, {n->operands[0]},
                         {{"dims", Syms(outer.begin(), outer.end())}, {"keepdim", true}}, n->loc, n);
    n->operands[0] = first->out();
  }
  return !found.empty();
}

}  // namespace bolt::loops

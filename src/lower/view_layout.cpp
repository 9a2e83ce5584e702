// lower/view_layout.cpp
#include "lower/view_layout.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace bolt::lower {
namespace {

using graph::Type;
using record::TensorInfo;

template <class T>
const T& attr(const ViewStep& step, const char* name) {
  return std::get<T>(step.attrs.find(name)->second);
}

/// New strides of what has no elements: the old ones say nothing, but dimensions of size 1 come and go.
Syms restrided_nothing(const Type& from, const Syms& to) {
  Syms strides(to.size(), Sym(1));
  size_t i = 0;
  for (size_t j = 0; j < to.size(); ++j) {
    if (to[j].is_const(1)) continue;
    while (i < from.sizes.size() && from.sizes[i].is_const(1)) ++i;
    if (i == from.sizes.size() || from.sizes[i] != to[j]) return {};
    strides[j] = from.strides[i++];
  }
  return strides;
}

/// Strides of a view with other sizes: runs of dimensions that lie one in the other are cut anew. Empty:
/// none.
Syms restrided(const Type& from, const Syms& to) {
  Syms strides(to.size(), Sym(1));
  if (std::any_of(to.begin(), to.end(), [](Sym size) { return size.is_const(0); }))
    return restrided_nothing(from, to);
  size_t i = from.sizes.size();
  Sym left = 1, stride = 1;  // of the run at hand: elements not yet given out, and their distance
  for (size_t j = to.size(); j-- > 0;) {
    if (to[j].is_const(1)) continue;
    while (left.is_const(1)) {
      if (i == 0) return {};
      left = from.sizes[--i];
      stride = from.strides[i];
    }
    while (left != to[j] && (floordiv(left, to[j]) * to[j] != left)) {  // the run goes on outwards
      if (i == 0) return {};
      --i;
      if (from.sizes[i].is_const(1)) continue;
      if (from.strides[i] != stride * left) return {};
      left *= from.sizes[i];
    }
    strides[j] = stride;
    left = floordiv(left, to[j]);
    stride *= to[j];
  }
  return strides;
}

/// Of a dimension of size 1, which means nothing: unsqueeze() makes it the length of what is inside, others
/// keep that of what they are a view of.
Sym stride_of_one(int64_t recorded, const Type& view, size_t i, const Layout& parent, const Sizes& all) {
  const bool innermost = i + 1 == view.sizes.size();
  const Sym inside = innermost ? Sym(1) : view.sizes[i + 1] * view.strides[i + 1];
  if (all.hint(inside) == recorded) return inside;
  return stride_like(recorded, parent, all);
}

/// Does the view begin somewhere else in each call?
bool moves(const ViewStep& step) { return step.op == Op::slice && !all_known(attr<Syms>(step, "start")); }

/// Part of a tensor may have been all of it, and dense, when it was recorded.
bool cuts(const ViewStep& step) {
  return moves(step) || (step.op == Op::slice && !attr<Syms>(step, "length")[0].is_const());
}

/// What `step` makes of a tensor that lies at `offset`. False: its strides cannot be told.
bool follow(const ViewStep& step, graph::Graph& scratch, Type& type, Sym& offset) {
  if (step.op == Op::slice) {
    offset += attr<Syms>(step, "start")[0] * type.strides[attr<int64_t>(step, "dim")];
  } else if (step.op == Op::flip || (step.op == Op::as_strided && !step.place &&
                                     type.strides != graph::contiguous_strides(type.sizes))) {
    return false;
  }
  if (step.op == Op::as_strided && step.place) {
    const auto [strides, begin] = step.place(type.strides);
    offset += begin;
    type.sizes = attr<Syms>(step, "sizes");
    type.strides = strides;
  } else if (step.op == Op::as_strided) {  // of a tensor without gaps, whatever it lies in
    offset += attr<Syms>(step, "offset")[0];
    type.sizes = attr<Syms>(step, "sizes");
    type.strides = attr<Syms>(step, "strides");
  } else if (step.op == Op::reshape) {
    const auto& to = attr<Syms>(step, "sizes");
    type.strides = restrided(type, to);
    type.sizes = to;
    return type.strides.size() == to.size();
  } else {
    type = scratch.make(step.op, {scratch.add_input(type, graph::InputKind::Arg)}, step.attrs)->out()->type;
  }
  return true;
}

/// The strides behind all steps, where they are those that were recorded; `offset` is brought along. Nothing:
/// they cannot be told.
std::optional<Syms> followed(const TensorInfo& info, const std::vector<ViewStep>& steps, const Layout& parent,
                             Type type, Sym& offset, const Sizes& all) {
  if (parent.strides.size() != parent.sizes.size() || !parent.placed) return std::nullopt;
  graph::Graph scratch;
  type.sizes = parent.sizes;
  type.strides = parent.strides;
  offset = parent.offset;
  for (const ViewStep& step : steps)
    if (!follow(step, scratch, type, offset)) return std::nullopt;
  for (size_t i = type.sizes.size(); i-- > 0;) {
    if (all.hint(type.strides[i]) == info.strides[i]) continue;
    if (!type.sizes[i].is_const(1)) return std::nullopt;
    type.strides[i] = stride_of_one(info.strides[i], type, i, parent, all);
  }
  return type.strides;
}

}  // namespace

Sym stride_like(int64_t recorded, const Layout& parent, const Sizes& all) {
  for (Sym stride : parent.strides)
    if (!stride.is_const() && all.hint(stride) == recorded) return stride;
  return recorded;
}

Syms eager_strides(const TensorInfo& info, const Syms& sizes, const Sizes& all, int64_t step) {
  Syms strides(info.strides.begin(), info.strides.end());
  if (all_known(sizes)) return strides;
  std::vector<size_t> order(sizes.size());  // innermost first
  for (size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  // A dimension of size 1 lies inside the one it shares its stride with.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(info.strides[a], !sizes[a].is_const(1)) <
           std::pair(info.strides[b], !sizes[b].is_const(1));
  });
  Sym run = step;
  for (size_t i : order) {
    if (sizes[i].is_const(1)) {  // its stride means nothing, and is kept where it was that of a dense tensor
      if (info.strides[i] == all.hint(run)) strides[i] = run;
      continue;
    }
    if (info.strides[i] != all.hint(run)) return {};
    strides[i] = run;
    if (!sizes[i].is_const(0)) run *= sizes[i];  // as torch has them: as if there were one
  }
  return strides;
}

Layout view_layout(const TensorInfo& info, const Type& type, const std::vector<ViewStep>& steps,
                   const TensorInfo& parent_info, const Layout& parent, const Sizes& all) {
  Layout view;
  view.sizes = type.sizes;
  if (all_known(view.sizes) && all_known(parent.sizes) && all_known(parent.strides) &&
      parent.placed_as_recorded && std::none_of(steps.begin(), steps.end(), moves)) {
    view.placed = parent.placed;
    view.offset = parent.offset + Sym(info.offset - parent_info.offset);
    view.strides = {info.strides.begin(), info.strides.end()};
    return view;
  }
  view.placed_as_recorded = false;
  const std::optional<Syms> strides = followed(info, steps, parent, type, view.offset, all);
  view.placed = strides.has_value();
  if (strides)
    view.strides = *strides;
  else if (std::none_of(steps.begin(), steps.end(), cuts))
    view.strides = eager_strides(info, view.sizes, all);
  return view;
}

}  // namespace bolt::lower

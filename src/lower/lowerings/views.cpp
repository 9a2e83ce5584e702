// lower/lowerings/views.cpp
// Rows for operators that only look at the same elements differently. Whether the result was a view or a copy
// is not decided here: the recorded storages say it.
#include <algorithm>
#include <functional>
#include <numeric>

#include "graph/op_rules.h"
#include "lower/extern_sizes.h"
#include "lower/families.h"
#include "support/size_demand.h"
#include "support/symbols.h"

namespace bolt::lower {
namespace {

using Steps = std::vector<ViewStep>;
using Result = std::optional<std::vector<Steps>>;
using Ints = std::vector<int64_t>;

ViewStep reshape_to(const Syms& sizes) { return {Op::reshape, {{"sizes", sizes}}}; }
ViewStep permute_by(const Ints& dims) { return {Op::permute, {{"dims", Call::syms(dims)}}}; }
ViewStep slice_of(int64_t dim, Sym start, Sym length, int64_t step) {
  return {Op::slice, graph::slice_attrs(dim, start, length, step)};
}
ViewStep drop(Call& c, int64_t dim) {
  Syms sizes = c.sizes("self");
  sizes.erase(sizes.begin() + dim);
  return reshape_to(sizes);
}

const Syms& self(Call& c) { return c.sizes("self"); }
int64_t rank(Call& c) { return c.rank("self"); }

// Operators that keep the row-major order of elements. Of static calls the recorded sizes say all; of others
// each says itself what it makes of the sizes.
Result reshaped(Call& c, const Syms& sizes) {
  if (c.is_static()) return std::vector<Steps>{{reshape_to(Call::syms(c.static_sizes()))}};
  return std::vector<Steps>{{reshape_to(sizes)}};
}
// One size may be -1: what is left of the elements.
Syms inferred(Call& c, Syms sizes, const Syms& of) {
  const Sym elements = product(of);
  Sym rest = 1;
  Sym* open = nullptr;
  for (Sym& s : sizes) {
    if (s.is_const(-1))
      open = &s;
    else
      rest *= s;
  }
  if (!open) return sizes;
  if (rest.is_const(0)) throw SizeDemand(elements);
  *open = floordiv(elements, rest);
  if (*open * rest == elements) return sizes;
  // What does not divide as expressions would have to be known to divide: most often a size that was given as
  // a number is one of the sizes there were.
  for (Sym s : of)
    if (!s.is_const() && std::find(sizes.begin(), sizes.end(), Sym(c.hint(s))) != sizes.end())
      throw SizeDemand(s);
  throw SizeDemand(elements, *open * rest);
}
Result view(Call& c) { return reshaped(c, inferred(c, c.syms(c.has("shape") ? "shape" : "size"), self(c))); }
Result view_as(Call& c) { return reshaped(c, c.sizes("other")); }
Result ravel(Call& c) { return reshaped(c, {product(self(c))}); }
Result flatten(Call& c) {
  const int64_t n = std::max<int64_t>(rank(c), 1);
  const int64_t first = Call::wrap(c.integer("start_dim"), n), last = Call::wrap(c.integer("end_dim"), n);
  Syms sizes;
  for (int64_t d = 0; d < rank(c); ++d) {
    if (d > first && d <= last)
      sizes.back() *= self(c)[d];
    else
      sizes.push_back(self(c)[d]);
  }
  return reshaped(c, sizes);
}
Result unflatten(Call& c) {
  const int64_t dim = Call::wrap(c.integer("dim"), rank(c));
  const Syms parts = inferred(c, c.syms("sizes"), {self(c)[dim]});
  Syms sizes = self(c);
  sizes.erase(sizes.begin() + dim);
  sizes.insert(sizes.begin() + dim, parts.begin(), parts.end());
  return reshaped(c, sizes);
}
// A symbol is never 1, unless it is data.
Result squeeze(Call& c) {
  auto is_one = [&](Sym size) {
    return size.is_const(1) || (holds_data_size(size) && c.decide(size, Relation::eq, 1));
  };
  std::vector<bool> asked(self(c).size(), !c.has("dim"));
  if (c.has("dim"))
    for (int64_t d : c.integers("dim"))
      if (rank(c)) asked[Call::wrap(d, rank(c))] = true;
  Syms sizes;
  for (size_t d = 0; d < asked.size(); ++d)
    if (!asked[d] || !is_one(self(c)[d])) sizes.push_back(self(c)[d]);
  return reshaped(c, sizes);
}
Result unsqueeze(Call& c) {
  Syms sizes = self(c);
  sizes.insert(sizes.begin() + Call::wrap(c.integer("dim"), rank(c) + 1), 1);
  return reshaped(c, sizes);
}
// Same elements, same shape: detach, alias, contiguous, to (a change of dtype is added by the caller for
// copies).
Result identity(Call&) { return std::vector<Steps>{{}}; }

Result permute(Call& c) {
  Ints dims = c.integers("dims");
  for (auto& d : dims) d = Call::wrap(d, rank(c));
  return std::vector<Steps>{{permute_by(dims)}};
}
Result swap_dims(Call& c, int64_t a, int64_t b) {
  Ints dims(rank(c));
  std::iota(dims.begin(), dims.end(), 0);
  if (!dims.empty()) std::swap(dims[Call::wrap(a, rank(c))], dims[Call::wrap(b, rank(c))]);
  return std::vector<Steps>{{permute_by(dims)}};
}
Result transpose(Call& c) { return swap_dims(c, c.integer("dim0"), c.integer("dim1")); }
Result swapaxes(Call& c) { return swap_dims(c, c.integer("axis0"), c.integer("axis1")); }
Result matrix_transpose(Call& c) {
  if (rank(c) < 2) return std::vector<Steps>{{}};
  return swap_dims(c, -1, -2);
}
Result reverse_dims(Call& c) {
  Ints dims(rank(c));
  std::iota(dims.rbegin(), dims.rend(), 0);
  return std::vector<Steps>{{permute_by(dims)}};
}
Result movedim(Call& c) {
  Ints from = c.integers("source"), to = c.integers("destination");
  int64_t n = rank(c);
  if (n == 0) return std::vector<Steps>{{permute_by({})}};  // dimension 0 of a number
  Ints dims(n, -1);
  std::vector<bool> used(n, false);
  for (size_t i = 0; i < from.size(); ++i) {
    dims[Call::wrap(to[i], n)] = Call::wrap(from[i], n);
    used[Call::wrap(from[i], n)] = true;
  }
  int64_t next = 0;
  for (auto& d : dims) {
    if (d >= 0) continue;
    while (used[next]) ++next;
    d = next++;
  }
  return std::vector<Steps>{{permute_by(dims)}};
}

Result expanded(const Syms& sizes) { return std::vector<Steps>{{{Op::expand, {{"sizes", sizes}}}}}; }
Result expand(Call& c) {  // -1: as it is
  Syms sizes = c.syms("size");
  const size_t grown = sizes.size() - self(c).size();
  for (size_t d = grown; d < sizes.size(); ++d)
    if (sizes[d].is_const(-1)) sizes[d] = self(c)[d - grown];
  return expanded(sizes);
}
Result expand_as(Call& c) { return expanded(c.sizes("other")); }

Result broadcast_tensors(Call& c) {
  Syms all;
  for (const Value* t : c.tensors("tensors")) all = graph::broadcast(all, t->type.sizes);
  return std::vector<Steps>(c.tensors("tensors").size(), {{Op::expand, {{"sizes", all}}}});
}

Result slice(Call& c) {
  const SliceOfDim cut = cut_by_slice(c);
  return std::vector<Steps>{{slice_of(cut.dim, cut.start, cut.length, cut.step)}};
}
Result narrow(Call& c) {
  const int64_t dim = Call::wrap(c.integer("dim"), rank(c));
  const Sym start = from_start(c, c.sym("start"), self(c)[dim]), length = c.sym("length");
  if (!c.decide(start + length, Relation::le, self(c)[dim])) return std::nullopt;
  return std::vector<Steps>{{slice_of(dim, start, length, 1)}};
}
Result select(Call& c) {
  const int64_t dim = Call::wrap(c.integer("dim"), rank(c));
  const Sym size = self(c)[dim], index = from_start(c, c.sym("index"), size);
  if (c.decide(index, Relation::lt, 0) || !c.decide(index, Relation::lt, size)) return std::nullopt;
  return std::vector<Steps>{{slice_of(dim, index, 1, 1), drop(c, dim)}};
}
// Consecutive pieces along dim.
Result cut(int64_t dim, const Syms& lengths) {
  Sym start = 0;
  std::vector<Steps> out;
  for (Sym length : lengths) {
    out.push_back({slice_of(dim, start, length, 1)});
    start += length;
  }
  return out;
}
// Each as long as it was recorded.
Result pieces(Call& c) {
  const int64_t dim = Call::wrap(c.integer("dim"), rank(c));
  self(c)[dim].value();
  for (const char* name : {"split_size", "split_sizes", "chunks", "sections"})
    if (c.is_symbolic(name)) c.integers(name);
  Syms lengths;
  for (int i = 0; i < c.result_count(); ++i) lengths.push_back(c.result_size(i, dim));
  return cut(dim, lengths);
}
// Into as many pieces as recorded, the last one takes what is left.
Result split_by(Call& c, Sym most) {
  const int64_t dim = Call::wrap(c.integer("dim"), rank(c));
  const Sym size = self(c)[dim], before = most * Sym(c.result_count() - 1);
  if ((size.is_const() && most.is_const()) || !c.decide(before, Relation::lt, size) ||
      !c.decide(size, Relation::le, before + most))
    return pieces(c);
  Syms lengths(static_cast<size_t>(c.result_count()), most);
  lengths.back() = size - before;
  return cut(dim, lengths);
}
Result split(Call& c) { return split_by(c, c.sym("split_size")); }
Result chunk(Call& c) {
  const Sym size = self(c)[Call::wrap(c.integer("dim"), rank(c))];
  return split_by(c, ceildiv(size, c.integer("chunks")));
}
// The first size % sections pieces are longer by one.
Result tensor_split(Call& c) {
  const Sym size = self(c)[Call::wrap(c.integer("dim"), rank(c))];
  const int64_t sections = c.integer("sections");
  if (size.is_const() || sections < 1) return pieces(c);
  const int64_t longer = c.hint(size) % sections;
  c.decide(mod(size, sections), Relation::eq, longer);
  Syms lengths;
  for (int64_t i = 0; i < sections; ++i)
    lengths.push_back(floordiv(size, sections) + Sym(i < longer ? 1 : 0));
  return cut(Call::wrap(c.integer("dim"), rank(c)), lengths);
}
Result split_with_sizes(Call& c) {
  const int64_t dim = Call::wrap(c.integer("dim"), rank(c));
  const char* name = c.has("split_sizes") ? "split_sizes" : "split_size";
  const Syms lengths = c.syms(name);
  Sym all = 0;
  for (Sym length : lengths) all += length;
  if (!same_size(all, self(c)[dim])) return std::nullopt;
  return cut(dim, lengths);
}
Result unbind(Call& c) {
  const int64_t dim = Call::wrap(c.integer("dim"), rank(c));
  std::vector<Steps> out;
  for (int64_t i = 0; i < self(c)[dim].value(); ++i) out.push_back({slice_of(dim, i, 1, 1), drop(c, dim)});
  return out;
}
Result flip(Call& c) {
  Ints dims = c.integers("dims");
  if (rank(c) == 0) return std::nullopt;  // dimension 0 of a number
  for (auto& d : dims) d = Call::wrap(d, rank(c));
  std::sort(dims.begin(), dims.end());
  return std::vector<Steps>{{{Op::flip, {{"dims", Call::syms(dims)}}}}};
}
/// Of elements that lie as `place` says, in whatever self is.
Result strided(Call& c, const Syms& sizes, std::function<Place(const Syms&)> place) {
  const auto [strides, offset] = place(graph::contiguous_strides(self(c)));
  return std::vector<Steps>{{{Op::as_strided,
                              {{"sizes", sizes}, {"strides", strides}, {"offset", Syms{offset}}},
                              std::move(place)}}};
}
// Windows every `step` along dim, as a new last dimension.
std::function<Place(const Syms&)> windows_along(size_t dim, int64_t step) {
  return [dim, step](Syms strides) {
    const Sym along = strides[dim];
    strides[dim] = along * Sym(step);
    strides.push_back(along);
    return Place(strides, 0);
  };
}
Result unfold(Call& c) {
  const auto dim = static_cast<size_t>(Call::wrap(c.integer("dimension"), rank(c)));
  const int64_t step = c.integer("step");
  const Sym window = c.sym("size");
  Syms sizes = self(c);
  if (sizes.empty() || !c.decide(window, Relation::le, sizes[dim])) return std::nullopt;
  sizes[dim] = floordiv(sizes[dim] - window, step) + 1;
  sizes.push_back(window);
  return strided(c, sizes, windows_along(dim, step));
}
/// Positions along dimension d of a tensor of these sizes, in a shape that broadcasts to them.
Value* positions(const Make& make, const Syms& sizes, int64_t d) {
  Syms shape(sizes.size(), Sym(1));
  shape[d] = sizes[d];
  Value* i =
      make(Op::iota, {},
           {{"size", Syms{sizes[d]}}, {"dtype", DType::I64}, {"start", int64_t{0}}, {"step", int64_t{1}}});
  return make(Op::reshape, {i}, {{"sizes", shape}});
}

/// `before` with `v` on its k-th diagonal between d1 and d2: spread over the dimension that counts the
/// diagonal's elements, and taken where the other is in step with that.
Value* with_diagonal(const Make& make, Value* before, Value* v, int64_t d1, int64_t d2, int64_t k) {
  const Syms& sizes = before->type.sizes;
  const int64_t along = k >= 0 ? d1 : d2, other = k >= 0 ? d2 : d1, last = v->type.rank() - 1;
  if (v->type.sizes[last] != sizes[along]) {
    Syms whole = v->type.sizes;
    whole[last] = sizes[along];
    const DType t = v->type.dtype;
    Value* room = make(Op::full, {}, {{"value", number_as(0, t)}, {"dtype", t}, {"sizes", whole}});
    v = make(Op::slice_scatter, {room, v}, {{"dim", last}, {"start", Syms{0}}, {"step", int64_t{1}}});
  }
  Syms order, shape = sizes;
  for (int64_t d = 0, rest = 0; d < before->type.rank(); ++d)
    if (d != other) order.push_back(d == along ? last : rest++);
  shape[other] = 1;
  v = make(Op::reshape, {make(Op::permute, {v}, {{"dims", order}})}, {{"sizes", shape}});
  Value* shift = make(Op::full, {}, {{"value", std::abs(k)}, {"dtype", DType::I64}, {"sizes", Syms{}}});
  Value* ahead = make(Op::add, {positions(make, sizes, along), shift}, {});
  return make(Op::where, {make(Op::eq, {ahead, positions(make, sizes, other)}, {}), v, before}, {});
}

Result diagonal(Call& c) {
  const int64_t d1 = Call::wrap(c.integer("dim1"), rank(c)), d2 = Call::wrap(c.integer("dim2"), rank(c));
  const int64_t k = c.integer("offset");
  const Sym down = self(c)[d1] + Sym(std::min<int64_t>(k, 0)),
            along = self(c)[d2] - Sym(std::max<int64_t>(k, 0));
  const Sym shorter = c.decide(down, Relation::le, along) ? down : along;
  auto without_both = [d1, d2](const Syms& all) {
    Syms rest;
    for (int64_t i = 0; i < static_cast<int64_t>(all.size()); ++i)
      if (i != d1 && i != d2) rest.push_back(all[i]);
    return rest;
  };
  Syms sizes = without_both(self(c));
  sizes.push_back(c.decide(shorter, Relation::lt, 0) ? Sym(0) : shorter);
  Result result = strided(c, sizes, [=](const Syms& all) {
    Syms strides = without_both(all);
    strides.push_back(all[d1] + all[d2]);
    return Place(strides, k >= 0 ? all[d2] * Sym(k) : all[d1] * Sym(-k));
  });
  (*result)[0][0].inverse = [=](const Make& make, Value* before, Value* v) {
    return with_diagonal(make, before, v, d1, d2, k);
  };
  return result;
}

// Each of the tensors along a dimension of its own.
Result meshgrid(Call& c) {
  const std::vector<Value*> tensors = c.tensors("tensors");
  Syms all;
  for (const Value* t : tensors) all.push_back(product(t->type.sizes));
  std::vector<size_t> place(tensors.size());
  std::iota(place.begin(), place.end(), 0);
  if (c.has("indexing") && c.text("indexing") == "xy" && tensors.size() > 1) {
    std::swap(place[0], place[1]);
    std::swap(all[0], all[1]);
  }
  std::vector<Steps> out;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Syms own(tensors.size(), Sym(1));
    own[place[i]] = product(tensors[i]->type.sizes);
    out.push_back({reshape_to(own), {Op::expand, {{"sizes", all}}}});
  }
  return out;
}

/// Dimensions from the outermost in memory.
Ints outermost_first(const Ints& strides) {
  Ints order(strides.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return strides[a] > strides[b]; });
  return order;
}

/// Do the dimensions in this order, and no gaps, make up the memory of a tensor?
bool is_dense(const Ints& order, at::IntArrayRef sizes, at::IntArrayRef strides) {
  int64_t run = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const auto d = static_cast<size_t>(order[i]);
    if (sizes[d] != 1 && strides[d] != run) return false;
    run *= sizes[d];
  }
  return true;
}

/// What shows a part of so many elements as nested slices do: dimension by dimension in `order`, which is
/// outermost first, a stretch of what is left, taken apart. A write can go back through it.
std::optional<Steps> as_slices(int64_t count, const Ints& sizes, const Ints& strides, int64_t offset,
                               const Ints& order) {
  Ints shape{count};  // the last is what is not taken apart yet
  Steps steps{reshape_to(Call::syms(shape))};
  auto cut = [&](int64_t start, int64_t length) {
    const bool fits = start >= 0 && start + length <= shape.back();
    if (fits && length != shape.back())
      steps.push_back(slice_of(static_cast<int64_t>(shape.size()) - 1, start, length, 1));
    if (fits) shape.back() = length;
    return fits;
  };
  for (const int64_t d : order) {
    const int64_t size = sizes[d], stride = strides[d];
    if (size == 1) continue;
    if (stride <= 0) return std::nullopt;
    const int64_t block = shape.back(), last = block - size * stride;
    const int64_t start = std::min(block % stride ? offset : offset - offset % stride, last);
    if (!cut(start, size * stride)) return std::nullopt;
    offset -= start;
    shape.back() = size;
    shape.push_back(stride);
    steps.push_back(reshape_to(Call::syms(shape)));
  }
  if (!cut(offset, 1)) return std::nullopt;
  return steps;
}

/// Frames of a signal: windows along the rows that self makes up, as many as there are.
Result windows_of_rows(Call& c) {
  const Syms from = self(c), sizes = c.syms("size"), strides = c.syms("stride");
  if (sizes.size() < 2 || !strides.back().is_const(1)) return std::nullopt;
  const size_t last = sizes.size() - 2;
  const Sym step = strides[last], window = sizes.back();
  if (!step.is_const() || step.value() <= 0) return std::nullopt;
  Syms rows(sizes.begin(), sizes.begin() + last);
  rows.push_back(last > 0 ? strides[last - 1] : product(from));
  const Syms along = graph::contiguous_strides(rows);
  if (product(rows) != product(from) || !std::equal(along.begin(), along.end() - 1, strides.begin()))
    return std::nullopt;
  if (sizes[last] != floordiv(rows[last] - window, step) + 1) return std::nullopt;
  if (rows == from) return strided(c, sizes, windows_along(last, step.value()));
  return std::vector<Steps>{
      {reshape_to(rows),
       {Op::as_strided, {{"sizes", sizes}, {"strides", strides}, {"offset", Syms{Sym(0)}}}}}};
}

// Of sizes that differ: where all of self is shown, row by row, as in the gradient of what was written
// through a view of all of something, or windows of each row.
Result of_rows(Call& c) {
  const record::TensorInfo& from = c.recorded("self");
  const Syms sizes = c.syms("size");
  const Ints inside = outermost_first(Ints(from.strides.begin(), from.strides.end()));
  const bool lies_so = is_dense(inside, from.sizes, from.strides) && std::ranges::is_sorted(inside);
  const bool begins_there = !c.has("storage_offset") || c.sym("storage_offset").is_const(from.offset);
  if (!lies_so || !begins_there) return std::nullopt;
  if (product(sizes) != product(self(c)) || c.syms("stride") != graph::contiguous_strides(sizes))
    return windows_of_rows(c);
  return std::vector<Steps>{{reshape_to(sizes)}};
}

// Positions count from the storage's beginning, whatever self is a view of; so self must lie there without
// gaps. Where the result shows every element once, it is another order of dimensions, or nested slices in
// another order, which a write can go back through.
Result as_strided(Call& c) {
  if (!c.is_static()) return of_rows(c);
  const record::TensorInfo& from = c.recorded("self");
  const Ints sizes = c.integers("size"), strides = c.integers("stride");
  const int64_t offset = c.has("storage_offset") ? c.integer("storage_offset") - from.offset : 0;
  const Ints inside = outermost_first(Ints(from.strides.begin(), from.strides.end()));
  const int64_t count = c10::multiply_integers(from.sizes);
  if (count == 0 || c10::multiply_integers(sizes) == 0 || !is_dense(inside, from.sizes, from.strides))
    return std::nullopt;
  int64_t last = offset;
  for (size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * strides[d];
  if (offset < 0 || last >= count) return std::nullopt;
  const Ints order = outermost_first(strides);
  Steps as_it_lies;
  if (!std::ranges::is_sorted(inside)) as_it_lies.push_back(permute_by(inside));
  auto from_there = [&](const Steps& more) {
    Steps all = as_it_lies;
    all.insert(all.end(), more.begin(), more.end());
    return std::vector<Steps>{std::move(all)};
  };
  std::optional<Steps> steps = as_slices(count, sizes, strides, offset, order);
  if (!steps)
    return from_there(
        {{Op::as_strided,
          {{"sizes", Call::syms(sizes)}, {"strides", Call::syms(strides)}, {"offset", Syms{offset}}}}});
  Ints in_order, position(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    in_order.push_back(sizes[order[i]]);
    position[order[i]] = static_cast<int64_t>(i);
  }
  if (c10::multiply_integers(sizes) == count) steps->clear();
  steps->push_back(reshape_to(Call::syms(in_order)));
  steps->push_back(permute_by(position));
  return from_there(*steps);
}

/// A tensor of its own to the tape, and to the graph the same value.
std::vector<Value*> keep(Call& c) { return {c.make(Op::keep, {c.tensor("self")})}; }
std::vector<Value*> keep_of_piece(Call& c) {
  return {c.make(Op::keep, {c.tensor("self")}, {{"piece", true}})};
}

}  // namespace

void add_views(Table& t) {
  const RowsByName row{t};
  row(view, {"view", "_unsafe_view", "_reshape_alias"});
  row(view_as, {"view_as"});
  row.add({.view = view, .copies = true}, {"reshape"});
  row.add({.view = view_as, .copies = true}, {"reshape_as"});
  row.add({.view = ravel, .copies = true}, {"ravel"});
  row.add({.view = flatten, .copies = true}, {"flatten.using_ints"});
  row(as_strided, {"as_strided"});
  row(unflatten, {"unflatten.int"});
  row(squeeze, {"squeeze", "squeeze.dim", "squeeze.dims"});
  row(unsqueeze, {"unsqueeze"});
  row(identity, {"alias", "contiguous", "to.dtype", "to.device", "to.other", "to.dtype_layout", "_to_copy",
                 "type_as", "view.dtype", "float", "cpu", "requires_grad_", "detach_copy", "alias_copy",
                 "resolve_conj", "resolve_neg"});
  t["torchbolt::keep"] = {.build = keep, .moves = true};
  t["torchbolt::keep_of_piece"] = {.build = keep_of_piece, .moves = true};
  row.add({.view = identity, .detaches = true}, {"detach"});
  row(permute, {"permute"});
  row(transpose, {"transpose.int", "swapdims"});
  row(swapaxes, {"swapaxes"});
  row(matrix_transpose, {"t", "mT", "mH", "matrix_H", "adjoint"});
  row(reverse_dims, {"numpy_T"});
  row(movedim, {"movedim.intlist", "movedim.int", "moveaxis.intlist", "moveaxis.int"});
  row(expand, {"expand", "broadcast_to"});
  row(expand_as, {"expand_as"});
  row(broadcast_tensors, {"broadcast_tensors"});
  row(slice, {"slice.Tensor"});
  row(narrow, {"narrow"});
  row(select, {"select.int"});
  row(split, {"split.Tensor", "unsafe_split.Tensor"});
  row(split_with_sizes, {"split.sizes", "split_with_sizes", "unsafe_split_with_sizes"});
  row(chunk, {"chunk", "unsafe_chunk"});
  row(tensor_split, {"tensor_split.sections"});
  row(unbind, {"unbind.int"});
  row(flip, {"flip"});
  row(unfold, {"unfold"});
  row(diagonal, {"diagonal"});
  row(meshgrid, {"meshgrid", "meshgrid.indexing"});
  // Those that give what they show in memory of its own.
  row(view, {"view_copy"});
  row(expand, {"expand_copy"});
  row(permute, {"permute_copy"});
  row(transpose, {"transpose_copy.int"});
  row(matrix_transpose, {"t_copy"});
  row(squeeze, {"squeeze_copy", "squeeze_copy.dim", "squeeze_copy.dims"});
  row(unsqueeze, {"unsqueeze_copy"});
  row(slice, {"slice_copy.Tensor"});
  row(narrow, {"narrow_copy"});
  row(select, {"select_copy.int"});
  row(split, {"split_copy.Tensor"});
  row(split_with_sizes, {"split_with_sizes_copy"});
  row(unbind, {"unbind_copy.int"});
  row(unfold, {"unfold_copy"});
  row(diagonal, {"diagonal_copy"});
  // In-place views change the geometry of the tensor that they are called on.
  row(squeeze, {"squeeze_", "squeeze_.dim", "squeeze_.dims"});
  row(unsqueeze, {"unsqueeze_"});
  row(transpose, {"transpose_", "swapdims_"});
  row(swapaxes, {"swapaxes_"});
  row(matrix_transpose, {"t_"});
  row(identity, {"detach_"});
  t.erase("aten::view.dtype");  // reinterprets bits: stays ATen's
}

}  // namespace bolt::lower

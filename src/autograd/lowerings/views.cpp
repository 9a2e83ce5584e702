// autograd/lowerings/views.cpp
// Rows for operators that only look at the same elements differently. Whether the result was a view or a copy
// is not decided here: the recorded storages say it.
#include <algorithm>
#include <numeric>

#include "autograd/lowering.h"
#include "support/error.h"

namespace bolt::autograd {
namespace {

using Steps = std::vector<ViewStep>;
using Result = std::optional<std::vector<Steps>>;
using Ints = std::vector<int64_t>;

ViewStep reshape_to(const Ints& sizes) { return {Op::reshape, {{"sizes", Call::syms(sizes)}}}; }
ViewStep permute_by(const Ints& dims) { return {Op::permute, {{"dims", Call::syms(dims)}}}; }
ViewStep slice_of(int64_t dim, int64_t start, int64_t length, int64_t step) {
  return {Op::slice,
          {{"dim", dim},
           {"start", std::vector<Sym>{start}},
           {"length", std::vector<Sym>{length}},
           {"step", step}}};
}

// The name of the first tensor argument differs between operators; its facts are those of the only tensor.
const record::TensorInfo& self(Call& c) { return c.info("self"); }
int64_t rank(Call& c) { return static_cast<int64_t>(self(c).sizes.size()); }

// Any operator that keeps the row-major order of elements: its recorded sizes say all.
Result as_reshape(Call& c) {
  std::vector<Steps> out;
  for (int i = 0; i < c.result_count(); ++i) out.push_back({reshape_to(c.result(i).sizes)});
  return out;
}
// Same elements, same shape: detach, alias, contiguous, to (a change of dtype is added by the caller for
// copies).
Result identity(Call& c) {
  if (c.result().sizes != self(c).sizes) return std::nullopt;
  return std::vector<Steps>{{}};
}

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

Result expand(Call& c) {
  return std::vector<Steps>{{{Op::expand, {{"sizes", Call::syms(c.result().sizes)}}}}};
}

Result slice(Call& c) {
  int64_t dim = Call::wrap(c.integer("dim"), rank(c)), size = self(c).sizes[dim];
  int64_t start = c.has("start") ? c.integer("start") : 0;
  if (start < 0) start += size;
  start = std::clamp<int64_t>(start, 0, size);
  return std::vector<Steps>{{slice_of(dim, start, c.result().sizes[dim], c.integer("step"))}};
}
Result narrow(Call& c) {
  int64_t dim = Call::wrap(c.integer("dim"), rank(c)), start = c.integer("start");
  if (start < 0) start += self(c).sizes[dim];
  return std::vector<Steps>{{slice_of(dim, start, c.result().sizes[dim], 1)}};
}
Result select(Call& c) {
  int64_t dim = Call::wrap(c.integer("dim"), rank(c)), index = c.integer("index");
  if (index < 0) index += self(c).sizes[dim];
  return std::vector<Steps>{{slice_of(dim, index, 1, 1), reshape_to(c.result().sizes)}};
}
// split, chunk: consecutive pieces along dim, each as long as it was recorded.
Result pieces(Call& c) {
  int64_t dim = Call::wrap(c.integer("dim"), rank(c)), start = 0;
  std::vector<Steps> out;
  for (int i = 0; i < c.result_count(); ++i) {
    int64_t length = c.result(i).sizes[dim];
    out.push_back({slice_of(dim, start, length, 1)});
    start += length;
  }
  return out;
}
Result unbind(Call& c) {
  int64_t dim = Call::wrap(c.integer("dim"), rank(c));
  std::vector<Steps> out;
  for (int i = 0; i < c.result_count(); ++i)
    out.push_back({slice_of(dim, i, 1, 1), reshape_to(c.result(i).sizes)});
  return out;
}
Result flip(Call& c) {
  Ints dims = c.integers("dims");
  for (auto& d : dims) d = Call::wrap(d, rank(c));
  std::sort(dims.begin(), dims.end());
  return std::vector<Steps>{{{Op::flip, {{"dims", Call::syms(dims)}}}}};
}
// Windows of `size` every `step` along dim, as a new last dimension.
Result unfold(Call& c) {
  const auto& x = self(c);
  int64_t dim = Call::wrap(c.integer("dimension"), rank(c)), size = c.integer("size"),
          step = c.integer("step");
  auto contiguous = graph::contiguous_strides(Call::syms(x.sizes));
  auto strides = contiguous;
  if (strides.empty()) return std::nullopt;
  Sym along = strides[dim];
  strides[dim] = along * Sym(step);
  strides.push_back(along);
  (void)size;
  return std::vector<Steps>{
      {{Op::as_strided,
        {{"sizes", Call::syms(c.result().sizes)}, {"strides", strides}, {"offset", std::vector<Sym>{0}}}}}};
}
Result diagonal(Call& c) {
  const auto& x = self(c);
  int64_t d1 = Call::wrap(c.integer("dim1"), rank(c)), d2 = Call::wrap(c.integer("dim2"), rank(c));
  int64_t k = c.integer("offset");
  auto dense = graph::contiguous_strides(Call::syms(x.sizes));
  std::vector<Sym> strides;
  for (int64_t i = 0; i < rank(c); ++i)
    if (i != d1 && i != d2) strides.push_back(dense[i]);
  strides.push_back(dense[d1] + dense[d2]);
  Sym offset = k >= 0 ? dense[d2] * Sym(k) : dense[d1] * Sym(-k);
  return std::vector<Steps>{{{Op::as_strided,
                              {{"sizes", Call::syms(c.result().sizes)},
                               {"strides", strides},
                               {"offset", std::vector<Sym>{offset}}}}}};
}

}  // namespace

void add_views(Table& t) {
  auto row = [&t](Viewer v, std::initializer_list<const char*> names) {
    for (const char* n : names) t["aten::" + std::string(n)] = {nullptr, v};
  };
  row(as_reshape, {"view", "reshape", "_unsafe_view", "_reshape_alias", "flatten.using_ints", "unflatten.int",
                   "squeeze", "squeeze.dim", "squeeze.dims", "unsqueeze", "view_as", "reshape_as", "ravel"});
  row(identity,
      {"detach", "alias", "contiguous", "to.dtype", "to.device", "to.other", "to.dtype_layout", "_to_copy",
       "type_as", "view.dtype", "float", "cpu", "requires_grad_", "detach_copy", "alias_copy"});
  row(permute, {"permute"});
  row(transpose, {"transpose.int", "swapdims"});
  row(swapaxes, {"swapaxes"});
  row(matrix_transpose, {"t", "mT", "adjoint"});
  row(reverse_dims, {"numpy_T"});
  row(movedim, {"movedim.intlist", "movedim.int", "moveaxis.intlist", "moveaxis.int"});
  row(expand, {"expand", "expand_as", "broadcast_to"});
  row(slice, {"slice.Tensor"});
  row(narrow, {"narrow"});
  row(select, {"select.int"});
  row(pieces, {"split.Tensor", "split.sizes", "split_with_sizes", "chunk", "tensor_split.sections",
               "unsafe_chunk", "unsafe_split.Tensor", "unsafe_split_with_sizes"});
  row(unbind, {"unbind.int"});
  row(flip, {"flip"});
  row(unfold, {"unfold"});
  row(diagonal, {"diagonal"});
  // These change the geometry of the tensor they are called on.
  row(as_reshape, {"squeeze_", "squeeze_.dim", "squeeze_.dims", "unsqueeze_"});
  row(transpose, {"transpose_", "swapdims_"});
  row(swapaxes, {"swapaxes_"});
  row(matrix_transpose, {"t_"});
  row(identity, {"detach_"});
  t.erase("aten::view.dtype");  // reinterprets bits: stays ATen's
}

}  // namespace bolt::autograd

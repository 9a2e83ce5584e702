// lower/lowerings/indexing.cpp
// Rows for joining, padding and reading at computed positions.
//
// Eager checks indices and raises; a kernel must not read out of bounds nor change that: it reports a bad
// index (loops/kernel.h), and the call is run again by eager, which raises.
#include "lower/lowering.h"
#include "record/convert.h"

namespace bolt::lower {
namespace {

using record::to_bolt;

std::vector<Value*> cat(Call& c) {
  DType t = c.result_dtype();
  std::vector<Value*> parts;
  for (Value* v : c.tensors("tensors")) {
    // ATen skips the legacy empty 1-d tensor
    if (v->type.rank() == 1 && v->type.sizes[0].is_const(0) && c.result_rank() != 1) continue;
    parts.push_back(c.cast(v, t));
  }
  int64_t dim = Call::wrap(c.integer("dim"), c.result_rank());
  if (parts.size() == 1) return {parts[0]};
  return {c.make(Op::cat, parts, {{"dim", dim}})};
}

std::vector<Value*> stack(Call& c) {
  DType t = c.result_dtype();
  int64_t dim = Call::wrap(c.integer("dim"), c.result_rank());
  std::vector<Value*> parts;
  for (Value* v : c.tensors("tensors")) {
    Syms sizes = v->type.sizes;
    sizes.insert(sizes.begin() + dim, 1);
    parts.push_back(c.reshape(c.cast(v, t), sizes));
  }
  if (parts.size() == 1) return {parts[0]};
  return {c.make(Op::cat, parts, {{"dim", dim}})};
}

std::vector<Value*> pad(Call& c) {
  if (c.has("mode") && c.text("mode") != "constant") return {};
  Value* x = c.tensor("self");
  auto amounts = c.syms("pad");
  int rank = x->type.rank();
  Syms low(rank, 0), high(rank, 0);
  for (size_t i = 0; i + 1 < amounts.size(); i += 2) {
    low[rank - 1 - i / 2] = amounts[i];
    high[rank - 1 - i / 2] = amounts[i + 1];
  }
  c.decide_layout_of_pad();
  double value = c.has("value") ? c.number("value") : 0.0;
  if (x->type.dtype == DType::Bool) value = value != 0;
  return {c.make(Op::pad, {x}, {{"low", low}, {"high", high}, {"value", value}})};
}

std::vector<Value*> embedding(Call& c) {
  return {c.make(Op::embedding, {c.tensor("weight"), c.tensor("indices")})};
}
std::vector<Value*> index_select(Call& c) {
  Value* x = c.tensor("self");
  if (x->type.rank() == 0 || c.tensor("index")->type.rank() != 1) return {};
  return {c.make(Op::index_select, {x, c.tensor("index")},
                 {{"dim", Call::wrap(c.integer("dim"), x->type.rank())}})};
}
std::vector<Value*> gather(Call& c) {
  Value* x = c.tensor("self");
  if (x->type.rank() == 0 || x->type.rank() != c.tensor("index")->type.rank()) return {};
  return {
      c.make(Op::gather, {x, c.tensor("index")}, {{"dim", Call::wrap(c.integer("dim"), x->type.rank())}})};
}

// x[index] with one integer index along the first dimension: an embedding, negative indices counted from the
// end.
std::vector<Value*> index(Call& c) {
  Value* x = c.tensor("self");
  auto indices = c.tensors("indices");
  if (indices.size() != 1 || !indices[0] || !is_int(indices[0]->type.dtype)) return {};
  if (indices[0]->type.dtype == DType::U8) return {};
  auto number = [&](Sym v) { return c.make(Op::scalar, {}, {{"value", Syms{v}}, {"dtype", DType::I64}}); };
  Value* i = c.cast(indices[0], DType::I64);
  Value* from_end = c.make(Op::add, {i, number(x->type.sizes[0])});
  i = c.make(Op::where, {c.make(Op::lt, {i, number(0)}), from_end, i});
  return {c.make(Op::embedding, {x, i})};
}

std::vector<Value*> repeat(Call& c) {
  Value* x = c.tensor("self");
  auto times = c.syms("repeats");
  int extra = static_cast<int>(times.size()) - x->type.rank();
  Syms split, wide, final;
  for (size_t i = 0; i < times.size(); ++i) {
    Sym size = static_cast<int>(i) < extra ? Sym(1) : x->type.sizes[i - extra];
    split.insert(split.end(), {Sym(1), size});
    wide.insert(wide.end(), {times[i], size});
    final.push_back(times[i] * size);
  }
  Value* v = c.make(Op::reshape, {x}, {{"sizes", split}});
  v = c.make(Op::expand, {v}, {{"sizes", wide}});
  return {c.make(Op::reshape, {v}, {{"sizes", final}})};
}

std::vector<Value*> repeat_interleave(Call& c) {  // by one number
  Value* x = c.tensor("self");
  if (!c.has("dim")) return {};
  int64_t dim = Call::wrap(c.integer("dim"), x->type.rank());
  Syms split = x->type.sizes, wide;
  split.insert(split.begin() + dim + 1, 1);
  wide = split;
  wide[dim + 1] = c.sym("repeats");
  Value* v = c.make(Op::reshape, {x}, {{"sizes", split}});
  v = c.make(Op::expand, {v}, {{"sizes", wide}});
  split.erase(split.begin() + dim + 1);
  split[dim] *= c.sym("repeats");
  return {c.reshape(v, split)};
}

std::vector<Value*> roll(Call& c) {
  Value* x = c.tensor("self");
  auto shifts = c.integers("shifts"), dims = c.integers("dims");
  if (dims.size() != shifts.size() || dims.empty()) return {};
  for (size_t i = 0; i < dims.size(); ++i) {
    int64_t dim = Call::wrap(dims[i], x->type.rank()), n = x->type.sizes[dim].value();
    if (n == 0) return {};
    int64_t by = ((shifts[i] % n) + n) % n;
    if (by == 0) continue;
    auto part = [&](int64_t start, int64_t length) {
      return c.make(Op::slice, {x},
                    {{"dim", dim}, {"start", Syms{start}}, {"length", Syms{length}}, {"step", int64_t{1}}});
    };
    x = c.make(Op::cat, {part(n - by, by), part(0, n - by)}, {{"dim", dim}});
  }
  return {x};
}

std::vector<Value*> slice_scatter(Call& c) {
  Value* x = c.tensor("self");
  int64_t dim = Call::wrap(c.integer("dim"), x->type.rank()), size = x->type.sizes[dim].value();
  int64_t start = c.has("start") ? c.integer("start") : 0;
  if (start < 0) start += size;
  start = std::clamp<int64_t>(start, 0, size);
  return {c.make(Op::slice_scatter, {x, c.tensor("src")},
                 {{"dim", dim}, {"start", Syms{start}}, {"step", c.integer("step")}})};
}

}  // namespace

void add_indexing(Table& t) {
  auto row = [&t](Builder b, std::initializer_list<const char*> names) {
    for (const char* n : names) t["aten::" + std::string(n)] = {b, nullptr};
  };
  row(cat, {"cat", "concat", "concatenate"});
  row(stack, {"stack"});
  row(pad, {"pad", "constant_pad_nd"});
  row(embedding, {"embedding"});
  row(index_select, {"index_select"});
  row(gather, {"gather"});
  row(index, {"index.Tensor"});
  row(repeat, {"repeat"});
  row(repeat_interleave, {"repeat_interleave.self_int"});
  row(roll, {"roll"});
  row(slice_scatter, {"slice_scatter"});
}

}  // namespace bolt::lower

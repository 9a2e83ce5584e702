// lower/lowerings/indexing.cpp
// Rows for joining, padding and reading at computed positions.
//
// Eager checks indices and raises; a kernel must not read out of bounds nor change that: it reports a bad
// index (loops/kernel.h), and the call is run again by eager, which raises.
#include <algorithm>

#include "loops/cost.h"
#include "lower/families.h"
#include "lower/formula.h"
#include "record/convert.h"

namespace bolt::lower {
namespace {

using record::to_bolt;

/// Of one kernel: a launch takes no more arguments, and small parts are looked through for every element.
constexpr size_t kMostParts = 256, kMostSmallParts = 64;
constexpr int64_t kSmallResult = 1 << 14;

/// Many parts are joined in several steps.
Value* joined(Call& c, std::vector<Value*> parts, int64_t dim) {
  Sym all = 0;
  for (const Value* v : parts) all += v->type.numel();
  const size_t most = all.value_or(kSmallResult + 1) > kSmallResult ? kMostParts : kMostSmallParts;
  while (parts.size() > most) {
    std::vector<Value*> fewer;
    for (size_t first = 0; first < parts.size(); first += most) {
      const size_t last = std::min(parts.size(), first + most);
      const std::vector<Value*> some(parts.begin() + static_cast<std::ptrdiff_t>(first),
                                     parts.begin() + static_cast<std::ptrdiff_t>(last));
      fewer.push_back(some.size() == 1 ? some[0] : c.make(Op::cat, some, {{"dim", dim}}));
    }
    parts = std::move(fewer);
  }
  return parts.size() == 1 ? parts[0] : c.make(Op::cat, std::move(parts), {{"dim", dim}});
}

std::vector<Value*> cat(Call& c) {
  DType t = c.result_dtype();
  std::vector<Value*> parts;
  for (Value* v : c.tensors("tensors")) {
    // ATen skips the legacy empty 1-d tensor
    if (v->type.rank() == 1 && v->type.sizes[0].is_const(0) && c.result_rank() != 1) continue;
    parts.push_back(c.cast(v, t));
  }
  int64_t dim = Call::wrap(c.integer("dim"), c.result_rank());
  return {joined(c, std::move(parts), dim)};
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
  return {joined(c, std::move(parts), dim)};
}

std::vector<Value*> pad(Call& c) {
  if (c.has("mode") && c.text("mode") != "constant") return bordered_pad(c);
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
  if (value != 0 && is_opaque(x->type.dtype)) return {};
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

std::vector<Value*> index(Call& c) {
  const Term x{&c, c.tensor("self")};
  const auto at = indexed(c, x.sizes());
  if (!at) return {};
  const Term rows = x.reshaped(at->flat);
  if (at->dim == 0) return {c.make(Op::embedding, {rows.value, at->place.value})};
  const Term line = at->place.reshaped({product(at->place.sizes())});
  return {c.reshape(c.make(Op::index_select, {rows.value, line.value}, {{"dim", at->dim}}), at->whole)};
}

std::vector<Value*> repeat(Call& c) {
  Value* x = c.tensor("self");
  auto times = c.syms(c.has("repeats") ? "repeats" : "dims");
  while (static_cast<int>(times.size()) < x->type.rank()) times.insert(times.begin(), Sym(1));  // tile
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
  if (!c.has("dim")) x = c.reshape(x, {x->type.numel()});
  int64_t dim = c.has("dim") ? Call::wrap(c.integer("dim"), x->type.rank()) : 0;
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

/// x as one line, read at places that may count from its end.
std::vector<Value*> take(Call& c) {
  const Term x{&c, c.tensor("self")};
  const Sym size = x.value->type.numel();
  if (size.is_const(0)) return {};
  const Formula f(c, DType::I64);
  const Term counted = from_start(f, f("index"), size);
  return {c.make(Op::embedding, {x.reshaped({size}).value, counted.value})};
}

/// Matrices along a diagonal, zeros elsewhere.
std::vector<Value*> block_diag(Call& c) {
  const DType t = c.result_dtype();
  std::vector<Term> blocks;
  Sym columns = 0, height = 0;
  for (Value* v : c.tensors("tensors")) {
    Syms sizes = v->type.sizes;
    if (sizes.size() > 2) return {};
    while (sizes.size() < 2) sizes.insert(sizes.begin(), 1);
    blocks.push_back({&c, c.reshape(c.cast(v, t), sizes)});
    columns = columns + sizes[1];
    height = height + sizes[0];
  }
  if (!loops::places_blocks_well(c.result_device(), t, height * columns, blocks.size())) return {};
  std::vector<Value*> rows;
  Sym left = 0;
  for (Term block : blocks) {
    rows.push_back(placed(block, 1, left, columns).value);
    left = left + block.sizes()[1];
  }
  return {joined(c, std::move(rows), 0)};
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
      return c.make(Op::slice, {x}, graph::slice_attrs(dim, start, length));
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
std::vector<Value*> select_scatter(Call& c) {
  Value* x = c.tensor("self");
  const int64_t dim = Call::wrap(c.integer("dim"), x->type.rank());
  Sym index = c.sym("index");
  if (!c.decide(0, Relation::le, index)) index = index + x->type.sizes[dim];
  Syms one = x->type.sizes;
  one[dim] = 1;
  return {c.make(Op::slice_scatter, {x, c.reshape(c.cast(c.tensor("src"), x->type.dtype), one)},
                 {{"dim", dim}, {"start", Syms{index}}, {"step", int64_t{1}}})};
}

}  // namespace

Term from_start(const Formula& f, Term number, Sym size) {
  number = number.as(DType::I64);
  return where(number < 0, number + f.count(size), number);
}

std::optional<Indexed> indexed(Call& c, const Syms& sizes) {
  const std::vector<Value*> indices = c.tensors("indices");
  const auto is_given = [](const Value* v) { return v != nullptr; };
  const auto first = std::find_if(indices.begin(), indices.end(), is_given);
  const auto last = std::find_if(indices.rbegin(), indices.rend(), is_given).base();
  if (first == indices.end()) return std::nullopt;
  for (auto i = first; i != last; ++i)
    if (!*i || !is_int((*i)->type.dtype) || (*i)->type.dtype == DType::U8) return std::nullopt;
  const Formula f(c, DType::I64);
  const auto before = sizes.begin() + (first - indices.begin());
  std::optional<Term> place;
  Sym run = 1;
  auto size = before;
  for (auto i = first; i != last; ++i, ++size) {
    Term number = from_start(f, Term{&c, *i}, *size);
    if (last - first > 1) number = f.checked(number, *size);
    place = place ? *place * f.count(*size) + number : number;
    run *= *size;
  }
  Syms flat(sizes.begin(), before), whole = flat;
  flat.push_back(run);
  whole.insert(whole.end(), place->sizes().begin(), place->sizes().end());
  for (Syms* all : {&flat, &whole}) all->insert(all->end(), size, sizes.end());
  return Indexed{first - indices.begin(), *place, std::move(flat), std::move(whole)};
}

void add_indexing(Table& t) {
  const RowsByName row{t};
  row.moving(cat, {"cat", "concat", "concatenate"});
  row.moving(stack, {"stack"});
  row.moving(pad, {"pad", "constant_pad_nd"});
  row.moving(embedding, {"embedding"});
  row.moving(index_select, {"index_select"});
  row.moving(gather, {"gather"});
  row.moving(index, {"index.Tensor"});
  row.moving(repeat, {"repeat", "tile"});
  row.moving(repeat_interleave, {"repeat_interleave.self_int"});
  row.moving(take, {"take"});
  row.moving(block_diag, {"block_diag"});
  row.moving(roll, {"roll"});
  row.moving(slice_scatter, {"slice_scatter"});
  row.moving(select_scatter, {"select_scatter"});
}

}  // namespace bolt::lower

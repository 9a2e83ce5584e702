// lower/lowerings/scatters.cpp
// Rows for writes at computed places, of which several may meet: what is there is replaced, added to, or
// compared with.
//
// All are one operation of the graph, a tensor in which the elements of another go along one dimension to
// where an index says (ops.def). Whole rows at the numbers of a list (index_add, the gradient of an
// embedding) are that with the list repeated along the row, which costs nothing in a kernel; several indices
// are one into their dimensions as one. Where an index has one number for each row, nothing meets, and each
// element looks whether it is written.
//
// Half types are added up in float32: no sum is rounded at each of its terms. What stays ATen's, where our
// threads meet in any order (DeviceFacts::scatters_in_order): what adds up floats in one order there
// (index_put sorts first), and all of it where the user wants algorithms that give the same bits each time.
// Gradients of embeddings sort there, too, or take ten times as long as their bytes, so they are ours unless
// the user wants that; of half types they would need float32 memory as large as the embedding.
#include <ATen/Context.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "loops/cost.h"
#include "lower/families.h"
#include "lower/formula.h"

namespace bolt::lower {
namespace {

bool adds_in_order(const Call& c) { return graph::facts_of(c.result_device()).scatters_in_order; }

/// May it be ours at all? `op`: of the graph.
bool is_ours(Call& c, std::string_view op, DType t) {
  if (is_opaque(t) || (t == DType::Bool && op != "last")) return false;
  return adds_in_order(c) || !at::globalContext().deterministicAlgorithms();
}

/// Elements of `x` into `base` along `dim` at `index`, which is as large as x.
Term into(Term base, int64_t dim, Term index, Term x, const std::string& op) {
  if (product(index.sizes()).is_const(0)) return base;
  return {base.call,
          base.call->make(Op::scatter, {base.value, index.value, x.value}, {{"op", op}, {"dim", dim}})};
}
/// Rows of `x` into those of `base` at the numbers of a list.
Term rows_into(Term base, int64_t dim, Term list, Term x, const std::string& op) {
  return into(base, dim, along(list, dim, x.sizes().size()).expanded(x.sizes()), x, op);
}

/// The first elements of x in each dimension, as many as an index has.
Term first_of(Term x, const Syms& sizes) {
  for (size_t d = 0; d < sizes.size(); ++d)
    if (x.sizes()[d] != sizes[d]) x = x.part(static_cast<int64_t>(d), 0, sizes[d]);
  return x;
}

/// What is combined is computed in this type.
DType summing_type(DType t, std::string_view op) { return op == "last" ? t : compute_type(t); }

/// The number that changes nothing, as a value of type t.
Term neutral(Call& c, std::string_view op, DType t) {
  if (op == "sum" || op == "prod") return {&c, c.scalar_value(op == "sum" ? 0 : 1, t)};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (is_float(t)) return {&c, c.scalar_value(op == "max" ? -kInfinity : kInfinity, t)};
  const int bits = dtype_bytes(t) * 8 - (t != DType::U8);
  const int64_t most = bits >= 63 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << bits) - 1;
  const int64_t low = t == DType::U8 ? 0 : -most - 1;
  return {&c, c.scalar_value(c10::Scalar(op == "max" ? low : most), t)};
}

/// How each row of scatter_reduce is called here; nullptr: it has no row.
const char* operation_of(const std::string& reduce) {
  constexpr const char* kNames[][2] = {{"sum", "sum"},      {"prod", "prod"}, {"mean", "sum"},
                                       {"amax", "max"},     {"amin", "min"},  {"add", "sum"},
                                       {"multiply", "prod"}};
  for (const auto& [theirs, ours] : kNames)
    if (reduce == theirs) return ours;
  return nullptr;
}

// ---- by an index for each element ----

/// Where the row is written; nullptr: it is not of one element, or not of each row.
Value* written_place(Call& c, Term x) {
  Term index{&c, c.tensor("index")};
  if (x.rank() == 0 || index.rank() != x.rank()) return nullptr;
  const int64_t dim = Call::wrap(c.integer("dim"), x.rank());
  for (int64_t d = 0; d < x.rank(); ++d) {
    const auto at = static_cast<size_t>(d);
    if (d == dim ? !index.sizes()[at].is_const(1) : index.sizes()[at] != x.sizes()[at]) return nullptr;
  }
  const Sym size = x.sizes()[dim];
  if (size.is_const(0)) return nullptr;
  Formula f(c, DType::I64);
  return (f.places(size, dim, x.sizes().size()) == f.checked(index, size)).value;
}

/// self, index and what is written, numbers alone as rows of one.
struct Scattered {
  Term self, index, x;
  int64_t dim;
};
std::optional<Scattered> scattered(Call& c, const char* source, DType t) {
  Term self{&c, c.tensor("self")}, index{&c, c.tensor("index")};
  if (!is_int(index.dtype())) return std::nullopt;
  const bool of_number = !c.is_tensor(source);
  Term x{&c, c.operand(of_number ? "value" : source, t)};
  self = self.as(t);
  if (self.rank() == 0) self = self.reshaped({Sym(1)});
  if (index.rank() == 0) index = index.reshaped({Sym(1)});
  if (!of_number && x.rank() == 0) x = x.reshaped({Sym(1)});
  // An index of one row of no elements, too.
  if (index.rank() != self.rank() || (!of_number && x.rank() != index.rank())) return std::nullopt;
  x = of_number ? x.expanded(index.sizes()) : first_of(x, index.sizes());
  const int64_t dim = Call::wrap(c.integer("dim"), self.rank());
  if (self.sizes()[dim].is_const(0)) return std::nullopt;
  return Scattered{self, index, x, dim};
}

Results scatter(Call& c) {
  const DType t = c.result_dtype();
  Term self{&c, c.tensor("self")};
  const bool of_number = !c.is_tensor("src");
  if (!c.has("reduce") && (of_number || c.sizes("src") == c.sizes("index")))
    if (Value* here = written_place(c, self))
      return {where(Term{&c, here}, Term{&c, c.operand(of_number ? "value" : "src", t)}, self).value};
  const char* op = c.has("reduce") ? operation_of(c.text("reduce")) : "last";
  if (!op || !is_ours(c, op, t)) return {};
  const auto s = scattered(c, "src", summing_type(t, op));
  if (!s) return {};
  return {c.cast(c.reshape(into(s->self, s->dim, s->index, s->x, op).value, self.sizes()), t)};
}

Results scatter_add(Call& c) {
  const DType t = c.result_dtype();
  Term self{&c, c.tensor("self")};
  if (is_float(t) && c.sizes("src") == c.sizes("index"))
    if (Value* here = written_place(c, self))
      return {(self + where(Term{&c, here}, Term{&c, c.tensor("src")}, 0)).value};
  if (!is_ours(c, "sum", t)) return {};
  const auto s = scattered(c, "src", summing_type(t, "sum"));
  if (!s) return {};
  return {c.cast(c.reshape(into(s->self, s->dim, s->index, s->x, "sum").value, self.sizes()), t)};
}

/// `put`: elements into a base, combined so.
using Put = std::function<Term(Term base, Term x, const std::string& op)>;

/// Reduced with what is there, or in its place; a mean counts.
Term reduced_into(Call& c, const std::string& reduce, Term base, const Put& put, Term x) {
  const std::string op = operation_of(reduce);
  const bool with_base = c.flag("include_self"), means = reduce == "mean";
  const Formula f(c, DType::I64);
  const Term nothing = f.full(0, base.sizes()), ones = f.full(1, x.sizes());
  std::optional<Term> count;
  if (means || !with_base) count = put(nothing, ones, means ? "sum" : "last");
  Term start = with_base ? base : where(*count == 0, base, neutral(c, op, base.dtype()));
  Term sum = put(start, x, op);
  if (!means) return sum;
  Term by = with_base ? *count + 1 : larger(*count, f.number(1));
  by = by.as(base.dtype());
  return is_float(base.dtype()) ? sum / by : sum.with(Op::floor_div, by);
}

Results scatter_reduce(Call& c) {
  const DType t = c.result_dtype();
  const std::string reduce = c.text("reduce");
  const char* op = operation_of(reduce);
  if (!op || !is_ours(c, op, t)) return {};
  const auto s = scattered(c, "src", summing_type(t, op));
  if (!s) return {};
  auto put = [&](Term base, Term x, const std::string& how) { return into(base, s->dim, s->index, x, how); };
  return {c.cast(c.reshape(reduced_into(c, reduce, s->self, put, s->x).value, c.sizes("self")), t)};
}

// ---- rows by a list of numbers ----

/// self, the list, and the rows that are written.
struct Listed {
  Term self, list, x;
  int64_t dim;
};
std::optional<Listed> listed(Call& c, const char* source, DType t) {
  Term self{&c, c.tensor("self")}, list{&c, c.tensor("index")};
  if (!is_int(list.dtype()) || list.rank() > 1) return std::nullopt;
  list = list.reshaped({product(list.sizes())});
  self = self.as(t);
  if (self.rank() == 0) self = self.reshaped({Sym(1)});
  const int64_t dim = Call::wrap(c.integer("dim"), self.rank());
  if (self.sizes()[dim].is_const(0)) return std::nullopt;
  Syms sizes = self.sizes();
  sizes[dim] = list.sizes()[0];
  Term x{&c, c.operand(source, t)};
  if (x.rank() == 0) x = x.expanded(sizes);  // of one row, or the same for all
  if (x.sizes() != sizes) return std::nullopt;
  return Listed{self, list, x, dim};
}

Results of_rows(Call& c, const char* source, const char* op, bool from_end) {
  const DType t = c.result_dtype();
  if (!is_ours(c, op, t)) return {};
  auto l = listed(c, source, summing_type(t, op));
  if (!l) return {};
  if (from_end) l->list = from_start(Formula(c, DType::I64), l->list, l->self.sizes()[l->dim]);
  const Term x{&c, c.has("alpha") ? c.times(l->x.value, "alpha") : l->x.value};
  return {c.cast(c.reshape(rows_into(l->self, l->dim, l->list, x, op).value, c.sizes("self")), t)};
}
Results index_add(Call& c) { return of_rows(c, "source", "sum", false); }
Results index_copy(Call& c) { return of_rows(c, "source", "last", false); }
Results index_fill(Call& c) { return of_rows(c, "value", "last", true); }

Results index_reduce(Call& c) {
  const DType t = c.result_dtype();
  const std::string reduce = c.text("reduce");
  const char* op = operation_of(reduce);
  if (!op || !is_ours(c, op, t)) return {};
  const auto l = listed(c, "source", summing_type(t, op));
  if (!l) return {};
  auto put = [&](Term base, Term x, const std::string& how) {
    return rows_into(base, l->dim, l->list, x, how);
  };
  return {c.cast(c.reshape(reduced_into(c, reduce, l->self, put, l->x).value, c.sizes("self")), t)};
}

// Each row's gradient goes to where the row was read.
Results embedding_backward(Call& c) {
  const DType t = c.result_dtype();
  if (!is_ours(c, "sum", t) || (!adds_in_order(c) && is_half(t)) || c.flag("scale_grad_by_freq")) return {};
  const Formula f(c, compute_type(t));
  Term g = f("grad_output"), list{&c, c.tensor("indices")};
  const Sym count = product(list.sizes());
  if (count.is_const(0)) return {};
  list = list.reshaped({count}).as(DType::I64);
  const Sym width = g.sizes().back(), height = c.sym("num_weights");
  Term rows = g.reshaped({count, width});
  // No gradient for the row that pads.
  if (const int64_t pads = c.integer("padding_idx"); pads >= 0)
    rows = where(list.reshaped({count, Sym(1)}) == static_cast<double>(pads), 0, rows);
  return {f.result(rows_into(f.full(0, {height, width}), 0, list, rows, "sum"))};
}

// ---- by several indices ----

/// x[mask] = number
Results masked_put(Term self, Term mask, Term values, bool adds) {
  if (mask.rank() > self.rank() ||
      !std::equal(mask.sizes().begin(), mask.sizes().end(), self.sizes().begin()))
    return {};
  const auto rest = static_cast<size_t>(self.rank() - mask.rank());
  Syms upright = mask.sizes();
  for (size_t i = 0; i < rest; ++i) upright.push_back(1);
  // Values for each element that is true are as many as only the data say.
  if (values.sizes().size() > rest && !(values.sizes().size() == rest + 1 && values.sizes()[0].is_const(1)))
    return {};
  if (values.sizes().size() > rest)
    values = values.reshaped(Syms(values.sizes().begin() + 1, values.sizes().end()));
  mask = mask.reshaped(upright);
  if (adds && self.dtype() == DType::Bool) return {};
  return {where(mask, adds ? self + values : values.expanded(self.sizes()), self).value};
}

Results index_put(Call& c) {
  const DType t = c.result_dtype();
  const bool adds = c.flag("accumulate");
  const char* op = adds ? "sum" : "last";
  if (!is_ours(c, op, t) || (adds && !adds_in_order(c) && is_float(t))) return {};
  const std::vector<Value*> indices = c.tensors("indices");
  const Term self{&c, c.tensor("self")};
  Term values{&c, c.cast(c.tensor("values"), t)};
  if (std::count(indices.begin(), indices.end(), nullptr) == std::ssize(indices) - 1 && indices[0] &&
      indices[0]->type.dtype == DType::Bool)
    return masked_put(self, Term{&c, indices[0]}, values, adds);
  if (self.value->type.numel().is_const(0)) return {};
  const auto at = indexed(c, self.sizes());
  if (!at || values.sizes().size() > at->whole.size()) return {};
  const Sym count = product(at->place.sizes());
  Syms rows = at->flat;
  rows[at->dim] = 1;
  if (!adds && !loops::puts_well(c.result_device(), count, product(rows))) return {};
  rows[at->dim] = count;
  const DType sums = summing_type(t, op);
  const Term x = values.as(sums).expanded(at->whole).reshaped(rows), list = at->place.reshaped({count});
  const Term put = rows_into(self.as(sums).reshaped(at->flat), at->dim, list, x, op);
  return {c.cast(put.reshaped(self.sizes()).value, t)};
}

// At places of all elements in row-major order.
Results put(Call& c) {
  const DType t = c.result_dtype();
  const char* op = c.flag("accumulate") ? "sum" : "last";
  if (!is_ours(c, op, t)) return {};
  const DType sums = summing_type(t, op);
  Term self{&c, c.cast(c.tensor("self"), sums)}, index{&c, c.tensor("index")},
      x{&c, c.cast(c.tensor("source"), sums)};
  const Sym all = product(self.sizes()), count = product(index.sizes());
  if (all.is_const(0) || product(x.sizes()) != count) return {};
  if (!c.flag("accumulate") && !loops::puts_well(c.result_device(), count, 1)) return {};
  const Formula f(c, DType::I64);
  const Term list = from_start(f, index.reshaped({count}), all);
  return {
      c.cast(into(self.reshaped({all}), 0, list, x.reshaped({count}), op).reshaped(self.sizes()).value, t)};
}

/// What a pool took the largest of, back to where that was in its plane.
Results max_unpool(Call& c) {
  const DType t = c.result_dtype();
  const Term x{&c, c.tensor("self")}, index{&c, c.tensor("indices")};
  const Syms plane = c.syms("output_size");
  const auto dim = static_cast<std::ptrdiff_t>(x.sizes().size() - plane.size());
  Syms whole(x.sizes().begin(), x.sizes().begin() + dim), given = whole, flat = whole;
  const Sym count = product(Syms(x.sizes().begin() + dim, x.sizes().end())), planes = product(whole);
  if (!is_ours(c, "last", t) || x.sizes() != index.sizes() || (count * planes).is_const(0) ||
      !loops::puts_well(c.result_device(), count, planes))
    return {};
  given.push_back(count), flat.push_back(product(plane));
  whole.insert(whole.end(), plane.begin(), plane.end());
  const Term nothing = Formula(c, t).full(0, flat);
  return {into(nothing, dim, index.reshaped(given), x.reshaped(given), "last").reshaped(whole).value};
}

/// How many numbers lie in each of so many parts of a range, which takes its own end in.
Results histc(Call& c) {
  const Formula f(c);
  const DType t = c.result_dtype();
  if (!f.is_real() || is_half(t) || !is_ours(c, "sum", t)) return {};
  for (const char* number : {"bins", "min", "max"})
    if (c.is_symbolic(number)) return {};
  const double low = c.number("min"), high = c.number("max");
  const int64_t bins = c.integer("bins");
  if (!(low < high) || bins < 1) return {};  // the range is that of the data, or an error
  const Term all = f("self"), x = all.reshaped({all.value->type.numel()});
  const Term inside = (x >= low) & (x <= high);
  const Term part = where(inside, (x - low) * static_cast<double>(bins) / (high - low), 0.0).as(DType::I64);
  const Term zeros = f.full(0, {bins});
  return f.only(
      into(zeros, 0, smaller(part, part.number(static_cast<double>(bins - 1))), inside.as(f.type()), "sum"));
}

}  // namespace

void add_scatters(Table& t) {
  const RowsByName row{t};
  row(scatter, {"scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce"});
  row(scatter_add, {"scatter_add"});
  row(scatter_reduce, {"scatter_reduce.two"});
  row(index_add, {"index_add"});
  row(index_copy, {"index_copy"});
  row(histc, {"histc"});
  row(index_fill, {"index_fill.int_Scalar", "index_fill.int_Tensor"});
  row(index_reduce, {"index_reduce"});
  row(embedding_backward, {"embedding_dense_backward"});
  row(index_put, {"index_put", "_index_put_impl", "_unsafe_index_put"});
  row(put, {"put"});
  row(max_unpool, {"max_unpool2d", "max_unpool3d"});
}

}  // namespace bolt::lower

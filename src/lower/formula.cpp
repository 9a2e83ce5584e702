// lower/formula.cpp
#include "lower/formula.h"

namespace bolt::lower {

Term Term::expanded(const Syms& to) const {
  return sizes() == to ? *this : apply(Op::expand, {{"sizes", to}});
}
Term Term::part(int64_t dim, Sym start, Sym length) const {
  return apply(Op::slice, graph::slice_attrs(dim, start, length));
}
Term Term::reduced(Op op, const Syms& dims, bool keep) const {
  return dims.empty() ? *this : apply(op, {{"dims", dims}, {"keepdim", keep}});
}

Term operator-(Term a) { return a.apply(Op::neg); }
Term operator!(Term a) { return a.apply(Op::logical_not); }
Term operator+(Term a, Term b) { return a.with(Op::add, b); }
Term operator-(Term a, Term b) { return a.with(Op::sub, b); }
Term operator*(Term a, Term b) { return a.with(Op::mul, b); }
Term operator/(Term a, Term b) { return a.with(Op::div, b); }
Term operator<(Term a, Term b) { return a.with(Op::lt, b); }
Term operator<=(Term a, Term b) { return a.with(Op::le, b); }
Term operator>(Term a, Term b) { return a.with(Op::gt, b); }
Term operator>=(Term a, Term b) { return a.with(Op::ge, b); }
Term operator==(Term a, Term b) { return a.with(Op::eq, b); }
Term operator!=(Term a, Term b) { return a.with(Op::ne, b); }
Term operator&(Term a, Term b) { return a.with(Op::bitwise_and, b); }
Term operator|(Term a, Term b) { return a.with(Op::bitwise_or, b); }

Term where(Term condition, Term yes, Term no) {
  return {condition.call, condition.call->make(Op::where, {condition.value, yes.value, no.value})};
}

Term Formula::count(Sym n) const {
  if (n.is_const()) return number(static_cast<double>(n.value()));
  return Term{&c_, c_.make(Op::scalar, {}, {{"value", Syms{n}}, {"dtype", DType::I64}})}.as(type_);
}
Term Formula::places(Sym size, int64_t dim, size_t rank) const {
  Attrs run{{"size", Syms{size}}, {"start", int64_t{0}}, {"step", int64_t{1}}, {"dtype", DType::I64}};
  Syms along(rank, Sym(1));
  along[dim] = size;
  return Term{&c_, c_.make(Op::iota, {}, std::move(run))}.reshaped(along);
}
Term Formula::full(double v, const Syms& sizes) const {
  return {&c_, c_.make(Op::full, {}, {{"value", number_as(v, type_)}, {"dtype", type_}, {"sizes", sizes}})};
}
Term Formula::checked(Term index, Sym size) const {
  Term all = places(size, 0, 1);
  return {&c_, c_.make(Op::embedding, {all.value, index.as(DType::I64).value})};
}

Term padded(Term x, const Syms& low, const Syms& high, double value) {
  return x.apply(Op::pad, {{"low", low}, {"high", high}, {"value", value}});
}
Term permuted(Term x, const std::vector<int64_t>& dims) {
  return x.apply(Op::permute, {{"dims", Call::syms(dims)}});
}
Term placed(Term x, int64_t dim, Sym start, Sym size) {
  const auto d = static_cast<size_t>(dim);
  Syms low(x.sizes().size(), Sym(0)), high = low;
  low[d] = start;
  high[d] = size - start - x.sizes()[d];
  return padded(x, low, high);
}
Term taken(Term x, int64_t dim, Term places) {
  return {x.call, x.call->make(Op::index_select, {x.value, places.value}, {{"dim", dim}})};
}
Term reversed(Term x, int64_t dim) { return x.apply(Op::flip, {{"dims", Syms{dim}}}); }
Term along(Term run, int64_t dim, size_t rank) {
  Syms sizes(rank, Sym(1));
  sizes[dim] = run.sizes()[0];
  return run.reshaped(sizes);
}

Syms dims_between(int64_t first, int64_t last) {
  Syms dims;
  for (int64_t d = first; d < last; ++d) dims.push_back(d);
  return dims;
}
Syms dims_except(int64_t dim, int64_t rank) {
  Syms dims;
  for (int64_t d = 0; d < rank; ++d)
    if (d != dim) dims.push_back(d);
  return dims;
}

}  // namespace bolt::lower

// lower/lowerings/distances.cpp
// Rows for distances between rows of matrices, all with all (cdist) or one by one, and for their angles.
//
// The Euclidean distance of many rows is a product, as ATen has it: |a|^2 + |b|^2 - 2 a.b. All others run
// over the differences.
#include <cmath>

#include "lower/families.h"
#include "lower/formula.h"

namespace bolt::lower {
namespace {

/// The p-norm over the last dimension, which is dropped.
Term norm_of(Term x, double p) {
  const Syms last{static_cast<int64_t>(x.rank()) - 1};
  if (p == 0) return (x != 0.0).as(x.dtype()).sum(last, false);
  if (p == 1) return abs(x).sum(last, false);
  if (p == 2) return (x * x).sum(last, false).apply(Op::sqrt);
  if (std::isinf(p)) return abs(x).reduced(Op::amax, last, false);
  const Term sum = abs(x).with(Op::pow, x.number(p)).sum(last, false);
  return sum.with(Op::pow, sum.number(1 / p));
}

/// [.., P, M] and [.., R, M] -> [.., P, R, M].
Term differences(Term a, Term b) {
  Syms rows = a.sizes(), columns = b.sizes();
  rows.insert(rows.end() - 1, Sym(1));
  columns.insert(columns.end() - 2, Sym(1));
  return a.reshaped(rows) - b.reshaped(columns);
}

/// Of the last two dimensions.
Term turned(Term x) {
  std::vector<int64_t> order;
  for (int64_t d = 0; d < x.rank(); ++d) order.push_back(d);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return permuted(x, order);
}
Term euclidean_of(Term a, Term b) {
  auto squares = [](Term x) { return (x * x).sum({static_cast<int64_t>(x.rank()) - 1}); };
  const Term sum = (a * -2.0).with(Op::matmul, turned(b)) + squares(a) + turned(squares(b));
  return larger(sum, sum.number(0)).apply(Op::sqrt);
}
bool is_matrix(Term x) { return x.rank() >= 2 && !x.value->type.numel().is_const(0); }

Results euclidean(Call& c) {
  const Formula f(c);
  const Term a = f("x1"), b = f("x2");
  return f.is_real() && is_matrix(a) && is_matrix(b) ? f.only(euclidean_of(a, b)) : Results{};
}

// ATen takes the product for Euclidean distances of more than 25 rows, or as it is told.
Results cdist(Call& c) {
  const Formula f(c);
  const Term a = f("x1"), b = f("x2");
  const double p = c.number("p");
  if (!f.is_real() || !is_matrix(a) || !is_matrix(b)) return {};
  const int64_t mode = c.has("compute_mode") ? c.integer("compute_mode") : 0;
  auto many = [](Term x) { return x.sizes()[x.sizes().size() - 2].value() > 25; };
  if (p == 2 && (mode == 1 || (mode == 0 && (many(a) || many(b))))) return f.only(euclidean_of(a, b));
  return f.only(norm_of(differences(a, b), p));
}

Results pairwise_distance(Call& c) {
  const Formula f(c);
  const Term a = f("x1"), b = f("x2");
  if (!f.is_real() || (a.rank() == 0 && b.rank() == 0) || a.value->type.numel().is_const(0)) return {};
  Term distance = norm_of(a - b + c.number("eps"), c.number("p"));
  if (c.flag("keepdim")) {
    Syms kept = distance.sizes();
    kept.push_back(1);
    distance = distance.reshaped(kept);
  }
  return f.only(distance);
}

}  // namespace

void add_distances(Table& t) {
  const RowsByName row{t};
  row(cdist, {"cdist", "_cdist_forward"});
  row(pairwise_distance, {"pairwise_distance"});
  row(euclidean, {"_euclidean_dist"});
}

}  // namespace bolt::lower

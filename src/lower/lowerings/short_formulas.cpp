// lower/lowerings/short_formulas.cpp
// Rows of operators that are a line of others: ATen has a kernel for each, the graph needs no operation.
#include <cmath>
#include <numbers>

#include "lower/families.h"
#include "lower/formula.h"

namespace bolt::lower {
namespace {

/// Of one operand and computed in its type, whatever the result is.
struct OfSelf {
  explicit OfSelf(Call& c) : f(c, compute_type(c.tensor("self")->type.dtype)), x(f("self")) {}
  Formula f;
  Term x;
  static bool takes(Call& c) {
    return c.is_tensor("self") && is_float(c.tensor("self")->type.dtype) &&
           !is_opaque(c.tensor("self")->type.dtype);
  }
};

// ---- element by element

Term heaviside(const Formula& f) {
  const Term x = f("self");
  return where(x == 0.0, f("values"), (x > 0.0).as(f.type()));
}

Term to_radians(const Formula& f) { return f("self") * (std::numbers::pi / 180); }
Term to_degrees(const Formula& f) { return f("self") * (180 / std::numbers::pi); }

Results is_the_infinity(Call& c, double infinity) {
  if (!OfSelf::takes(c)) return {};
  const OfSelf of(c);
  return {(of.x == infinity).value};
}
Results isposinf(Call& c) { return is_the_infinity(c, std::numeric_limits<double>::infinity()); }
Results isneginf(Call& c) { return is_the_infinity(c, -std::numeric_limits<double>::infinity()); }

Results angle(Call& c) {
  if (!OfSelf::takes(c)) return {};
  const OfSelf of(c);
  return of.f.only(where(of.x.apply(Op::isnan), of.x, where(of.x < 0.0, std::numbers::pi, of.f.number(0))));
}

Term sinc(const Formula& f) {
  const Term x = f("self"), turns = x * std::numbers::pi;
  return where(x == 0.0, 1.0, turns.apply(Op::sin) / turns);
}

Term entropy(const Formula& f) {
  const Term x = f("self");
  const Term outside = where(x == 0.0, 0.0, f.number(-std::numeric_limits<double>::infinity()));
  return where(x.apply(Op::isnan), x, where(x > 0.0, -x * log(x), outside));
}

Term xlog1py(const Formula& f) {
  const Term x = f("self"), y = f("other");
  return where(y.apply(Op::isnan), y, where(x == 0.0, 0.0, x * log1p(y)));
}

Term logaddexp2(const Formula& f) {
  const Term a = f("self"), b = f("other");
  const Term sum = larger(a, b) + (1.0 + (-abs(a - b)).apply(Op::exp2)).apply(Op::log2);
  return where(a.apply(Op::isinf) & (a == b), a, sum);
}

/// The longer side times a number between 1 and the root of 2, so that no square is too large for its type.
Term hypot(const Formula& f) {
  const Term a = abs(f("self")), b = abs(f("other")), longer = larger(a, b), ratio = smaller(a, b) / longer;
  const Term length = longer * (ratio * ratio + 1.0).apply(Op::sqrt);
  const Term is_infinite = a.apply(Op::isinf) | b.apply(Op::isinf);
  return where(is_infinite, std::numeric_limits<double>::infinity(), where(longer == 0.0, 0.0, length));
}

Results signbit(Call& c) {
  const Term x{&c, c.tensor("self")};
  if (is_opaque(x.dtype()) || x.dtype() == DType::Bool) return {};
  return {((is_float(x.dtype()) ? x.number(1).with(Op::copysign, x) : x) < 0).value};
}

/// Is each element one of a few? Of many, ATen sorts them.
Results isin(Call& c) {
  constexpr int64_t kFew = 64;
  const Term x{&c, c.tensor("elements")}, few{&c, c.tensor("test_elements")};
  const Sym count = few.value->type.numel();
  if (x.dtype() != few.dtype() || is_opaque(x.dtype()) || !count.is_const() || count.is_const(0) ||
      count.value() > kFew)
    return {};
  Syms apart = x.sizes();
  apart.push_back(1);
  const Term found = (x.reshaped(apart) == few.reshaped({count})).reduced(Op::any, {Sym(x.rank())}, false);
  return {(c.flag("invert") ? !found : found).value};
}

/// To so many places behind the point. Halves are rounded at each step by ATen.
Results round_to_places(Call& c) {
  const DType t = c.result_dtype();
  if (!is_float(t) || is_half(t) || c.is_symbolic("decimals")) return {};
  const Formula f(c);
  const int64_t places = c.integer("decimals");
  const double ten = std::pow(10.0, static_cast<double>(std::abs(places)));
  const Term x = f("self");
  if (places < 0) return f.only((x / ten).apply(Op::round) * ten);
  return f.only((x * ten).apply(Op::round) / ten);
}

// ---- sums

Results addr(Call& c) {
  const Formula f(c);
  if (!f.is_real() || c.is_symbolic("beta")) return {};
  const Term rows = f("vec1"), columns = f("vec2");
  const Term outer = rows.reshaped({rows.sizes()[0], 1}) * columns.reshaped({1, columns.sizes()[0]});
  const Term product{&c, c.times(outer.value, "alpha")};
  if (c.scalar("beta").toDouble() == 0)
    return f.only(product.expanded({rows.sizes()[0], columns.sizes()[0]}));
  return f.only(Term{&c, c.times(f("self").value, "beta")} + product);
}

/// Of variables as rows. Where observations have weights ATen looks at these.
Results cov(Call& c) {
  const Formula f(c);
  if (!f.is_real() || c.has("fweights") || c.has("aweights") || c.is_symbolic("correction")) return {};
  const Term given = f("self");
  const Term x = given.rank() < 2 ? given.reshaped({1, given.value->type.numel()}) : given;
  const Sym count = x.sizes()[1];
  if (!count.is_const() || x.value->type.numel().is_const(0)) return {};
  const auto degrees = static_cast<double>(std::max<int64_t>(count.value() - c.integer("correction"), 0));
  const Term apart = (x - x.mean({1})).as(c.result_dtype());  // products of halves are quicker
  const Term all = apart.with(Op::matmul, permuted(apart, {1, 0})).as(f.type()) / degrees;
  return f.only(given.rank() < 2 ? all.reshaped({}) : x.sizes()[0].is_const(1) ? all.reshaped({}) : all);
}

/// The p-norm over these dimensions, which are kept.
Term norm_over(Term x, double p, const Syms& dims) {
  if (p == 0) return (x != 0.0).as(x.dtype()).sum(dims);
  if (p == 1) return abs(x).sum(dims);
  if (p == 2) return (x * x).sum(dims).apply(Op::sqrt);
  if (std::isinf(p)) return abs(x).reduced(p > 0 ? Op::amax : Op::amin, dims, true);
  const Term sum = abs(x).with(Op::pow, x.number(p)).sum(dims);
  return sum.with(Op::pow, sum.number(1 / p));
}

/// Parts along `dim` that are longer than they may be become that long, or a little less.
Results renorm(Call& c) {
  const Formula f(c);
  if (!f.is_real() || c.is_symbolic("p") || c.is_symbolic("maxnorm")) return {};
  const Term x = f("self");
  if (x.value->type.numel().is_const(0)) return {};
  const int64_t dim = Call::wrap(c.integer("dim"), x.rank());
  const Term norm = norm_over(x, c.number("p"), dims_except(dim, x.rank()));
  const double most = c.number("maxnorm");
  return f.only(x * where(norm > most, most / (norm + 1e-7), 1.0));
}

Results dist(Call& c) {
  const Formula f(c);
  if (!f.is_real() || c.is_symbolic("p")) return {};
  const Term apart = f("self") - f("other");
  if (apart.rank() == 0 || apart.value->type.numel().is_const(0)) return {};
  return f.only(norm_over(apart, c.number("p"), dims_between(0, apart.rank())).reshaped({}));
}

/// Vectors of three along `dim`.
Results cross(Call& c) {
  const Formula f(c);
  if (!f.is_real()) return {};
  const Term a = f("self"), b = f("other");
  const int64_t dim = Call::wrap(c.integer("dim"), a.rank());
  if (a.rank() != b.rank()) return {};
  const Term run = Formula(c, DType::I64).places(3, 0, 1);
  auto turned = [&](Term x, double by) {
    const Term places = run + by;
    return taken(x, dim, places.with(Op::remainder, places.number(3)));
  };
  return f.only(turned(a, 1) * turned(b, 2) - turned(a, 2) * turned(b, 1));
}

}  // namespace

void add_short_formulas(Table& t) {
  const RowsByName row{t};
  row(of_reals<heaviside>, {"heaviside"});
  row(of_reals<to_radians>, {"deg2rad"});
  row(of_reals<to_degrees>, {"rad2deg"});
  row(isposinf, {"isposinf"});
  row(isneginf, {"isneginf"});
  row(angle, {"angle"});
  row(of_reals<sinc>, {"sinc"});
  row(of_reals<entropy>, {"special_entr"});
  row(of_reals<xlog1py>, {"special_xlog1py"});
  row(of_reals<logaddexp2>, {"logaddexp2"});
  row(of_reals<hypot>, {"hypot"});
  row(signbit, {"signbit"});
  row(isin, {"isin.Tensor_Tensor"});
  row(cov, {"cov"});
  row(round_to_places, {"round.decimals"});
  row(addr, {"addr"});
  row(renorm, {"renorm"});
  row(dist, {"dist"});
  row(cross, {"linalg_cross"});
}

}  // namespace bolt::lower

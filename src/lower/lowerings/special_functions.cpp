// lower/lowerings/special_functions.cpp
// Rows of functions that are series and quotients: those of Bessel, digamma and its derivative, the logarithm
// of the normal distribution.
//
// ATen has a loop over single numbers for each. Here they are formulas, computed in the type that ATen
// computes them in, so that they fuse and fill vectors. What is a function of its own in kernels (lgamma,
// erfinv, erfcx) is a row of graph/pointwise.def.
#include <array>
#include <cmath>
#include <numbers>
#include <span>

#include "lower/families.h"
#include "lower/formula.h"

namespace bolt::lower {
namespace {

using Series = std::span<const double>;

// Chebyshev series, fitted in 70-digit arithmetic: for x <= 8 in x/4 - 1, beyond in 16/x - 1.
// e^-x I0(x)
constexpr double kI0Near[] = {
    0.67679527440947607,    -0.3046826723431984,     0.17162090152220877,    -0.094901097048047639,
    0.049305284239670712,   -0.023737414805899471,   0.010546460394594998,   -0.0043243099950505759,
    0.0016394756169413357,  -0.00057637557453858236, 0.00018850288509584165, -5.754195010082104e-05,
    1.6448448070728896e-05, -4.4167383584587505e-06, 1.1173875391201037e-06, -2.6707938539406119e-07,
    6.0469950225419186e-08, -1.300025009986248e-08,  2.6598237246823866e-09, -5.1897956016352627e-10,
    9.675809035373237e-11,  -1.7268262914415559e-11, 2.9550526631296399e-12, -4.856446783111929e-13,
    7.6761854986049361e-14, -1.1685332877993451e-14, 1.7153912855551331e-15, -2.4312798465479549e-16,
    3.3307945188222384e-17};
// e^-x I0(x) sqrt(x)
constexpr double kI0Far[] = {
    0.80449041101410879,     0.0033691164782556943,   6.8897583469168245e-05,  2.8913705208347567e-06,
    2.0489185894690638e-07,  2.266668990498178e-08,   3.3962320257083865e-09,  4.9406023882249701e-10,
    1.1889147107846439e-11,  -3.1499165279632416e-11, -1.3215811840447713e-11, -1.7941785315068062e-12,
    7.180124451383666e-13,   3.8527783827421426e-13,  1.54008621752141e-14,    -4.1505693472872222e-14,
    -9.5548466988283073e-15, 3.8116806693526224e-15,  1.7725601330565263e-15,  -3.425485619677219e-16,
    -2.8276239805165836e-16, 3.4612228676974612e-17,  4.4656214202967598e-17,  -4.8305044859441819e-18,
    -7.2331804878747538e-18};
// e^-x I1(x) / x
constexpr double kI1Near[] = {
    0.25258718644363365,    -0.17641651835783406,    0.10264365868984709,    -0.052945981208094989,
    0.024726449030626516,   -0.010564084894626197,   0.0041564229443128882,  -0.0015135724506312532,
    0.00051228595616857576, -0.00016176081582589674, 4.7815651075500542e-05, -1.3273163656039436e-05,
    3.4702513081376785e-06, -8.5687202646954547e-07, 2.0032947535521353e-07, -4.4450591287963281e-08,
    9.3815373864957726e-09, -1.8872497517228294e-09, 3.6255902815521172e-10, -6.6634897235020271e-11,
    1.1736186298890901e-11, -1.9839743977649436e-12, 3.2237933659455748e-13, -5.0421855047279118e-14,
    7.6006842947354077e-15, -1.1055969477353862e-15, 1.5536319577362005e-16, -2.111421214358166e-17,
    2.7779141127610464e-18};
// e^-x I1(x) sqrt(x)
constexpr double kI1Far[] = {
    0.77857623501828011,     -0.0097610974913614687,  -0.00011058893876262371, -3.8825648088776906e-06,
    -2.5122362378702088e-07, -2.6314688468895196e-08, -3.835380385964237e-09,  -5.5897434621965838e-10,
    -1.8974958123505413e-11, 3.2526035830154884e-11,  1.4125807436613782e-11,  2.0356285441470896e-12,
    -7.1985517762459084e-13, -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
    1.0420276984128802e-14,  -3.8144030724370075e-15, -1.8803547755107825e-15, 3.3082023109209285e-16,
    2.9626289976459501e-16,  -3.2095259219934238e-17, -4.6503053684893586e-17, 4.4143483230717077e-18,
    7.5172963108421052e-18};

/// Clenshaw's sum. The terms that a float32 does not see are left out.
Term summed(Series all, Term x) {
  size_t count = all.size();
  const double seen = is_float(x.dtype()) && x.dtype() != DType::F64 ? 0x1p-28 : 0;
  while (count > 2 && std::abs(all[count - 1]) < seen * std::abs(all[0])) --count;
  const Term twice = x + x;
  auto fma = [&](Term a, Term b, Term plus) {
    return Term{x.call, x.call->make(Op::fma, {a.value, b.value, plus.value})};
  };
  Term last = x.number(0), now = x.number(all[count - 1]);
  for (size_t i = count - 1; i-- > 1;) {
    const Term next = fma(twice, now, all[i] - last);
    last = now;
    now = next;
  }
  return fma(x, now, all[0] / 2 - last);
}

/// Of Bessel's functions I0 and I1, scaled by e^-|x| or not.
struct Bessel {
  Series near, far;
  bool odd;
};
constexpr Bessel kI0{kI0Near, kI0Far, false}, kI1{kI1Near, kI1Far, true};

Results bessel(Call& c, const Bessel& of, bool scaled) {
  const Formula f(c);
  if (!f.is_real()) return {};
  const Term x = f("self"), a = abs(x);
  Term near = summed(of.near, smaller(a, f.number(8)) * 0.25 - 1.0);
  const Term outside = larger(a, f.number(8));
  Term far = summed(of.far, 16.0 / outside - 1.0);
  if (of.odd) near = near * x;
  if (of.odd) far = far.with(Op::copysign, x);
  if (!scaled) near = near * exp(a);
  if (!scaled) far = far * exp(a);
  return f.only(where(a <= 8.0, near, far / outside.apply(Op::sqrt)));
}
Results i0(Call& c) { return bessel(c, kI0, false); }
Results i0e(Call& c) { return bessel(c, kI0, true); }
Results i1(Call& c) { return bessel(c, kI1, false); }
Results i1e(Call& c) { return bessel(c, kI1, true); }

Term polynomial(Series lowest_first, Term x) {
  Term sum = x.number(lowest_first.back());
  for (size_t i = lowest_first.size() - 1; i-- > 0;) sum = sum * x + lowest_first[i];
  return sum;
}

/// For z > 0. Numbers below 10 are moved up by as much: the sum of 1/z to 1/(z + 9) is P'/P of the product P.
Term digamma_of_positive(Term z) {
  constexpr double kProduct[] = {0, 362880, 1026576, 1172700, 723680, 269325, 63273, 9450, 870, 45, 1};
  std::array<double, std::size(kProduct) - 1> slope{};
  for (size_t i = 0; i < slope.size(); ++i) slope[i] = static_cast<double>(i + 1) * kProduct[i + 1];
  const Term is_low = z < 10.0, low = smaller(z, z.number(10));
  const Term behind = where(is_low, polynomial(slope, low) / polynomial(kProduct, low), 0.0);
  const Term x = where(is_low, z + 10.0, z), square = 1.0 / (x * x);
  constexpr double kBernoulli[] = {1.0 / 12,  -1.0 / 120,     1.0 / 252, -1.0 / 240,
                                   1.0 / 132, -691.0 / 32760, 1.0 / 12};
  return log(x) - 0.5 / x - square * polynomial(kBernoulli, square) - behind;
}

/// Of negative numbers the reflected one's, less pi / tan(pi x); at whole ones ATen has no number, at 0 an
/// infinity of the other sign.
Term digamma_of(Term x) {
  const Term is_left = x < 0.0, whole = x.apply(Op::trunc), part = x - whole;
  const Term slope = std::numbers::pi / (part * std::numbers::pi).apply(Op::tan);
  const Term right = digamma_of_positive(where(is_left, 1.0 - x, x));
  const Term there =
      where(is_left, where(part == 0.0, std::numeric_limits<double>::quiet_NaN(), right - slope), right);
  const Term infinity = x.number(std::numeric_limits<double>::infinity()).with(Op::copysign, -x);
  return where(x == 0.0, infinity, there);
}
Results digamma(Call& c) {
  const Formula f(c);
  return f.is_real() ? f.only(digamma_of(f("self"))) : Results{};
}

/// The derivative of digamma, in ATen's steps.
Term trigamma_of(Term given) {
  const Term is_left = given < 0.5;
  const Term wave = (given * std::numbers::pi).apply(Op::sin);
  const Term reflected = -(std::numbers::pi * std::numbers::pi) / (wave * wave);
  Term x = where(is_left, 1.0 - given, given), sum = where(is_left, reflected, 0.0);
  for (int i = 0; i < 6; ++i) {
    sum = sum + 1.0 / (x * x);
    x = x + 1.0;
  }
  const Term square = 1.0 / (x * x);
  const Term tail = square * (1.0 / 6 - square * (1.0 / 30 - square * (1.0 / 42)));
  sum = sum + (1.0 + 0.5 / x + tail) / x;
  return where(is_left, -sum, sum);
}
/// The second derivative and those behind it are sums of another kind.
Results polygamma(Call& c) {
  const Formula f(c);
  if (!f.is_real() || c.is_symbolic("n")) return {};
  if (c.integer("n") == 0) return f.only(digamma_of(f("self")));
  return c.integer("n") == 1 ? f.only(trigamma_of(f("self"))) : Results{};
}

/// The logarithm of the gamma function of p dimensions.
Results mvlgamma(Call& c) {
  const Formula f(c);
  if (!f.is_real() || c.is_symbolic("p") || c.integer("p") > 16) return {};
  const auto p = static_cast<double>(c.integer("p"));
  const Term x = f("self");
  Term sum = f.number(p * (p - 1) / 4 * std::log(std::numbers::pi));
  for (int64_t i = 0; i < c.integer("p"); ++i) sum = sum + (x - static_cast<double>(i) / 2).apply(Op::lgamma);
  return f.only(sum);
}

/// Of the normal distribution: where little is left of it, by what e^(x^2) makes of that.
Results log_ndtr(Call& c) {
  const Formula f(c);
  if (!f.is_real()) return {};
  const Term x = f("self"), t = x * std::numbers::sqrt2 * 0.5;
  const Term far = log((-t).apply(Op::erfcx) * 0.5) - t * t;
  return f.only(where(x < -1.0, far, log1p(t.apply(Op::erfc) * -0.5)));
}

}  // namespace

void add_special_functions(Table& t) {
  const RowsByName row{t};
  row(i0, {"i0", "special_i0"});
  row(i0e, {"special_i0e"});
  row(i1, {"special_i1"});
  row(i1e, {"special_i1e"});
  row(digamma, {"digamma", "special_digamma", "special_psi"});
  row(polygamma, {"polygamma", "special_polygamma"});
  row(mvlgamma, {"mvlgamma", "special_multigammaln"});
  row(log_ndtr, {"special_log_ndtr"});
}

}  // namespace bolt::lower

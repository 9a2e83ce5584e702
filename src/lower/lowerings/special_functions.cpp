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

// For x <= 2 in x^2/2 - 1, beyond in 4/x - 1.
// K0(x) + log(x/2) I0(x)
constexpr double kK0Near[] = {-0.53532739323390277,  0.34428989992462849,    0.035979936515361502,
                              0.0012646154114469259, 2.2862121031194518e-5,  2.5347910790261495e-7,
                              1.9045163772202089e-9, 1.0349695257633625e-11, 4.2598161427910826e-14,
                              1.3744654358807509e-16};
// e^x K0(x) sqrt(x)
constexpr double kK0Far[] = {
    2.4403030820659555,     -0.031448101311964501,   0.0015698838857300534,  -0.00012849549581627803,
    1.3949813718876499e-5,  -1.8317555227191195e-6,  2.7668136394450151e-7,  -4.6604898976879477e-8,
    8.5740340174142261e-9,  -1.6975345093890615e-9,  3.5773972814003284e-10, -7.957489244477397e-11,
    1.8559491149549266e-11, -4.5145978833745192e-12, 1.1403405882073442e-12, -2.9800969231481784e-13,
    8.0328907750683744e-14, -2.2275133267462964e-14, 6.340076476276646e-15,  -1.8485933779209072e-15,
    5.5120559994043334e-16, -1.6782311257549006e-16, 5.2103917776435541e-17, -1.6475805939842633e-17};
// x (K1(x) - log(x/2) I1(x))
constexpr double kK1Near[] = {1.5253002273389478,      -0.35315596077654488,    -0.12261118082265715,
                              -0.0069757238596398644,  -0.00017302889575130521, -2.4334061415659682e-6,
                              -2.2133876307347259e-8,  -1.4114883926335278e-10, -6.666901694199329e-13,
                              -2.4274498505193659e-15, -7.0238634793862876e-18};
// e^x K1(x) sqrt(x)
constexpr double kK1Far[] = {
    2.7206261904844427,      0.10392373657681724,    -0.0028578168596227794,  0.00019521551847135163,
    -1.936197974166083e-5,   2.4064849478372171e-6,  -3.5019606030878125e-7,  5.7410841254500493e-8,
    -1.0345762465678097e-8,  2.0150497551970346e-9,  -4.1903547593419256e-10, 9.2183151876053141e-11,
    -2.129967838427791e-11,  5.1396396734823435e-12, -1.2891739609498229e-12, 3.3484196660522431e-13,
    -8.9767051820101461e-14, 2.4771544242195987e-14, -7.0198370892147689e-15, 2.0387031662398609e-15,
    -6.0570472706430178e-16, 1.8380935752430454e-16, -5.6894628491936484e-17, 1.7940510478863573e-17};

// For x <= 8 in x^2/32 - 1: J0(x)
constexpr double kJ0[] = {0.31545594294978024,     -0.0087234423528522213,  0.26517861320333681,
                          -0.37009499387264978,    0.15806710233209726,     -0.034893769411408885,
                          0.0048191800694676045,   -0.00046062616620627505, 3.2460328821005081e-5,
                          -1.7619469077621507e-6,  7.6081635924187819e-8,   -2.6792535305576729e-9,
                          7.8486963144794644e-11,  -1.9438346867370166e-12, 4.1253205956343739e-14,
                          -7.5885081254475463e-16, 1.2218515873961411e-17};
// J1(x)/x
constexpr double kJ1[] = {
    0.16208969265131623,    -0.14897514506765211,    0.1609992623572097,     -0.082680491766817907,
    0.022213639654966035,   -0.003646940600769276,   0.00040503377283548218, -3.2555548668572585e-5,
    1.9858774049915167e-6,  -9.5219847567504362e-8,  3.6871337590971482e-9,  -1.1780266226958848e-10,
    3.1601545803480033e-12, -7.2217552396517734e-14, 1.4232144003513942e-15, -2.4441972916190464e-17};
// Y0(x) - 2/pi log(x) J0(x)
constexpr double kY0[] = {-0.066292226406569883,   -0.27447430552974527,    0.17903431407718266,
                          0.26156734625504664,     -0.17730201278114358,    0.047196689595763387,
                          -0.0072879624795520792,  0.00075311359325777423,  -5.632079141056987e-5,
                          3.206532537654801e-6,    -1.4407233274018699e-7,  5.2487947873305161e-9,
                          -1.5837552541812015e-10, 4.0263308183061208e-12,  -8.7473412033107696e-14,
                          1.6434898714919469e-15,  -2.6977881152566836e-17, 3.9032584173475983e-19};
// (Y1(x) - 2/pi (log(x) J1(x) - 1/x)) / x
constexpr double kY1[] = {0.0050760264714835635,   -0.01608717304766875,   -0.095912045360830742,
                          0.084451972596523458,    -0.028328123944594366,  0.005289897544167113,
                          -0.0006414551451326356,  5.5059828733387438e-5,  -3.5380800186893499e-6,
                          1.7707804556154403e-7,   -7.1105500498992798e-9, 2.3443379059115164e-10,
                          -6.4651518414115942e-12, 1.51429151205002e-13,   -3.0511859694473253e-15,
                          5.3466803857286701e-17,  -8.2249113720215846e-19};
// Beyond in 128/x^2 - 1: what waves of J0 and Y0 are high, over sqrt(2/pi/x), and x/8 times by what they are
// ahead
constexpr double kP0[] = {1.9989206986950373,      -0.00053652204681321174, 3.0751847875194746e-6,
                          -5.1705945376060977e-8,  1.6306464635151383e-9,   -7.86409137723707e-11,
                          5.1682623873491925e-12,  -4.3045788699253912e-13, 4.3265957431549406e-14,
                          -5.0690340959352361e-15, 6.7480722157338737e-16,  -1.0011513723467786e-16,
                          1.6305919233744185e-17};
constexpr double kQ0[] = {
    -0.031111709210674018,   6.8385199426116496e-5,  -7.4144984110606473e-7,  1.7972457247968992e-8,
    -7.27191593686632e-10,   4.2201219046687384e-11, -3.2067474209966347e-12, 3.0061451253517063e-13,
    -3.336328185322427e-14,  4.2552250402454611e-15, -6.09993013164005e-16,   9.6621289703032567e-17,
    -1.6686065214378146e-17, 3.1082440486738144e-18, -6.1911157873581449e-19, 1.3091448717220122e-19};
// the same of J1 and Y1
constexpr double kP1[] = {2.0018060817200274,      0.00089898983308594086,  -3.9872843004889085e-6,
                          6.1776339606442985e-8,   -1.8718907491063066e-9,  8.8168986595823389e-11,
                          -5.7048636403956447e-12, 4.6991955152305424e-13,  -4.6842237839904892e-14,
                          5.4526748960447172e-15,  -7.2211808422740179e-16, 1.0667689114335412e-16,
                          -1.7312313216116335e-17};
constexpr double kQ1[] = {0.09355557413907065,     -9.6277235491570793e-5,  9.1386152579554541e-7,
                          -2.0959781384083422e-8,  8.2291933276505541e-10,  -4.6863636881769452e-11,
                          3.5152187949686081e-12,  -3.2643156743278999e-13, 3.5967765829165292e-14,
                          -4.5612523950772972e-15, 6.508282957783384e-16,   -1.0269147531823243e-16,
                          1.7676355487764792e-17,  -3.2834519872981615e-18, 6.5240811495892603e-19};

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

/// Without the exponential that it grows or falls by?
enum class Scaled : bool { no, yes };

template <const Bessel& of, Scaled scaled>
Term bessel(const Formula& f) {
  const Term x = f("self"), a = abs(x);
  Term near = summed(of.near, smaller(a, f.number(8)) * 0.25 - 1.0);
  const Term outside = larger(a, f.number(8));
  Term far = summed(of.far, 16.0 / outside - 1.0);
  if (of.odd) near = near * x;
  if (of.odd) far = far.with(Op::copysign, x);
  if (scaled == Scaled::no) near = near * exp(a), far = far * exp(a);
  return where(a <= 8.0, near, far / outside.apply(Op::sqrt));
}

/// Of the modified functions of the second kind, K0 and K1: what is left of them by the logarithm near 0.
struct SecondBessel {
  Series near, far, first;
  bool odd;
};
constexpr SecondBessel kK0{kK0Near, kK0Far, kI0Near, false}, kK1{kK1Near, kK1Far, kI1Near, true};

template <const SecondBessel& of, Scaled scaled>
Term second_bessel(Call& c, const Formula& f) {
  const Term x = f(c.has("x") ? "x" : "self");
  const Term inside = smaller(x, f.number(2)), outside = larger(x, f.number(2));
  const Term first = summed(of.first, inside * 0.25 - 1.0) * exp(inside), slope = log(inside * 0.5);
  Term near = summed(of.near, inside * inside * 0.5 - 1.0);
  near = of.odd ? near / inside + slope * first * inside : near - slope * first;
  Term far = summed(of.far, 4.0 / outside - 1.0) / outside.apply(Op::sqrt);
  if (scaled == Scaled::yes)
    near = near * exp(inside);
  else
    far = far * exp(-outside);
  return where(x == 0.0, std::numeric_limits<double>::infinity(), where(x <= 2.0, near, far));
}

/// Of the functions that are waves, of order 0 or 1. J is the first kind's, Y the second's.
struct Waves {
  Series first, second, high, ahead;
  bool odd;
};
constexpr Waves kOrder0{kJ0, kY0, kP0, kQ0, false}, kOrder1{kJ1, kY1, kP1, kQ1, true};

/// For x > 8: a wave of sines and cosines of x less pi/4, or 3/4 pi; the second kind's is a quarter behind.
Term wave_of(const Waves& of, Term x, bool second) {
  const Term places = 128.0 / (x * x) - 1.0;
  const Term high = summed(of.high, places), ahead = summed(of.ahead, places) * 8.0 / x;
  const Term sine = x.apply(Op::sin), cosine = x.apply(Op::cos);
  const Term up = sine + cosine, down = sine - cosine;  // sqrt(2) times the cosine and the sine of x - pi/4
  const Term along = of.odd ? down : up, across = of.odd ? -up : down;
  const Term wave = second ? high * across + ahead * along : high * along - ahead * across;
  return wave / (x * std::numbers::pi).apply(Op::sqrt);
}

template <const Waves& of>
Term first_wave(const Formula& f) {
  const Term x = f("self"), a = abs(x), inside = smaller(a, f.number(8));
  Term near = summed(of.first, inside * inside * 0.03125 - 1.0);
  if (of.odd) near = near * inside;
  const Term y = where(a <= 8.0, near, wave_of(of, larger(a, f.number(8)), false));
  return of.odd ? where(x < 0.0, -y, y) : y;
}
template <const Waves& of>
Term second_wave(const Formula& f) {
  const Term x = f("self"), inside = smaller(x, f.number(8)), places = inside * inside * 0.03125 - 1.0;
  constexpr double kTwoOfPi = 2 * std::numbers::inv_pi;
  Term first = summed(of.first, places), rest = summed(of.second, places);
  if (of.odd) first = first * inside, rest = rest * inside - kTwoOfPi / inside;
  const Term near = log(inside) * first * kTwoOfPi + rest;
  const Term y = where(x <= 8.0, near, wave_of(of, larger(x, f.number(8)), true));
  return where(x == 0.0, -std::numeric_limits<double>::infinity(), y);
}

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
Term digamma(const Formula& f) { return digamma_of(f("self")); }

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
Term log_ndtr(const Formula& f) {
  const Term x = f("self"), t = x * std::numbers::sqrt2 * 0.5;
  const Term far = log((-t).apply(Op::erfcx) * 0.5) - t * t;
  return where(x < -1.0, far, log1p(t.apply(Op::erfc) * -0.5));
}

}  // namespace

void add_special_functions(Table& t) {
  const RowsByName row{t};
  row(of_reals<bessel<kI0, Scaled::no>>, {"i0", "special_i0", "special_modified_bessel_i0"});
  row(of_reals<bessel<kI0, Scaled::yes>>, {"special_i0e"});
  row(of_reals<bessel<kI1, Scaled::no>>, {"special_i1", "special_modified_bessel_i1"});
  row(of_reals<bessel<kI1, Scaled::yes>>, {"special_i1e"});
  row(of_reals<second_bessel<kK0, Scaled::no>>, {"special_modified_bessel_k0"});
  row(of_reals<second_bessel<kK1, Scaled::no>>, {"special_modified_bessel_k1"});
  row(of_reals<second_bessel<kK0, Scaled::yes>>, {"special_scaled_modified_bessel_k0"});
  row(of_reals<second_bessel<kK1, Scaled::yes>>, {"special_scaled_modified_bessel_k1"});
  row(of_reals<first_wave<kOrder0>>, {"special_bessel_j0"});
  row(of_reals<first_wave<kOrder1>>, {"special_bessel_j1"});
  row(of_reals<second_wave<kOrder0>>, {"special_bessel_y0"});
  row(of_reals<second_wave<kOrder1>>, {"special_bessel_y1"});
  row(of_reals<digamma>, {"digamma", "special_digamma", "special_psi"});
  row(polygamma, {"polygamma", "special_polygamma"});
  row(mvlgamma, {"mvlgamma", "special_multigammaln"});
  row(of_reals<log_ndtr>, {"special_log_ndtr"});
}

}  // namespace bolt::lower

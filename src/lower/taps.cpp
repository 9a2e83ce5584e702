// lower/taps.cpp
#include "lower/taps.h"

#include <algorithm>
#include <cmath>

namespace bolt::lower {
namespace {

struct Tap {
  Term place, weight;
};

/// Of places in the result: where they lie in the operand.
Term source_of(const Formula& f, Term i, const Scaling& s) {
  const bool by_float = s.filter == Filter::Nearest || s.filter == Filter::NearestExact;
  Term at = i.as(by_float ? DType::F32 : f.type());
  switch (s.filter) {
    case Filter::Nearest: return at * s.scale;
    case Filter::NearestExact: return (at + 0.5) * s.scale;
    default: break;
  }
  if (s.aligned) return at * s.scale;
  at = (at + 0.5) * s.scale - 0.5;
  return s.filter == Filter::Linear ? larger(at, at.number(0)) : at;
}

constexpr double kCubic = -0.75;
/// Keys' polynomial at a distance of at most 1, and of 1 to 2.
Term near_weight(Term x) { return ((kCubic + 2) * x - (kCubic + 3)) * x * x + 1.0; }
Term far_weight(Term x) { return ((kCubic * x - 5 * kCubic) * x + 8 * kCubic) * x - 4 * kCubic; }

std::vector<Tap> taps_of(const Formula& f, Term i, const Scaling& s) {
  const Term source = source_of(f, i, s);
  Term low = floor(source).as(DType::I64);
  const Term first = low.number(0), last = low.number(static_cast<double>(s.from - 1));
  low = smaller(low, last);
  if (s.filter == Filter::Nearest || s.filter == Filter::NearestExact) return {{low, f.number(1)}};
  const Term fraction = clamped(source - low.as(f.type()), f.number(0), f.number(1));
  const Term rest = 1.0 - fraction;
  if (s.filter == Filter::Linear) return {{low, rest}, {smaller(low + 1.0, last), fraction}};
  const Term weights[] = {far_weight(fraction + 1.0), near_weight(fraction), near_weight(rest),
                          far_weight(rest + 1.0)};
  std::vector<Tap> taps;
  for (int k = 0; k < 4; ++k)
    taps.push_back({clamped(low + static_cast<double>(k - 1), first, last), weights[k]});
  return taps;
}

// ---- the other side ----

struct TapRange {
  int64_t first, last;
};

/// What place o of the result may have as taps. Of nearest ones rounding decides, so either side counts.
TapRange touched(int64_t o, const Scaling& s) {
  const auto place = static_cast<double>(o);
  auto inside = [&](double v) {
    return std::clamp<int64_t>(static_cast<int64_t>(std::floor(v)), 0, s.from - 1);
  };
  if (s.filter == Filter::Nearest || s.filter == Filter::NearestExact) {
    const double at = (s.filter == Filter::Nearest ? place : place + 0.5) * s.scale;
    const double unsure = 1e-6 * (std::fabs(at) + 1);
    return {inside(at - unsure), inside(at + unsure)};
  }
  const double at = s.aligned ? place * s.scale : (place + 0.5) * s.scale - 0.5;
  const int reach = s.filter == Filter::Linear ? 0 : 1;
  return {inside(std::floor(at) - reach), inside(std::floor(at) + 1 + reach)};
}

/// Element i of the operand is a tap in `count` places of the result at most, from max(0, step * i + start) /
/// kOne on.
struct Stretch {
  static constexpr int64_t kOne = 1 << 20;
  int64_t step = 0, start = 0, count = 0;

  int64_t begin(int64_t i) const { return std::max<int64_t>(step * i + start, 0) / kOne; }
};

Stretch stretch_of(const Scaling& s) {
  std::vector<TapRange> places(static_cast<size_t>(s.from), {s.to, -1});
  for (int64_t o = 0; o < s.to; ++o) {
    const TapRange r = touched(o, s);
    for (int64_t i = r.first; i <= r.last; ++i) {
      TapRange& p = places[i];
      p = {std::min(p.first, o), std::max(p.last, o)};
    }
  }
  Stretch out;
  // As steep as the places are; all of them, where the scale says nothing.
  out.step = s.scale > 0 ? static_cast<int64_t>(static_cast<double>(Stretch::kOne) / s.scale) : 0;
  out.start = INT64_MAX;
  for (int64_t i = 0; i < s.from; ++i)
    if (const TapRange& p = places[i]; p.last >= 0)
      out.start = std::min(out.start, p.first * Stretch::kOne + Stretch::kOne - 1 - out.step * i);
  if (out.start == INT64_MAX) out.start = 0;
  for (int64_t i = 0; i < s.from; ++i)
    if (const TapRange& p = places[i]; p.last >= 0)
      out.count = std::max(out.count, p.last - out.begin(i) + 1);
  return out;
}

/// As many places are added one by one; over more runs a loop.
constexpr int64_t kFewPlaces = 4;

/// How much of the result at `places` is the operand's at `here`.
Term share(const Formula& f, Term places, Term here, const Scaling& s) {
  Sum sum;
  for (const Tap& tap : taps_of(f, places, s)) {
    sum += where(tap.place == here, tap.weight.expanded(places.sizes()), f.full(0, places.sizes()));
  }
  return *sum;
}

/// What is no tap adds nothing, whatever it is.
Term by_weight(Term g, Term weight) { return where(weight == 0.0, 0.0, g * weight); }

}  // namespace

double scale_of(int64_t from, int64_t to, bool aligned, std::optional<double> factor, DType t) {
  auto rounded = [t](double v) { return t == DType::F64 ? v : static_cast<double>(static_cast<float>(v)); };
  auto ratio = [&](int64_t a, int64_t b) {
    if (t == DType::F64) return static_cast<double>(a) / static_cast<double>(b);
    return static_cast<double>(static_cast<float>(a) / static_cast<float>(b));
  };
  if (aligned) return to > 1 ? ratio(from - 1, to - 1) : 0;
  return factor && *factor > 0 ? rounded(1.0 / *factor) : ratio(from, to);
}

Term resampled(const Formula& f, Term x, int64_t dim, const Scaling& s) {
  const auto rank = x.sizes().size();
  Sum sum;
  for (const Tap& tap : taps_of(f, f.places(s.to, 0, 1), s)) {
    const Term read = taken(x, dim, tap.place);
    if (s.filter == Filter::Nearest || s.filter == Filter::NearestExact) return read;
    sum += read * along(tap.weight, dim, rank);
  }
  return *sum;
}

Term resampled_backward(const Formula& f, Term g, int64_t dim, const Scaling& s) {
  const Stretch stretch = stretch_of(s);
  const size_t rank = g.sizes().size();
  Syms to = g.sizes();
  to[dim] = s.from;
  if (stretch.count == 0) return f.full(0, to);
  const Term i = f.places(s.from, 0, 1);
  Term begin = i * static_cast<double>(stretch.step) + static_cast<double>(stretch.start);
  begin = larger(begin, i.number(0)).with(Op::floor_div, i.number(Stretch::kOne));
  const Term last = i.number(static_cast<double>(s.to - 1));
  if (stretch.count <= kFewPlaces) {
    Sum sum;
    for (int64_t j = 0; j < stretch.count; ++j) {
      const Term o = begin + static_cast<double>(j);
      Term weight = share(f, o, i, s);
      if (stretch.begin(s.from - 1) + j >= s.to) weight = where(o <= last, weight, f.full(0, weight.sizes()));
      sum += by_weight(taken(g, dim, smaller(o, last)), along(weight, dim, rank));
    }
    return *sum;
  }
  // [.., from, count, ..]
  const Syms table{s.from, stretch.count};
  const Term o = begin.reshaped({s.from, 1}) + f.places(stretch.count, 1, 2);
  Term weight = share(f, o, i.reshaped({s.from, 1}), s);
  weight = where(o <= last, weight, f.full(0, table));
  Syms split = to, broad(rank + 1, Sym(1));
  split.insert(split.begin() + dim + 1, stretch.count);
  broad[dim] = s.from;
  broad[static_cast<size_t>(dim) + 1] = stretch.count;
  const Term places = smaller(o, last).reshaped({Sym(s.from) * Sym(stretch.count)});
  return by_weight(taken(g, dim, places).reshaped(split), weight.reshaped(broad)).sum({dim + 1}, false);
}

}  // namespace bolt::lower

// lower/lowerings/resample.cpp
// Rows for changing the size of images and signals, as F.interpolate calls them, and for their gradients.
//
// A size that a dimension has already, or a whole multiple that copies, is index arithmetic; the rest is
// weighted sums, one dimension after the other (taps.h). With antialiasing the windows grow with the scale:
// the weights of all places are a matrix, [to, from], by which a dimension is multiplied. Such a product has
// more terms than the windows, so of longer dimensions the calls stay ATen's. A dimension that becomes longer
// has the windows, and so the taps, of linear interpolation without antialiasing.
#include <algorithm>
#include <string>

#include "graph/device_facts.h"
#include "lower/families.h"
#include "lower/taps.h"

namespace bolt::lower {
namespace {

/// The factor that was given for spatial dimension d of n.
std::optional<double> factor_of(Call& c, size_t d, size_t n) {
  if (c.has("scale_factors")) return c.numbers("scale_factors")[d];
  static constexpr const char* kNames[] = {"scales_d", "scales_h", "scales_w"};
  const char* name = n == 1 ? "scales" : kNames[3 - n + d];
  return c.has(name) ? std::optional(c.number(name)) : std::nullopt;
}

/// Of each spatial dimension of an image [N, C, ...].
std::vector<Scaling> scalings(Call& c, const Syms& from, const Syms& to, Filter filter, DType t) {
  const bool aligned = c.has("align_corners") && c.flag("align_corners");
  if (filter == Filter::Nearest || filter == Filter::NearestExact) t = DType::F32;
  std::vector<Scaling> out;
  const size_t n = from.size() - 2;
  for (size_t d = 0; d < n; ++d) {
    const int64_t a = from[d + 2].value(), b = to[d + 2].value();
    if (a == 0 || b == 0) return {};
    out.push_back({a, b, scale_of(a, b, aligned, factor_of(c, d, n), t), aligned, filter});
  }
  return out;
}

/// The sizes of the result: those before its image are the operand's.
Syms resized(Call& c, const Syms& of) {
  c.demand_numbers();
  for (size_t d = 2; d < of.size(); ++d) of[d].value();
  Syms to = of;
  for (size_t d = 2; d < of.size(); ++d) to[d] = c.result_size(0, static_cast<int64_t>(d));
  return to;
}

Value* image(Call& c) { return c.tensor(c.has("input") ? "input" : "self"); }
bool has_elements(const Value* x) { return !x->type.numel().is_const(0); }

/// By how much the image is larger, where each element is copied that many times; 0: otherwise.
int64_t copies(const Scaling& s) {
  const int64_t times = s.to / s.from;
  return times * s.from == s.to && s.scale * static_cast<double>(times) == 1 ? times : 0;
}

Results upsample(Call& c, Filter filter) {
  Value* x = image(c);
  if (!is_float(x->type.dtype) || !has_elements(x) || c.result_dtype() != x->type.dtype) return {};
  const Formula f(c);
  const Syms& from = x->type.sizes;
  const auto each = scalings(c, from, resized(c, from), filter, f.type());
  Term y = Term{&c, x}.as(f.type());
  for (size_t d = each.size(); d-- > 0;)
    if (!each[d].is_same()) y = resampled(f, y, static_cast<int64_t>(d) + 2, each[d]);
  return each.empty() ? Results{} : f.only(y);
}
Results upsample_linear(Call& c) { return upsample(c, Filter::Linear); }
Results upsample_cubic(Call& c) { return upsample(c, Filter::Cubic); }

Results upsample_copies(Call& c, Filter filter) {
  Value* x = image(c);
  if (!has_elements(x)) return {};
  const Syms& from = x->type.sizes;
  const Syms to = resized(c, from);
  const auto each = scalings(c, from, to, filter, DType::F32);
  if (each.empty()) return {};
  std::vector<double> scales;
  bool is_exact = true;
  for (const Scaling& s : each) {
    scales.push_back(s.scale);
    is_exact &= filter == Filter::Nearest || copies(s) > 0;
  }
  if (is_exact)
    return {
        c.make(Op::upsample_nearest, {x}, {{"sizes", Syms(to.begin() + 2, to.end())}, {"scales", scales}})};
  const Formula f(c, DType::F32);
  Term y{&c, x};
  for (size_t d = each.size(); d-- > 0;) y = resampled(f, y, static_cast<int64_t>(d) + 2, each[d]);
  return {y.value};
}
Results upsample_nearest(Call& c) { return upsample_copies(c, Filter::Nearest); }
Results upsample_nearest_exact(Call& c) { return upsample_copies(c, Filter::NearestExact); }

// ---- gradients ----

Results upsample_backward(Call& c, Filter filter) {
  const Formula f(c);
  const Syms from = c.syms("input_size");
  Term g = f("grad_output");
  if (!f.is_real() || !has_elements(g.value)) return {};
  const auto each = scalings(c, from, g.sizes(), filter, f.type());
  if (each.empty()) return {};
  // Of an image that became smaller most elements were no taps: writing to those that were is less work,
  // which counts where reading is no quicker than that.
  for (const Scaling& s : each)
    if (s.to < s.from && (filter == Filter::Linear || filter == Filter::Cubic) &&
        !graph::facts_of(g.value->type.device).reads_anywhere)
      return {};
  const bool is_nearest = filter == Filter::Nearest || filter == Filter::NearestExact;
  // All that is copied in one reduction.
  Syms split{from[0], from[1]}, dims;
  for (size_t d = 0; d < each.size(); ++d) {
    const Scaling& s = each[d];
    const bool is_copied = is_nearest && copies(s) > 1;
    split.push_back(is_copied ? s.from : s.to);
    if (!is_copied) continue;
    split.push_back(copies(s));
    dims.push_back(static_cast<int64_t>(split.size()) - 1);
  }
  g = g.reshaped(split).sum(dims, false);
  for (size_t d = 0; d < each.size(); ++d) {
    const Scaling& s = each[d];
    if (s.is_same() || (is_nearest && copies(s) > 0)) continue;
    g = resampled_backward(f, g, static_cast<int64_t>(d) + 2, s);
  }
  return f.only(g);
}
Results upsample_linear_backward(Call& c) { return upsample_backward(c, Filter::Linear); }
Results upsample_cubic_backward(Call& c) { return upsample_backward(c, Filter::Cubic); }
Results upsample_nearest_backward(Call& c) { return upsample_backward(c, Filter::Nearest); }
Results upsample_nearest_exact_backward(Call& c) { return upsample_backward(c, Filter::NearestExact); }

// ---- with antialiasing ----

constexpr int64_t kLongestProduct = 256;
// Terms of a product on the processor in the time in which ATen adds up one tap, and spreads one's gradient.
constexpr double kTermsForATap = 60, kTermsForASpreadTap = 140;

bool has_plain_taps(const Scaling& s) { return s.filter == Filter::Linear && s.scale <= 1; }

/// Is the product by the matrix of weights no slower than ATen's call?
bool multiplies_well(const Scaling& s, graph::Device device, bool backward) {
  if (s.from > kLongestProduct) return false;
  if (graph::facts_of(device).reads_anywhere) return true;
  const double taps = (s.filter == Filter::Linear ? 2 : 4) * std::max(s.scale, 1.0);
  return static_cast<double>(s.from) <= taps * (backward ? kTermsForASpreadTap : kTermsForATap);
}

/// What each place of the operand weighs in each of the result: ATen's filters (cubic: with -0.5), as wide as
/// the step where the image becomes smaller, by the distance of the middles.
Term smoothing(const Formula& f, const Scaling& s) {
  const Term centre = (f.places(s.to, 0, 2).as(f.type()) + 0.5) * s.scale;
  const Term away = f.places(s.from, 1, 2).as(f.type()) - centre + 0.5;
  const Term x = abs(away * (1 / std::max(s.scale, 1.0)));
  Term weight = x;
  if (s.filter == Filter::Linear) {
    weight = where(x < 1.0, 1.0 - x, 0.0);
  } else {
    const Term near = (x * 1.5 - 2.5) * x * x + 1.0, far = (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5;
    weight = where(x < 1.0, near, where(x < 2.0, far, 0.0));
  }
  return weight / weight.sum({Sym(1)});
}

Results smoothed(Call& c, Filter filter, bool backward) {
  const Formula f(c);
  Term y = f(backward ? "grad_output" : c.has("input") ? "input" : "self");
  if (!f.is_real() || !has_elements(y.value) || y.rank() != 4) return {};
  const Syms from = backward ? c.syms("input_size") : y.sizes();
  const auto each = scalings(c, from, backward ? y.sizes() : resized(c, from), filter, f.type());
  for (const Scaling& s : each)
    if (!has_plain_taps(s) && !multiplies_well(s, y.value->type.device, backward)) return {};
  for (size_t d = each.size(); d-- > 0;) {
    if (each[d].is_same()) continue;
    if (has_plain_taps(each[d])) {
      Scaling plain = each[d];
      plain.aligned = false;  // the windows are never
      y = (backward ? resampled_backward : resampled)(f, y, static_cast<int64_t>(d) + 2, plain);
      continue;
    }
    const Term weights = smoothing(f, each[d]), right = backward ? weights : permuted(weights, {1, 0});
    const bool is_last = d + 1 == each.size();
    if (!is_last) y = permuted(y, {0, 1, 3, 2});
    y = y.with(Op::matmul, right);
    if (!is_last) y = permuted(y, {0, 1, 3, 2});
  }
  return each.empty() ? Results{} : f.only(y);
}
Results smoothed_linear(Call& c) { return smoothed(c, Filter::Linear, false); }
Results smoothed_cubic(Call& c) { return smoothed(c, Filter::Cubic, false); }
Results smoothed_linear_backward(Call& c) { return smoothed(c, Filter::Linear, true); }
Results smoothed_cubic_backward(Call& c) { return smoothed(c, Filter::Cubic, true); }

}  // namespace

void add_resample(Table& t) {
  const RowsByName row{t, {"", ".vec"}};
  row(upsample_linear, {"upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"});
  row(upsample_cubic, {"upsample_bicubic2d"});
  row(upsample_nearest, {"upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"});
  row(upsample_nearest_exact,
      {"_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"});
  row(upsample_linear_backward,
      {"upsample_linear1d_backward", "upsample_bilinear2d_backward", "upsample_trilinear3d_backward"});
  row(upsample_cubic_backward, {"upsample_bicubic2d_backward"});
  row(upsample_nearest_backward,
      {"upsample_nearest1d_backward", "upsample_nearest2d_backward", "upsample_nearest3d_backward"});
  row(upsample_nearest_exact_backward,
      {"_upsample_nearest_exact1d_backward", "_upsample_nearest_exact2d_backward",
       "_upsample_nearest_exact3d_backward"});
  row(smoothed_linear, {"_upsample_bilinear2d_aa"});
  row(smoothed_cubic, {"_upsample_bicubic2d_aa"});
  row(smoothed_linear_backward, {"_upsample_bilinear2d_aa_backward"});
  row(smoothed_cubic_backward, {"_upsample_bicubic2d_aa_backward"});
}

}  // namespace bolt::lower

// lower/lowerings/grid_sample.cpp
// Rows for reading an image between its pixels, at places that a grid gives, and for the grids of affine
// maps.
//
// The places are found as ATen finds them: brought from [-1, 1] to pixels, then clipped or reflected as the
// padding says. What lies outside counts as zero. Each pixel is read along one dimension after the other,
// which in a kernel is one address. Of gradients only the grid's is written here: that of the image adds at
// computed places, so a call that gives it stays ATen's.
#include <cmath>

#include "lower/families.h"
#include "lower/formula.h"

namespace bolt::lower {
namespace {

enum class Sampling : int64_t { Bilinear, Nearest, Bicubic };
enum class Outside : int64_t { Zeros, Border, Reflection };

constexpr double kKeys = -0.75;

Term rounded_half_even(Term x) { return x.apply(Op::round); }

/// One dimension of the image, and where in it the grid points.
struct Axis {
  int64_t size;
  Term at;
};

class Sampler {
 public:
  Sampler(Call& c, const Formula& f)
      : f_(f),
        x_(f("input")),
        dims_(static_cast<size_t>(x_.rank()) - 2),
        sampling_(static_cast<Sampling>(c.integer("interpolation_mode"))),
        outside_(static_cast<Outside>(c.integer("padding_mode"))),
        aligned_(c.flag("align_corners")) {
    const Term grid = f("grid");
    const Syms& sizes = grid.sizes();
    to_ = {x_.sizes()[0], x_.sizes()[1]};
    to_.insert(to_.end(), sizes.begin() + 1, sizes.end() - 1);
    // [N, 1, places, 1, ...]: as the image, its first dimension all places of the grid.
    places_ = product(Syms(sizes.begin() + 1, sizes.end() - 1));
    Syms shape(dims_ + 2, Sym(1));
    shape[0] = sizes[0];
    shape[2] = places_;
    for (size_t d = 0; d < dims_; ++d) {  // the grid's last number is for the image's first dimension
      const auto number = static_cast<int64_t>(dims_ - 1 - d);
      const int64_t size = x_.sizes()[d + 2].value();
      axes_.push_back({size, unnormalised(grid.part(grid.rank() - 1, number, 1).reshaped(shape), size)});
    }
  }

  bool is_known() const {
    for (const Axis& a : axes_)
      if (a.size == 0) return false;
    return !places_.is_const(0) && !x_.value->type.numel().is_const(0);
  }

  Term sampled() const {
    std::vector<Axis> axes = axes_;
    if (sampling_ == Sampling::Bicubic) return cubic(0, {}).reshaped(to_);
    for (Axis& a : axes) a.at = kept(a.at, a.size);
    if (sampling_ == Sampling::Nearest) {
      std::vector<Term> at;
      for (const Axis& a : axes) at.push_back(rounded_half_even(a.at));
      return pixel(at).reshaped(to_);
    }
    return linear(axes).reshaped(to_);
  }

 private:
  Term unnormalised(Term v, int64_t size) const {
    const auto n = static_cast<double>(size);
    return aligned_ ? (v + 1.0) / 2.0 * (n - 1) : ((v + 1.0) * n - 1.0) / 2.0;
  }

  /// What is no number is 0.
  Term clipped(Term v, int64_t size) const {
    return v.with(Op::fmax, v.number(0)).with(Op::fmin, v.number(static_cast<double>(size - 1)));
  }
  Term reflected(Term v, double twice_low, double twice_high) const {
    if (twice_low == twice_high) return f_.number(0).expanded(v.sizes());
    const double low = twice_low / 2, span = (twice_high - twice_low) / 2;
    v = abs(v - low);
    const Term extra = v.with(Op::fmod, v.number(span));
    const Term flips = floor(v / span);
    const Term is_odd = flips.with(Op::fmod, v.number(2)) != 0.0;
    return where(is_odd, span - extra + low, extra + low);
  }
  /// Inside the image, where the padding says so.
  Term kept(Term v, int64_t size) const {
    if (outside_ == Outside::Zeros) return v;
    const auto n = static_cast<double>(size);
    if (outside_ == Outside::Reflection)
      v = aligned_ ? reflected(v, 0, 2 * (n - 1)) : reflected(v, -1, 2 * n - 1);
    return clipped(v, size);
  }

  /// The pixel at whole places, one for each dimension, by its weight; 0 outside, whatever the weight.
  Term pixel(const std::vector<Term>& at, std::optional<Term> weight = std::nullopt) const {
    Term v = x_;
    std::optional<Term> inside;
    for (size_t d = 0; d < dims_; ++d) {
      const int64_t size = axes_[d].size;
      const Term here = (at[d] >= 0.0) & (at[d] <= static_cast<double>(size - 1));
      inside = inside ? *inside & here : here;
      Syms sizes = v.sizes();
      sizes[d + 2] = d == 0 ? places_ : Sym(1);
      const Term place = clipped(at[d], size).as(DType::I64).expanded(sizes);
      v = {v.call, v.call->make(Op::gather, {v.value, place.value}, {{"dim", static_cast<int64_t>(d) + 2}})};
    }
    if (weight) v = v * *weight;
    return where(*inside, v, f_.full(0, v.sizes()));
  }

  /// Each corner by the size of the box across from it.
  Term linear(const std::vector<Axis>& axes) const {
    std::vector<Term> low;
    for (const Axis& a : axes) low.push_back(floor(a.at));
    Sum sum;
    for (size_t corner = 0; corner < size_t{1} << dims_; ++corner) {
      std::vector<Term> at;
      std::optional<Term> weight;
      for (size_t d = dims_; d-- > 0;) {
        const bool is_high = corner >> (dims_ - 1 - d) & 1;
        const Term side = is_high ? axes[d].at - low[d] : low[d] + 1.0 - axes[d].at;
        weight = weight ? *weight * side : side;
        at.insert(at.begin(), is_high ? low[d] + 1.0 : low[d]);
      }
      sum += pixel(at, weight);
    }
    return *sum;
  }

  /// Four pixels along each dimension, the last one first.
  Term cubic(size_t d, const std::vector<Term>& before) const {
    if (d == dims_) return pixel(before);
    const Axis& a = axes_[d];
    const Term low = floor(a.at), t = a.at - low, rest = 1.0 - t;
    auto near = [](Term x) { return ((kKeys + 2) * x - (kKeys + 3)) * x * x + 1.0; };
    auto far = [](Term x) { return ((kKeys * x - 5 * kKeys) * x + 8 * kKeys) * x - 4 * kKeys; };
    const Term weights[] = {far(t + 1.0), near(t), near(rest), far(rest + 1.0)};
    Sum sum;
    for (int k = 0; k < 4; ++k) {
      std::vector<Term> at = before;
      at.push_back(kept(low + static_cast<double>(k - 1), a.size));
      sum += cubic(d + 1, at) * weights[k];
    }
    return *sum;
  }

  const Formula& f_;
  Term x_;
  size_t dims_;
  Sampling sampling_;
  Outside outside_;
  bool aligned_;
  Syms to_;
  Sym places_;
  std::vector<Axis> axes_;
};

Results grid_sampler(Call& c) {
  const Formula f(c);
  if (!f.is_real() || c.tensor("grid")->type.dtype != c.tensor("input")->type.dtype) return {};
  if (!is_read_at_places(c, "input")) return {};
  const Sampler sampler(c, f);
  return sampler.is_known() ? f.only(sampler.sampled()) : Results{};
}

// ---- grids ----

/// -1 .. 1 in so many steps as ATen makes them, from both ends; without corners the middles of the pixels.
Term steps(const Formula& f, int64_t n, bool aligned) {
  if (n <= 1) return f.full(0, {n});
  const auto count = static_cast<double>(n);
  const Term i = f.places(n, 0, 1).as(f.type()), step = f.number(2) / (count - 1);
  Term at = where(i < std::floor(count / 2), step * i - 1.0, 1.0 - step * (count - 1.0 - i));
  return aligned ? at : at * (count - 1) / count;
}

std::vector<Term> axes_of_grid(Call& c, const Formula& f) {
  const std::vector<int64_t> size = c.integers("size");
  const size_t dims = size.size() - 2;
  std::vector<Term> axes;  // x first
  for (size_t d = dims; d-- > 0;)
    axes.push_back(
        along(steps(f, size[d + 2], c.flag("align_corners")), static_cast<int64_t>(d) + 1, dims + 2));
  return axes;
}

// theta [N, D, D + 1] -> [N, ..., D]: theta's rows times (x, y, .., 1).
Results affine_grid(Call& c) {
  const Formula f(c);
  const std::vector<int64_t> size = c.integers("size");
  const auto dims = static_cast<int64_t>(size.size()) - 2;
  const Term theta = f("theta");
  if (!f.is_real() || theta.rank() != 3) return {};
  Syms shape(size.size(), Sym(1));  // [N, 1.., D]
  shape[0] = theta.sizes()[0];
  shape.back() = dims;
  auto column = [&](int64_t k) { return theta.part(2, k, 1).reshaped(shape); };
  const std::vector<Term> axes = axes_of_grid(c, f);
  Sum sum;
  for (int64_t k = 0; k < dims; ++k) {
    sum += axes[k] * column(k);
  }
  return f.only(*sum + column(dims));
}

Results affine_grid_backward(Call& c) {
  const Formula f(c);
  const Term g = f("grad");  // [N, ..., D]
  if (!f.is_real()) return {};
  const Syms over = dims_between(1, g.rank() - 1);
  Syms row = {g.sizes()[0], g.sizes().back(), Sym(1)};
  std::vector<Value*> columns;
  for (const Term& axis : axes_of_grid(c, f))
    columns.push_back((g * axis).sum(over, false).reshaped(row).value);
  columns.push_back(g.sum(over, false).reshaped(row).value);
  return f.only({&c, c.make(Op::cat, columns, {{"dim", int64_t{2}}})});
}

}  // namespace

void add_grid_samples(Table& t) {
  const RowsByName row{t};
  row(grid_sampler, {"grid_sampler", "grid_sampler_2d", "grid_sampler_3d"});
  row(affine_grid, {"affine_grid_generator"});
  row(affine_grid_backward, {"affine_grid_generator_backward"});
}

}  // namespace bolt::lower

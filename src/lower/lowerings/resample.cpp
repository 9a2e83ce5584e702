// lower/lowerings/resample.cpp
// Rows for changing the size of images and signals, as F.interpolate calls them.
//
// Linear interpolation is one dimension after the other, the last one first:
//
//   source = max(0, scale * (i + 0.5) - 0.5)      i the place in the result; scale * i where corners are
//   aligned y[i]   = (1 - f) * x[floor(source)] + f * x[min(floor(source) + 1, n - 1)]      f = source -
//   floor(source)
//
// in ATen's arithmetic and order. The places and fractions depend on sizes alone, so they are computed once.
#include <cmath>

#include "lower/lowering.h"

namespace bolt::lower {
namespace {

/// How far the source moves for a step of the result, as ATen rounds it.
double step(Call& c, size_t d, int64_t from, int64_t to) {
  if (c.has("align_corners") && c.flag("align_corners"))
    return to > 1 ? static_cast<float>(from - 1) / static_cast<float>(to - 1) : 0;
  if (c.has("scale_factors")) return static_cast<float>(1.0 / c.numbers("scale_factors")[d]);
  return static_cast<float>(from) / static_cast<float>(to);
}

/// x interpolated along `dim` to `to` places.
Value* interpolate(Call& c, Value* x, int64_t dim, int64_t to, double scale) {
  const DType f = x->type.dtype;
  const int64_t from = x->type.sizes[dim].value();
  Attrs run{{"size", Syms{to}}, {"start", int64_t{0}}, {"step", int64_t{1}}, {"dtype", DType::I64}};
  Value* source = c.cast(c.make(Op::iota, {}, run), f);
  if (c.flag("align_corners")) {
    source = c.make(Op::mul, {source, c.scalar_value(scale, f)});
  } else {
    Value* centre = c.make(Op::add, {source, c.scalar_value(0.5, f)});
    source = c.make(Op::sub, {c.make(Op::mul, {centre, c.scalar_value(scale, f)}), c.scalar_value(0.5, f)});
    source = c.make(Op::maximum, {source, c.scalar_value(0, f)});
  }
  Value* last = c.scalar_value(from - 1, DType::I64);
  Value* low = c.make(Op::minimum, {c.cast(c.make(Op::floor, {source}), DType::I64), last});
  Value* high = c.make(Op::minimum, {c.make(Op::add, {low, c.scalar_value(1, DType::I64)}), last});
  Value* fraction = c.make(Op::sub, {source, c.cast(low, f)});
  fraction =
      c.make(Op::minimum, {c.make(Op::maximum, {fraction, c.scalar_value(0, f)}), c.scalar_value(1, f)});

  Syms along(x->type.sizes.size(), Sym(1));
  along[dim] = to;
  auto weighted = [&](Value* weight, Value* places) {
    weight = c.make(Op::reshape, {weight}, {{"sizes", along}});
    return c.make(Op::mul, {weight, c.make(Op::index_select, {x, places}, {{"dim", dim}})});
  };
  Value* rest = c.make(Op::sub, {c.scalar_value(1, f), fraction});
  return c.make(Op::add, {weighted(rest, low), weighted(fraction, high)});
}

bool known(const Value* v) {
  for (Sym s : v->type.sizes)
    if (s.value() == 0) return false;
  return true;
}

std::vector<Value*> upsample_linear(Call& c) {
  Value* x = c.tensor("input");
  if (!is_float(x->type.dtype) || !known(x) || c.result_dtype() != x->type.dtype) return {};
  const std::vector<int64_t> to = c.static_sizes();
  Value* y = c.cast(x, compute_type(x->type.dtype));
  for (size_t d = to.size() - 1; d >= 2; --d) {
    const int64_t from = x->type.sizes[d].value();
    const double scale = step(c, d - 2, from, to[d]);
    if (from != to[d] || (scale != 1 && !c.flag("align_corners")))
      y = interpolate(c, y, static_cast<int64_t>(d), to[d], scale);
  }
  return {c.cast(y, x->type.dtype)};
}

std::vector<Value*> upsample_nearest(Call& c) {
  Value* x = c.tensor("input");
  if (!known(x)) return {};
  const std::vector<int64_t> to = c.static_sizes();
  std::vector<double> scales;
  for (size_t d = 2; d < to.size(); ++d) scales.push_back(step(c, d - 2, x->type.sizes[d].value(), to[d]));
  return {c.make(Op::upsample_nearest, {x},
                 {{"sizes", Call::syms({to.begin() + 2, to.end()})}, {"scales", scales}})};
}

}  // namespace

void add_resample(Table& t) {
  t["aten::upsample_linear1d.vec"] = t["aten::upsample_bilinear2d.vec"] = {upsample_linear, nullptr};
  t["aten::upsample_nearest1d.vec"] = t["aten::upsample_nearest2d.vec"] =
      t["aten::upsample_nearest3d.vec"] = {upsample_nearest, nullptr};
}

}  // namespace bolt::lower

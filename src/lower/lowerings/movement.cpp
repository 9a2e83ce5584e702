// lower/lowerings/movement.cpp
// Rows for what puts elements elsewhere: gradients that put them back where they were taken from (slices,
// diagonals, windows), and rearrangements.
//
// Nothing here writes at a computed place: each element of the result looks where it came from, which runs in
// parallel, gives the same sums every time, and fuses with what reads it.
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "graph/device_facts.h"
#include "lower/families.h"
#include "lower/slides.h"

namespace bolt::lower {
namespace {

Term gradient(Call& c) { return {&c, c.tensor("grad_output")}; }

Results slice_backward(Call& c) {
  Term g = gradient(c);
  const Syms to = c.syms("input_sizes");
  const int64_t dim = Call::wrap(c.integer("dim"), g.rank()), step = c.integer("step");
  const int64_t size = to[dim].value();
  int64_t start = c.integer("start");
  start = std::clamp<int64_t>(start < 0 ? start + size : start, 0, size);
  if (step == 1) return {placed(g, dim, start, size).value};
  Term zeros = Formula(c, g.dtype()).full(0, to);
  return {c.make(Op::slice_scatter, {zeros.value, g.value},
                 {{"dim", dim}, {"start", Syms{start}}, {"step", step}})};
}

Results select_backward(Call& c) {
  const Syms to = c.syms("input_sizes");
  const int64_t dim = Call::wrap(c.integer("dim"), static_cast<int64_t>(to.size()));
  const int64_t index = c.integer("index");
  const Sym size = to[dim];
  Syms one = to;
  one[dim] = 1;
  return {placed(gradient(c).reshaped(one), dim, index < 0 ? size + Sym(index) : Sym(index), size).value};
}

// The diagonal as the last dimension -> rows and columns as the last two -> these where they belong.
Results on_diagonal(Call& c, Term diagonal, const Syms& to) {
  const auto rank = static_cast<int64_t>(to.size()), offset = c.integer("offset");
  const int64_t row = Call::wrap(c.integer("dim1"), rank), column = Call::wrap(c.integer("dim2"), rank);
  const Formula f(c, DType::I64);
  const Sym rows = to[row], columns = to[column];
  const Term on = placed(diagonal, rank - 2, std::max<int64_t>(-offset, 0), rows);
  Syms upright = on.sizes();
  upright.push_back(1);
  const Term here = f.places(rows, 0, 2) + static_cast<double>(offset) == f.places(columns, 1, 2);
  const Term all = where(here, on.reshaped(upright), 0);
  std::vector<int64_t> from;
  for (int64_t d = 0, next = 0; d < rank; ++d)
    from.push_back(d == row ? rank - 2 : d == column ? rank - 1 : next++);
  return {permuted(all, from).value};
}

Results diagonal_backward(Call& c) { return on_diagonal(c, gradient(c), c.syms("input_sizes")); }

// ---- images ----

/// Each element of the last dimensions `times` over, side by side.
Term repeated(Term x, const std::vector<int64_t>& times) {
  const size_t lead = x.sizes().size() - times.size();
  Syms split(x.sizes().begin(), x.sizes().begin() + static_cast<std::ptrdiff_t>(lead)), wide = split,
                                                                                        whole = split;
  for (size_t i = 0; i < times.size(); ++i) {
    const Sym size = x.sizes()[lead + i];
    split.insert(split.end(), {size, Sym(1)});
    wide.insert(wide.end(), {size, Sym(times[i])});
    whole.push_back(size * Sym(times[i]));
  }
  return x.reshaped(split).expanded(wide).reshaped(whole);
}

/// By how much the last `n` dimensions of the one are larger; empty: by no whole numbers.
std::vector<int64_t> ratios(const Syms& large, const Syms& small, size_t n) {
  std::vector<int64_t> out;
  for (size_t i = large.size() - n; i < large.size(); ++i) {
    const int64_t a = large[i].value(), b = small[i].value();
    if (b == 0 || a % b != 0 || a == 0) return {};
    out.push_back(a / b);
  }
  return out;
}

int64_t number_of(const std::vector<int64_t>& numbers) {
  int64_t product = 1;
  for (int64_t n : numbers) product *= n;
  return product;
}

/// One number for each of `n` dimensions.
std::vector<int64_t> for_each_dim(std::vector<int64_t> numbers, size_t n) {
  if (numbers.size() == 1) numbers.resize(n, numbers[0]);
  return numbers;
}

/// The windows of a pool, where they lie side by side and cover what they are of but for a rest at the end.
std::vector<int64_t> tiles(Call& c, size_t n) {
  const std::vector<int64_t> kernel = for_each_dim(c.integers("kernel_size"), n);
  const std::vector<int64_t> given = c.integers("stride");
  if (!given.empty() && for_each_dim(given, n) != kernel) return {};
  for (int64_t p : c.integers("padding"))
    if (p != 0) return {};
  return kernel;
}
/// `value` for the rest that no window covers; nothing: the last window reaches over the edge.
std::optional<Term> grown(Term x, const Syms& to, double value) {
  Syms low(to.size(), Sym(0)), high = low;
  bool any = false;
  for (size_t d = 0; d < to.size(); ++d) {
    high[d] = to[d].value() - x.sizes()[d].value();
    if (high[d].value() < 0) return std::nullopt;
    any |= high[d].value() > 0;
  }
  return any ? padded(x, low, high, value) : x;
}

/// The number of each pixel in its image, the last `n` dimensions of `to`.
Term number_of_pixel(const Formula& whole, const Syms& to, size_t n) {
  const size_t rank = to.size();
  std::optional<Term> here;
  for (size_t d = rank - n; d < rank; ++d) {
    const Term at = whole.places(to[d], static_cast<int64_t>(d), rank);
    here = here ? *here * whole.count(to[d]) + at : at;
  }
  return *here;
}

/// The gradient of each window where the window's place says, the last dimensions being the image.
Results put_at_places(Call& c, const std::vector<int64_t>& kernel) {
  Term g = gradient(c), chosen{&c, c.tensor("indices")};
  const Syms to = c.sizes("self");
  if (kernel.empty() || product(to).is_const(0)) return {};
  const auto each = grown(repeated(g, kernel), to, 0), place = grown(repeated(chosen, kernel), to, -1);
  if (!each || !place) return {};
  const Term here = number_of_pixel(Formula(c, DType::I64), to, kernel.size());
  return {where(*place == here, *each, 0).value};
}
size_t spatial_of(Call& c) { return c.name().find("2d") != std::string_view::npos ? 2 : 3; }

/// Windows that overlap: each pixel adds the gradients of those it lies in whose place it is.
Results taken_from_places(Call& c, size_t n) {
  const Formula f(c), whole(c, DType::I64);
  const Term g = f("grad_output"), chosen{&c, c.tensor("indices")};
  const Syms to = c.sizes("self");
  const size_t rank = to.size();
  if (!f.is_real() || !graph::facts_of(g.value->type.device).reads_anywhere || rank <= n ||
      product(to).is_const(0) || g.value->type.numel().is_const(0))
    return {};
  struct Read {
    std::optional<Term> inside;
    Term gradient, place;
  };
  std::vector<Read> reads{{std::nullopt, g, chosen}};
  const std::vector<Slide> slides = slides_of(c, last_sizes(to, n), last_sizes(g.sizes(), n));
  for (size_t d = 0; d < n; ++d) {
    const auto dim = static_cast<int64_t>(rank - n + d);
    std::vector<Read> more;
    for (const Cover& cover : covers_of(whole, slides[d])) {
      const Term inside = along(cover.inside, dim, rank);
      for (const Read& r : reads)
        more.push_back({r.inside ? *r.inside & inside : inside, taken(r.gradient, dim, cover.window),
                        taken(r.place, dim, cover.window)});
    }
    reads = std::move(more);
    if (reads.size() > kMostCovers) return {};
  }
  const Term here = number_of_pixel(whole, to, n);
  Sum sum;
  for (const Read& r : reads) {
    sum += where(*r.inside & (r.place == here), r.gradient, 0);
  }
  return f.only(*sum);
}

Results max_pool_backward(Call& c) {
  const size_t n = spatial_of(c);
  const std::vector<int64_t> dilation = c.integers("dilation");
  if (std::all_of(dilation.begin(), dilation.end(), [](int64_t d) { return d == 1; }))
    if (Results side_by_side = put_at_places(c, tiles(c, n)); !side_by_side.empty()) return side_by_side;
  return taken_from_places(c, n);
}
Results adaptive_max_pool_backward(Call& c) {
  const size_t n = spatial_of(c);
  return put_at_places(c, ratios(c.sizes("self"), c.sizes("grad_output"), n));
}

Results adaptive_avg_pool_backward(Call& c) {
  Formula f(c);
  Term g = f("grad_output");
  const size_t n = c.name().find("3d") == std::string_view::npos ? 2 : 3;
  const std::vector<int64_t> times = ratios(c.sizes("self"), g.sizes(), n);
  if (times.empty()) return {};
  return f.only(repeated(g / static_cast<double>(number_of(times)), times));
}

/// The last three dimensions split in five, which are put into another order and joined to three.
Results regrouped(const Term& x, const Syms& split, const std::vector<int64_t>& order, const Syms& joined) {
  const int64_t lead = x.rank() - 3;
  Syms apart(x.sizes().begin(), x.sizes().begin() + lead), whole = apart;
  apart.insert(apart.end(), split.begin(), split.end());
  whole.insert(whole.end(), joined.begin(), joined.end());
  std::vector<int64_t> dims(static_cast<size_t>(lead));
  std::iota(dims.begin(), dims.end(), 0);
  for (int64_t d : order) dims.push_back(lead + d);
  return {permuted(x.reshaped(apart), dims).reshaped(whole).value};
}

// [.., C * r * r, H, W] <-> [.., C, H * r, W * r]
Results pixel_shuffle(Call& c) {
  const Term x{&c, c.tensor("self")};
  const Sym r = c.integer("upscale_factor");
  const Sym* s = &x.sizes().back() - 2;
  const Sym channels = floordiv(s[0], r * r);
  return regrouped(x, {channels, r, r, s[1], s[2]}, {0, 3, 1, 4, 2}, {channels, s[1] * r, s[2] * r});
}
Results pixel_unshuffle(Call& c) {
  const Term x{&c, c.tensor("self")};
  const Sym r = c.integer("downscale_factor");
  const Sym* s = &x.sizes().back() - 2;
  const Sym height = floordiv(s[1], r), width = floordiv(s[2], r);
  return regrouped(x, {s[0], height, r, width, r}, {0, 2, 4, 1, 3}, {s[0] * r * r, height, width});
}

// [N, groups * n, ...] -> [N, n * groups, ...]
Results channel_shuffle(Call& c) {
  Term x{&c, c.tensor("self")};
  const Sym groups = c.sym("groups");
  if (x.rank() < 3) return {};
  Syms split = x.sizes();
  split[1] = floordiv(split[1], groups);
  split.insert(split.begin() + 1, groups);
  std::vector<int64_t> order{0, 2, 1};
  for (int64_t d = 3; d < static_cast<int64_t>(split.size()); ++d) order.push_back(d);
  return {permuted(x.reshaped(split), order).reshaped(x.sizes()).value};
}

Results rot90(Call& c) {
  Term x{&c, c.tensor("self")};
  const int64_t turns = ((c.integer("k") % 4) + 4) % 4;
  const std::vector<int64_t> dims = c.integers("dims");
  const int64_t a = Call::wrap(dims[0], x.rank()), b = Call::wrap(dims[1], x.rank());
  if (turns != 3 && turns != 0) x = reversed(x, b);
  if (turns >= 2) x = reversed(x, a);
  if (turns % 2 == 0) return {x.value};
  std::vector<int64_t> order;
  for (int64_t d = 0; d < x.rank(); ++d) order.push_back(d == a ? b : d == b ? a : d);
  return {permuted(x, order).value};
}

// ---- diagonals ----

Results diag_embed(Call& c) {
  const Term x{&c, c.tensor("self")};
  const int64_t rank = x.rank() + 1;
  if (rank < 2) return {};
  Syms to(static_cast<size_t>(rank));
  to[Call::wrap(c.integer("dim1"), rank)] = to[Call::wrap(c.integer("dim2"), rank)] =
      x.sizes().back() + Sym(std::abs(c.integer("offset")));
  return on_diagonal(c, x, to);
}

/// The diagonal of a matrix.
std::optional<Term> diagonal_of(Call& c, int64_t offset) {
  Term x{&c, c.tensor("self")};
  if (x.rank() != 2) return std::nullopt;
  const int64_t rows = x.sizes()[0].value(), columns = x.sizes()[1].value();
  const int64_t length =
      std::min(rows + std::min<int64_t>(offset, 0), columns - std::max<int64_t>(offset, 0));
  if (length <= 0) return std::nullopt;
  const Sym start = offset >= 0 ? offset : -offset * columns;
  return x.apply(Op::as_strided,
                 {{"sizes", Syms{length}}, {"strides", Syms{columns + 1}}, {"offset", Syms{start}}});
}
Results diag(Call& c) {
  if (c.rank("self") != 1) {
    const auto on = diagonal_of(c, c.integer("diagonal"));
    return on ? Results{on->value} : Results{};
  }
  Term x{&c, c.tensor("self")};
  const int64_t offset = c.integer("diagonal");
  const Sym size = x.sizes()[0] + Sym(std::abs(offset));
  const Formula f(c, DType::I64);
  const Term rows = placed(x, 0, std::max<int64_t>(-offset, 0), size).reshaped({size, 1});
  return {where(f.places(size, 0, 2) + static_cast<double>(offset) == f.places(size, 1, 2), rows, 0).value};
}
Results trace(Call& c) {
  const auto on = diagonal_of(c, 0);
  if (!on || is_opaque(on->dtype())) return {};
  const DType t = c.result_dtype();
  return {on->as(compute_type(t)).sum({0}, false).as(t).value};
}

/// Windows along `dim`, of `size` elements each in the last dimension: back to where they were cut.
Results unfold_backward(Call& c) {
  const Formula f(c), whole(c, DType::I64);
  Term g = f("grad_in");
  const Syms to = c.syms("input_sizes");
  if (!f.is_real() || to.empty() || g.value->type.numel().is_const(0)) return {};
  const int64_t rank = static_cast<int64_t>(to.size()), dim = Call::wrap(c.integer("dim"), rank);
  const auto at = static_cast<size_t>(dim);
  const Slide s{to[at].value(), c.integer("size"), c.integer("step"), 0, 1, g.sizes()[at].value()};
  if (s.over_each() > kMostCovers) return {};
  std::vector<int64_t> order;  // elements of a window before windows
  for (int64_t d = 0; d < rank; ++d) {
    if (d == dim) order.push_back(rank);
    order.push_back(d);
  }
  return f.only(added_back(whole, permuted(g, order), dim, s));
}

}  // namespace

void add_movements(Table& t) {
  const RowsByName row{t};
  row.moving(slice_backward, {"slice_backward"});
  row.moving(select_backward, {"select_backward"});
  row.moving(diagonal_backward, {"diagonal_backward"});
  row(max_pool_backward, {"max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward"});
  row(adaptive_avg_pool_backward, {"_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward"});
  row(adaptive_max_pool_backward, {"adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward"});
  row.moving(pixel_shuffle, {"pixel_shuffle"});
  row.moving(pixel_unshuffle, {"pixel_unshuffle"});
  row.moving(channel_shuffle, {"channel_shuffle", "native_channel_shuffle"});
  row.moving(rot90, {"rot90"});
  row.moving(diag_embed, {"diag_embed"});
  row.moving(diag, {"diag"});
  row(trace, {"trace"});
  row(unfold_backward, {"unfold_backward"});
}

}  // namespace bolt::lower

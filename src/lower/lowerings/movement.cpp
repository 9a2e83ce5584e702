// lower/lowerings/movement.cpp
// Rows for gradients that put elements back where they were taken from: slices, diagonals, pools, resized
// images; and for scatters that write at most one element of each row.
//
// Nothing here writes at a computed place: each element of the result looks where it came from, which runs in
// parallel, gives the same sums every time, and fuses with what reads it.
#include <algorithm>
#include <limits>

#include "lower/formula.h"

namespace bolt::lower {
namespace {

Term padded(Term x, const Syms& low, const Syms& high, double value = 0) {
  return x.apply(Op::pad, {{"low", low}, {"high", high}, {"value", value}});
}
Term permuted(Term x, const std::vector<int64_t>& dims) {
  return x.apply(Op::permute, {{"dims", Call::syms(dims)}});
}

/// x with zeros around along `dim`, so that it has `size` elements there.
Term placed(Term x, int64_t dim, Sym start, Sym size) {
  const auto d = static_cast<size_t>(dim);
  Syms low(x.sizes().size(), Sym(0)), high = low;
  low[d] = start;
  high[d] = size - start - x.sizes()[d];
  return padded(x, low, high);
}

Term gradient(Call& c) { return {&c, c.tensor("grad_output")}; }

Results slice_backward(Call& c) {
  Term g = gradient(c);
  const Syms to = c.syms("input_sizes");
  const int64_t dim = Call::wrap(c.integer("dim"), g.rank()), step = c.integer("step");
  const int64_t size = to[static_cast<size_t>(dim)].value();
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
  const Sym size = to[static_cast<size_t>(dim)];
  Syms one = to;
  one[static_cast<size_t>(dim)] = 1;
  return {placed(gradient(c).reshaped(one), dim, index < 0 ? size + Sym(index) : Sym(index), size).value};
}

// The diagonal as the last dimension -> rows and columns as the last two -> these where they belong.
Results diagonal_backward(Call& c) {
  Term g = gradient(c);
  const Syms to = c.syms("input_sizes");
  const auto rank = static_cast<int64_t>(to.size());
  const int64_t row = Call::wrap(c.integer("dim1"), rank), column = Call::wrap(c.integer("dim2"), rank);
  const int64_t offset = c.integer("offset");
  Formula f(c, DType::I64);
  const Sym rows = to[static_cast<size_t>(row)], columns = to[static_cast<size_t>(column)];
  Term on = placed(g, rank - 2, std::max<int64_t>(-offset, 0), rows);
  Syms upright = on.sizes();
  upright.push_back(1);
  Term here = f.places(rows, 0, 2) + static_cast<double>(offset) == f.places(columns, 1, 2);
  Term all = where(here, on.reshaped(upright), 0);
  std::vector<int64_t> from;
  for (int64_t d = 0, next = 0; d < rank; ++d)
    from.push_back(d == row ? rank - 2 : d == column ? rank - 1 : next++);
  return {permuted(all, from).value};
}

// ---- scatters of one element of each row ----

/// Where the row is written; nullptr: it is not of one element, or not of each row.
Value* written_place(Call& c, Term x) {
  Term index{&c, c.tensor("index")};
  if (x.rank() == 0 || index.rank() != x.rank()) return nullptr;
  const int64_t dim = Call::wrap(c.integer("dim"), x.rank());
  for (int64_t d = 0; d < x.rank(); ++d) {
    const auto at = static_cast<size_t>(d);
    if (d == dim ? !index.sizes()[at].is_const(1) : index.sizes()[at] != x.sizes()[at]) return nullptr;
  }
  const Sym size = x.sizes()[static_cast<size_t>(dim)];
  if (size.is_const(0)) return nullptr;
  Formula f(c, DType::I64);
  return (f.places(size, dim, x.sizes().size()) == f.checked(index, size)).value;
}
Results scatter(Call& c) {
  Term x{&c, c.tensor("self")};
  Value* here = written_place(c, x);
  if (!here) return {};
  const bool of_number = !c.is_tensor("src");
  Term written{&c, c.operand(of_number ? "value" : "src", x.dtype())};
  if (!of_number && written.sizes() != c.sizes("index")) return {};
  return {where(Term{&c, here}, written, x).value};
}
Results scatter_add(Call& c) {
  Term x{&c, c.tensor("self")}, more{&c, c.tensor("src")};
  if (!is_float(x.dtype()) || more.sizes() != c.sizes("index")) return {};
  Value* here = written_place(c, x);
  if (!here) return {};
  return {(x + where(Term{&c, here}, more, 0)).value};
}

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

Results max_pool_backward(Call& c) {
  Term g = gradient(c), chosen{&c, c.tensor("indices")};
  const Syms to = c.sizes("self");
  const std::vector<int64_t> kernel = tiles(c, 2);
  for (int64_t d : c.integers("dilation"))
    if (d != 1) return {};
  if (kernel.empty() || product(to).is_const(0)) return {};
  const auto each = grown(repeated(g, kernel), to, 0), place = grown(repeated(chosen, kernel), to, -1);
  if (!each || !place) return {};
  Formula f(c, DType::I64);
  const size_t rank = to.size();
  const auto last = static_cast<int64_t>(rank) - 1;
  const Sym width = to[rank - 1];
  Term here = f.places(to[rank - 2], last - 1, rank) * f.count(width) + f.places(width, last, rank);
  return {where(*place == here, *each, 0).value};
}

Results avg_pool_backward(Call& c) {
  Formula f(c);
  const std::vector<int64_t> kernel = tiles(c, 2);
  if (kernel.empty() || c.has("divisor_override")) return {};
  Term share = f("grad_output") / static_cast<double>(number_of(kernel));
  const auto all = grown(repeated(share, kernel), c.sizes("self"), 0);
  return all ? f.only(*all) : Results{};
}

Results adaptive_avg_pool_backward(Call& c) {
  Formula f(c);
  Term g = f("grad_output");
  const size_t n = c.name().find("3d") == std::string_view::npos ? 2 : 3;
  const std::vector<int64_t> times = ratios(c.sizes("self"), g.sizes(), n);
  if (times.empty()) return {};
  return f.only(repeated(g / static_cast<double>(number_of(times)), times));
}

constexpr const char* kScales[] = {"scales", "scales_h", "scales_w", "scales_d"};

// Of images made larger by whole numbers: the sum of what each element was copied to.
Results upsample_nearest_backward(Call& c) {
  Formula f(c);
  Term g = f("grad_output");
  const Syms to = c.syms("input_size");
  const std::vector<int64_t> times = ratios(g.sizes(), to, to.size() - 2);
  if (times.empty()) return {};
  for (const char* name : kScales)
    if (c.has(name) &&
        std::find(times.begin(), times.end(), static_cast<int64_t>(c.number(name))) == times.end())
      return {};
  Syms split{to[0], to[1]}, dims;
  for (size_t i = 0; i < times.size(); ++i) {
    split.insert(split.end(), {to[i + 2], Sym(times[i])});
    dims.push_back(static_cast<int64_t>(split.size()) - 1);
  }
  return f.only(g.reshaped(split).sum(dims, false));
}

// [.., C * r * r, H, W] <-> [.., C, H * r, W * r]
Results pixel_shuffle(Call& c) {
  Term x{&c, c.tensor("self")};
  const Sym r = c.integer("upscale_factor");
  const auto n = static_cast<int64_t>(x.rank());
  const Syms& s = x.sizes();
  const auto at = static_cast<size_t>(n);
  const Sym channels = floordiv(s[at - 3], r * r);
  Syms lead(s.begin(), s.begin() + (n - 3)), split = lead, whole = lead;
  split.insert(split.end(), {channels, r, r, s[at - 2], s[at - 1]});
  whole.insert(whole.end(), {channels, s[at - 2] * r, s[at - 1] * r});
  std::vector<int64_t> order;
  for (int64_t d = 0; d < n - 3; ++d) order.push_back(d);
  for (int64_t d : {0, 3, 1, 4, 2}) order.push_back(n - 3 + d);
  return {permuted(x.reshaped(split), order).reshaped(whole).value};
}
Results pixel_unshuffle(Call& c) {
  Term x{&c, c.tensor("self")};
  const Sym r = c.integer("downscale_factor");
  const auto n = static_cast<int64_t>(x.rank());
  const Syms& s = x.sizes();
  const auto at = static_cast<size_t>(n);
  const Sym height = floordiv(s[at - 2], r), width = floordiv(s[at - 1], r);
  Syms lead(s.begin(), s.begin() + (n - 3)), split = lead, whole = lead;
  split.insert(split.end(), {s[at - 3], height, r, width, r});
  whole.insert(whole.end(), {s[at - 3] * r * r, height, width});
  std::vector<int64_t> order;
  for (int64_t d = 0; d < n - 3; ++d) order.push_back(d);
  for (int64_t d : {0, 2, 4, 1, 3}) order.push_back(n - 3 + d);
  return {permuted(x.reshaped(split), order).reshaped(whole).value};
}

}  // namespace

void add_movements(Table& t) {
  auto row = [&t](Builder b, std::initializer_list<const char*> names) {
    for (const char* n : names) t["aten::" + std::string(n)] = {b, nullptr};
  };
  row(slice_backward, {"slice_backward"});
  row(select_backward, {"select_backward"});
  row(diagonal_backward, {"diagonal_backward"});
  row(scatter, {"scatter.src", "scatter.value"});
  row(scatter_add, {"scatter_add"});
  row(max_pool_backward, {"max_pool2d_with_indices_backward"});
  row(avg_pool_backward, {"avg_pool2d_backward"});
  row(adaptive_avg_pool_backward, {"_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward"});
  row(upsample_nearest_backward,
      {"upsample_nearest1d_backward", "upsample_nearest2d_backward", "upsample_nearest3d_backward"});
  row(pixel_shuffle, {"pixel_shuffle"});
  row(pixel_unshuffle, {"pixel_unshuffle"});
}

}  // namespace bolt::lower

// lower/lowerings/pools.cpp
// Rows for pools that autograd sees: the largest of a window with its place, and gradients of averages.
//
// The largest is found as ATen finds it, element by element: a later one counts where it is larger or no
// number, and where none is the place is the first inside the image. Pools without places, forward, are nodes
// of the graph (nn.cpp).
#include <algorithm>
#include <limits>

#include "lower/families.h"
#include "lower/slides.h"

namespace bolt::lower {
namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();

/// Elements are compared one by one; of larger windows the call stays ATen's.
constexpr int64_t kLargestWindow = 32;

size_t spatial_rank(Call& c) {
  const std::string_view name = c.name();
  return name.find("1d") != name.npos ? 1 : name.find("2d") != name.npos ? 2 : 3;
}

/// A window's elements so far: the largest, and how far its place is from the window's corner.
struct Largest {
  Term value, distance;

  void see(Term element, Term at) {
    const Term counts = (element > value) | element.apply(Op::isnan);
    value = where(counts, element, value);
    distance = where(counts, at, distance);
  }
};

/// Every `step`th element along `dim` from `start` on.
Term every_nth(Term x, int64_t dim, int64_t start, int64_t length, int64_t step) {
  return x.apply(Op::slice, graph::slice_attrs(dim, start, length, step));
}

/// The largest of each window over the last dimensions of x, and its place. Nothing: the windows are too
/// large.
Results largest_of(Call& c, const Formula& f, Term x, const std::vector<Slide>& slides) {
  const Formula whole(c, DType::I64);
  const size_t n = slides.size(), rank = x.sizes().size(), lead = rank - n;
  const std::vector<int64_t> sizes = last_sizes(x.sizes(), n);
  int64_t elements = 1;
  for (const Slide& s : slides) elements *= s.kernel;
  if (elements > kLargestWindow) return {};
  x = bordered(x, slides, kLowest);

  // Where a window's corner lies, and how far behind it the first element inside the image.
  Term corner = whole.number(0), first = whole.number(0);
  for (size_t d = 0; d < n; ++d) {
    const Slide& s = slides[d];
    const auto row = static_cast<double>(
        product(Syms(sizes.begin() + static_cast<std::ptrdiff_t>(d) + 1, sizes.end())).value());
    const Term begin =
        whole.places(s.count, static_cast<int64_t>(lead + d), rank) * static_cast<double>(s.stride) -
        static_cast<double>(s.padding);
    corner = corner + begin * row;
    if (s.padding == 0) continue;
    const Term inside =
        larger(begin, begin.with(Op::remainder, begin.number(static_cast<double>(s.dilation))));
    first = first + (inside - begin) * row;
  }
  Syms to = x.sizes();
  for (size_t d = 0; d < n; ++d) to[lead + d] = slides[d].count;
  Largest largest{f.full(kLowest, to), first.as(DType::I32)};
  for (int64_t k = 0; k < elements; ++k) {
    Term element = x;
    int64_t rest = k, distance = 0, row = 1;
    for (size_t d = n; d-- > 0;) {
      const Slide& s = slides[d];
      const int64_t at = rest % s.kernel * s.dilation;
      element = every_nth(element, static_cast<int64_t>(lead + d), at, s.count, s.stride);
      distance += at * row;
      rest /= s.kernel;
      row *= s.size;
    }
    largest.see(element, largest.distance.number(static_cast<double>(distance)));
  }
  const Term place = corner + largest.distance.as(DType::I64);
  return {f.result(largest.value), place.expanded(to).value};
}

bool has_images(const Formula& f, Term x, size_t n) {
  return f.is_real() && x.sizes().size() > n && !x.value->type.numel().is_const(0);
}

Results max_pool_with_places(Call& c) {
  const Formula f(c);
  const size_t n = spatial_rank(c);
  const Term x = f("self");
  if (!has_images(f, x, n)) return {};
  const std::vector<int64_t> sizes = last_sizes(x.sizes(), n);
  c.demand_numbers();
  std::vector<int64_t> counts;
  for (size_t d = 0; d < n; ++d)
    counts.push_back(c.result_size(0, static_cast<int64_t>(x.sizes().size() - n + d)));
  return largest_of(c, f, x, slides_of(c, sizes, counts));
}

/// Elements that a float counts without gaps.
constexpr double kCounted = 1 << 24;

/// The last element that is no number, or the first of the largest: as ATen's loop finds it.
Term place_of_largest(const Formula& whole, Term x, Term largest) {
  const auto last = static_cast<int64_t>(x.rank()) - 1;
  const Term i = whole.places(x.sizes().back(), last, x.sizes().size()).as(DType::F32);
  const Term missing = where(x.apply(Op::isnan), i.expanded(x.sizes()), -1).reduced(Op::amax, {last}, true);
  const Term first = where(x == largest, i.expanded(x.sizes()), kCounted).reduced(Op::amin, {last}, true);
  return where(missing >= 0, missing, first).as(DType::I64);
}

// Of whole images, or of windows that lie side by side; others differ in size and stay ATen's.
Results adaptive_max_pool(Call& c) {
  const Formula f(c);
  const size_t n = spatial_rank(c);
  Term x = f("self");
  if (!has_images(f, x, n)) return {};
  const size_t lead = x.sizes().size() - n;
  const std::vector<int64_t> from = last_sizes(x.sizes(), n), to = per_dim(c, "output_size", n);
  if (std::all_of(to.begin(), to.end(), [](int64_t count) { return count == 1; })) {
    Syms flat(x.sizes().begin(), x.sizes().begin() + static_cast<std::ptrdiff_t>(lead)), one = flat;
    flat.push_back(product(Syms(from.begin(), from.end())));
    for (size_t d = 0; d < n; ++d) one.push_back(1);
    if (static_cast<double>(flat.back().value()) >= kCounted) return {};
    x = x.reshaped(flat);
    const Term largest = x.reduced(Op::amax, {static_cast<int64_t>(lead)}, true);
    const Term place = place_of_largest(Formula(c, DType::I64), x, largest);
    return {f.result(largest.reshaped(one)), place.reshaped(one).value};
  }
  std::vector<Slide> slides;
  for (size_t d = 0; d < n; ++d) {
    if (to[d] == 0 || from[d] % to[d] != 0) return {};
    slides.push_back({from[d], from[d] / to[d], from[d] / to[d], 0, 1, to[d]});
  }
  return largest_of(c, f, x, slides);
}

/// The gradient at each pixel: the sum over the windows that it lies in.
Term over_windows(const Formula& whole, Term g, int64_t dim, const Slide& s) {
  Sum sum;
  for (const Cover& cover : covers_of(whole, s)) {
    sum += where(along(cover.inside, dim, g.sizes().size()), taken(g, dim, cover.window), 0);
  }
  return *sum;
}

/// What the sum of each window along one dimension is divided by.
Term divisor(const Formula& f, const Formula& whole, const Slide& s, bool counts_padding, int64_t dim,
             size_t rank) {
  const Term begin =
      whole.places(s.count, 0, 1) * static_cast<double>(s.stride) - static_cast<double>(s.padding);
  const auto bound = static_cast<double>(s.size);
  Term end =
      smaller(begin + static_cast<double>(s.kernel), begin.number(bound + static_cast<double>(s.padding)));
  const Term length =
      counts_padding ? end - begin : smaller(end, begin.number(bound)) - larger(begin, begin.number(0));
  return along(length.as(f.type()), dim, rank);
}

Results avg_pool_backward(Call& c) {
  const Formula f(c), whole(c, DType::I64);
  Term g = f("grad_output");
  const size_t n = spatial_rank(c), rank = g.sizes().size();
  if (!f.is_real() || rank < n + 1 || g.value->type.numel().is_const(0)) return {};
  const std::vector<Slide> slides = slides_of(c, last_sizes(c.sizes("self"), n), last_sizes(g.sizes(), n));
  int64_t over = 1;
  double elements = 1;
  bool is_plain = true;  // all windows are whole
  for (const Slide& s : slides) {
    over *= s.over_each();
    elements *= static_cast<double>(s.kernel);
    is_plain &= s.padding == 0 && (s.count - 1) * s.stride + s.kernel <= s.size;
  }
  if (over > kMostCovers) return {};
  const bool is_given = c.has("divisor_override");
  if (is_given || is_plain) {
    g = g / (is_given ? static_cast<double>(c.integer("divisor_override")) : elements);
  } else {
    Term by = f.number(1);
    for (size_t d = 0; d < n; ++d)
      by = by * divisor(f, whole, slides[d], c.flag("count_include_pad"), static_cast<int64_t>(rank - n + d),
                        rank);
    g = g / by;
  }
  for (size_t d = n; d-- > 0;) g = over_windows(whole, g, static_cast<int64_t>(rank - n + d), slides[d]);
  return f.only(g);
}

}  // namespace

void add_pools(Table& t) {
  const RowsByName row{t};
  row(max_pool_with_places,
      {"max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices"});
  row(adaptive_max_pool, {"adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"});
  row(avg_pool_backward, {"avg_pool2d_backward", "avg_pool3d_backward"});
}

}  // namespace bolt::lower

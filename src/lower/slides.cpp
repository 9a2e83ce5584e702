// lower/slides.cpp
#include "lower/slides.h"

#include <algorithm>

namespace bolt::lower {

std::vector<int64_t> per_dim(Call& c, const char* name, size_t n) {
  std::vector<int64_t> v = c.integers(name);
  if (v.size() == 1) v.resize(n, v[0]);
  return v;
}

std::vector<int64_t> last_sizes(const Syms& sizes, size_t n) {
  return to_numbers(Syms(sizes.end() - static_cast<std::ptrdiff_t>(n), sizes.end()));
}

std::vector<Slide> slides_of(Call& c, const std::vector<int64_t>& sizes, const std::vector<int64_t>& counts) {
  const size_t n = sizes.size();
  const auto kernel = per_dim(c, "kernel_size", n), padding = per_dim(c, "padding", n);
  auto stride = per_dim(c, "stride", n);
  if (stride.empty()) stride = kernel;
  const auto dilation = c.has("dilation") ? per_dim(c, "dilation", n) : std::vector<int64_t>(n, 1);
  std::vector<Slide> out;
  for (size_t d = 0; d < n; ++d) {
    Slide s{sizes[d], kernel[d], stride[d], padding[d], dilation[d], counts.empty() ? 0 : counts[d]};
    if (counts.empty()) s.count = (s.size + 2 * s.padding - s.dilation * (s.kernel - 1) - 1) / s.stride + 1;
    out.push_back(s);
  }
  return out;
}

Term bordered(Term x, const std::vector<Slide>& slides, double value) {
  Syms low(x.sizes().size(), Sym(0)), high = low;
  bool any = false;
  for (size_t d = 0; d < slides.size(); ++d) {
    const Slide& s = slides[d];
    const size_t at = low.size() - slides.size() + d;
    const int64_t reach = (s.count - 1) * s.stride + (s.kernel - 1) * s.dilation + 1;
    low[at] = s.padding;
    high[at] = std::max<int64_t>(reach - s.padding - s.size, 0);
    any |= s.padding > 0 || high[at].value() > 0;
  }
  return any ? padded(x, low, high, value) : x;
}

std::vector<Cover> covers_of(const Formula& whole, const Slide& s) {
  const Term i = whole.places(s.size, 0, 1) + static_cast<double>(s.padding);
  const Term zero = i.number(0), stride = i.number(static_cast<double>(s.stride)),
             last = i.number(static_cast<double>(s.count - 1));
  std::vector<Cover> covers;
  auto add = [&](Term inside, Term window, Term element) {
    covers.push_back({inside & (window <= last), clamped(window, zero, last), element});
  };
  if (s.dilation == 1) {
    const Term newest = i.with(Op::floor_div, stride);
    for (int64_t back = 0; back * s.stride < s.kernel; ++back) {
      const Term window = newest - static_cast<double>(back), element = i - window * stride;
      const Term end = i.number(static_cast<double>(s.kernel - 1));
      add((window >= zero) & (element <= end), window, smaller(element, end));
    }
    return covers;
  }
  for (int64_t k = 0; k < s.kernel; ++k) {
    const Term from = i - static_cast<double>(k * s.dilation), window = from.with(Op::floor_div, stride);
    add((from >= zero) & (window * stride == from), window, i.number(static_cast<double>(k)));
  }
  return covers;
}

Term added_back(const Formula& whole, Term g, int64_t dim, const Slide& s) {
  Syms flat = g.sizes();
  flat.erase(flat.begin() + dim);
  flat[dim] = Sym(s.kernel * s.count);
  g = g.reshaped(flat);
  Sum sum;
  for (const Cover& cover : covers_of(whole, s)) {
    const Term place = cover.element * static_cast<double>(s.count) + cover.window;
    sum += where(along(cover.inside, dim, flat.size()), taken(g, dim, place), 0);
  }
  return *sum;
}

}  // namespace bolt::lower

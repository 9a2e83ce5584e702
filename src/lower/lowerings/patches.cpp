// lower/lowerings/patches.cpp
// Rows for patches of images side by side as columns (im2col: F.unfold) and added back (col2im: F.fold), each
// the gradient of the other.
#include "lower/families.h"
#include "lower/slides.h"

namespace bolt::lower {
namespace {

/// Dimensions as [.., a, b, c, d] -> [.., a, c, b, d]: its own inverse.
Term crossed(Term x) {
  const auto lead = static_cast<int64_t>(x.rank()) - 4;
  std::vector<int64_t> order;
  for (int64_t d = 0; d < lead; ++d) order.push_back(d);
  for (int64_t d : {0, 2, 1, 3}) order.push_back(lead + d);
  return permuted(x, order);
}

/// [N, C, H, W] -> [N, C * kernel, windows]; N may be missing.
Results im2col(Call& c) {
  Term x{&c, c.tensor("self")};
  const auto rank = static_cast<size_t>(x.rank());
  if (rank < 3 || x.value->type.numel().is_const(0)) return {};
  const std::vector<Slide> slides = slides_of(c, last_sizes(x.sizes(), 2), {});
  const Formula whole(c, DType::I64);
  Syms split(x.sizes().begin(), x.sizes().end() - 2), to(x.sizes().begin(), x.sizes().end() - 3);
  to.push_back(x.sizes()[rank - 3] * Sym(slides[0].kernel * slides[1].kernel));
  to.push_back(slides[0].count * slides[1].count);
  x = bordered(x, slides, 0);
  for (size_t d = 0; d < 2; ++d) {
    const Slide& s = slides[d];
    const Term places = whole.places(s.kernel, 0, 2) * static_cast<double>(s.dilation) +
                        whole.places(s.count, 1, 2) * static_cast<double>(s.stride);
    x = taken(x, static_cast<int64_t>(rank - 2 + d), places.reshaped({Sym(s.kernel * s.count)}));
    split.insert(split.end(), {s.kernel, s.count});
  }
  return {crossed(x.reshaped(split)).reshaped(to).value};
}

Results col2im(Call& c) {
  const Formula f(c), whole(c, DType::I64);
  Term g = f("self");
  if (!f.is_real() || g.rank() < 2 || g.value->type.numel().is_const(0)) return {};
  const std::vector<Slide> slides = slides_of(c, c.integers("output_size"), {});
  if (slides[0].over_each() * slides[1].over_each() > kMostCovers) return {};
  Syms split(g.sizes().begin(), g.sizes().end() - 2);
  split.push_back(floordiv(g.sizes()[g.sizes().size() - 2], slides[0].kernel * slides[1].kernel));
  const auto at = static_cast<int64_t>(split.size());
  split.insert(split.end(), {slides[0].kernel, slides[1].kernel, slides[0].count, slides[1].count});
  g = crossed(g.reshaped(split));  // [N, C, kh, oh, kw, ow]
  g = added_back(whole, g, at + 2, slides[1]);
  return f.only(added_back(whole, g, at, slides[0]));
}

}  // namespace

void add_patches(Table& t) {
  const RowsByName row{t};
  row(im2col, {"im2col"});
  row(col2im, {"col2im"});
}

}  // namespace bolt::lower

// lower/slides.h
// Windows that slide over the last dimensions of an image: pools and patches.
//
//   forward   window w begins at w * stride - padding; its elements are `dilation` apart
//   backward  a pixel looks at the windows that it lies in: the last that has begun there, and those before
//   it
//             that reach so far
//
// Places are arithmetic on the numbers of windows and pixels, so in a kernel they are addresses.
#pragma once

#include <functional>
#include <vector>

#include "lower/formula.h"

namespace bolt::lower {

/// The windows along one dimension.
struct Slide {
  int64_t size, kernel, stride, padding, dilation, count;

  /// In how many windows an element can be.
  int64_t over_each() const { return dilation == 1 ? (kernel + stride - 1) / stride : kernel; }
};

/// An argument with one number for each of n dimensions, or one for all.
std::vector<int64_t> per_dim(Call& c, const char* name, size_t n);
/// By the arguments kernel_size, stride, padding and dilation, where the operator has them. A count of 0 is
/// as many windows as fit.
std::vector<Slide> slides_of(Call& c, const std::vector<int64_t>& sizes, const std::vector<int64_t>& counts);
/// Of the last n dimensions.
std::vector<int64_t> last_sizes(const Syms& sizes, size_t n);
/// x with `value` around its last dimensions, so that every window lies inside.
Term bordered(Term x, const std::vector<Slide>& slides, double value);

/// For each window that a pixel may lie in: whether it does, its number and which of the window's elements
/// the pixel is; where it does not, those of another. All in one dimension, of the pixels.
struct Cover {
  Term inside, window, element;
};
std::vector<Cover> covers_of(const Formula& whole, const Slide& s);
/// Covers are added one by one; where there are more the call stays ATen's.
constexpr int64_t kMostCovers = 9;
/// Of dimension `dim`, [elements of a window, windows] in `dim` and `dim + 1`: the sum of what lies at each
/// pixel.
Term added_back(const Formula& whole, Term g, int64_t dim, const Slide& s);

}  // namespace bolt::lower

// lower/taps.h
// One dimension of an image at another size: each element of the result is a weighted sum of a few of the
// operand, its taps.
//
//   source = scale * (i + 0.5) - 0.5         i the place in the result; scale * i where corners are aligned
//   nearest     floor(scale * i), exactly floor(scale * (i + 0.5))
//   linear      floor(source) and the next one, by the distance to the other; source not below 0
//   cubic       two on either side, by Keys' polynomials with -0.75
//
// in ATen's arithmetic; places outside are the last ones inside. Of several dimensions the last comes first.
// Backward the same weights are gathered from the other side: an element of the operand looks at the stretch
// of the result in which it can be a tap.
#pragma once

#include <vector>

#include "lower/formula.h"

namespace bolt::lower {

enum class Filter : uint8_t { Nearest, NearestExact, Linear, Cubic };

/// How one dimension changes.
struct Scaling {
  int64_t from, to;
  double scale;  ///< how far the source moves for a step of the result, as ATen rounds it
  bool aligned;  ///< corners are
  Filter filter;

  bool is_same() const { return from == to && (scale == 1 || aligned); }
};

/// ATen's scale: by the sizes, or by the factor that was given.
double scale_of(int64_t from, int64_t to, bool aligned, std::optional<double> factor, DType t);

/// x with `s.to` elements along `dim`.
Term resampled(const Formula& f, Term x, int64_t dim, const Scaling& s);
/// The gradient of x, from that of what was made of it.
Term resampled_backward(const Formula& f, Term g, int64_t dim, const Scaling& s);

}  // namespace bolt::lower

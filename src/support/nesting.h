// support/nesting.h
// Sizes and strides as one run showed them -> how the dimensions lie one in the other.
//
// From the innermost, each dimension that is stepped over begins where the last one ends: tightly (`stride ==
// size * stride` of the last), or with a gap behind it. All that torch decides by strides - whether a tensor
// is contiguous or channels last, whether a view can be reshaped without a copy, how results are laid out -
// it decides by this, so that tensors with the same nesting have results of one kind, whatever their strides.
//
//     tokens[:, :-1]      strides (n, 1): a gap behind the rows
//     image crop          strides (c*h*w, h*w, w, 1) of larger h and w: gaps behind the rows and the channels
//     x[::2] of two rows  strides (2*n, 1): dimensions of size 1 have gaps like others, since views show them
//     mask.expand(b, n)   strides (0, 1): the first is stepped over by nothing
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "support/sym.h"

namespace bolt {

/// Where dimensions have a bit, strides have one that lies this much further up, and symbols for them such a
/// dimension.
constexpr int kStrideBit = 32;

struct Nesting {
  std::vector<int> order;  ///< from the innermost
  uint64_t gaps = 0;       ///< behind what lies inside these
  uint64_t apart = 0;      ///< in no order: of stride 0, or of size 1 and anywhere

  bool is_tight() const { return gaps == 0 && apart == 0; }
};

/// Nothing: elements overlap.
template <class Ints>
std::optional<Nesting> nesting_of(const Ints& sizes, const Ints& strides) {
  if (sizes.size() > kStrideBit) return std::nullopt;
  Nesting nesting;
  std::vector<int> all;
  for (int d = static_cast<int>(sizes.size()); d-- > 0;) all.push_back(d);
  std::stable_sort(all.begin(), all.end(), [&](int a, int b) {
    return std::pair(strides[a], sizes[a] != 1) < std::pair(strides[b], sizes[b] != 1);
  });
  int64_t run = 1;
  for (const int d : all) {
    const int64_t size = sizes[d], stride = strides[d];
    if (stride != 0 && stride < run && size != 1) return std::nullopt;
    if (stride == 0 || stride < run) {
      nesting.apart |= uint64_t{1} << d;
      continue;
    }
    if (stride != run) nesting.gaps |= uint64_t{1} << d;
    nesting.order.push_back(d);
    run = stride * std::max<int64_t>(size, 1);  // as torch has them: as if there were one
  }
  return nesting;
}

/// Strides of a tensor that is nested so and has these sizes. Each is what lies inside that dimension; only
/// those behind a gap, and of dimensions that are apart, are the ones given.
inline Syms strides_over(const Nesting& nesting, const Syms& sizes, Syms strides) {
  Sym run = 1;
  for (const int dim : nesting.order) {
    const auto d = static_cast<size_t>(dim);
    if (!(nesting.gaps >> d & 1)) strides[d] = run;
    run = strides[d] * sizes[d];
  }
  return strides;
}

}  // namespace bolt

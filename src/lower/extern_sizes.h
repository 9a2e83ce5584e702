// lower/extern_sizes.h
// A call that stays one call of ATen -> the sizes of its results as expressions.
//
// Only for operators whose rule is known to this table; of any other the sizes of operands are demanded. The
// program compares what ATen gives with what was said here.
#pragma once

#include <optional>
#include <vector>

#include "lower/lowering.h"

namespace bolt::lower {

/// Per result; nothing: not known.
std::optional<std::vector<Syms>> extern_sizes(const Call& c);

/// A place along a dimension of `size`: negative from the end. What it is is guarded.
Sym from_start(const Call& c, Sym at, Sym size);

/// What aten::slice shows of a dimension.
struct SliceOfDim {
  int64_t dim;
  Sym start, length;
  int64_t step;
};
SliceOfDim cut_by_slice(const Call& c);
/// What aten::select shows, which has that dimension no more.
SliceOfDim place_by_select(const Call& c);

}  // namespace bolt::lower

// lower/view_layout.h
// A view's steps and how its parent lies in memory -> how it lies itself: strides and offset as expressions.
//
// The recorded run showed strides for one set of sizes. For others they are followed through the steps, and
// kept where the result is what was recorded; elsewhere they are those of a dense tensor, or not known.
#pragma once

#include <vector>

#include "graph/ir.h"
#include "lower/lowering.h"
#include "lower/sizes.h"
#include "record/tape.h"

namespace bolt::lower {

/// Of a tensor, as eager lays it out.
struct Layout {
  Syms sizes, strides;             // as many strides as sizes, or none: they are not known
  Sym offset;                      // from the first element of the storage's root, in elements
  bool placed = true;              // offset is known
  bool placed_as_recorded = true;  // at the same place in every call, relative to the root
};

/// The stride of `parent` that was this number when it was recorded; where there is none, the number.
Sym stride_like(int64_t recorded, const Layout& parent, const Sizes& all);

/// The recorded strides as expressions: those of a dense tensor with its dimensions in the order that was
/// seen. With gaps, or repeated elements, they say nothing about other sizes.
/// `step`: from each element to the next.
Syms eager_strides(const record::TensorInfo& info, const Syms& sizes, const Sizes& all, int64_t step = 1);

/// Of a view, whose value has this type: what its steps make of the strides of what it is a view of, where
/// that is what was recorded. `info` and `parent_info` are what was.
Layout view_layout(const record::TensorInfo& info, const graph::Type& type,
                   const std::vector<ViewStep>& steps, const record::TensorInfo& parent_info,
                   const Layout& parent, const Sizes& all);

}  // namespace bolt::lower

// loops/sum_outer_first.h
// Sums over what lies innermost and outermost, but not over what lies between -> sums over what lies
// outermost, and over what is left of those
//
//   x: [images, groups, 4 channels, pixels], channels-last in memory
//   sum(x, channels and pixels)  ->  sum(sum(x, pixels), channels)
//
// A group of a few channels is a few bytes of each pixel: who sums up one group reads a part of every piece
// of memory that it is given, and all groups together read each piece many times. The sums of each channel
// are sums down columns instead, which read everything once, and as it lies. After layouts are chosen, which
// say how it lies.
#pragma once

#include "graph/ir.h"

namespace bolt::loops {

/// The graph must be numbered; true: something changed, and it is not any more.
bool sum_outer_first(graph::Graph& graph);

}  // namespace bolt::loops

// loops/end_in_casts.h
// A product of half types that is only wanted in float32 -> the product's sums as they are, in float32
//
//   %y = matmul(%g, %x) : bf16
//   %z = cast(%y) : f32           ->    %z = matmul(%g, %x) {wide=true} : f32
//
// or a reshape of it. Under autocast that is every weight's gradient: the library adds up in float32, rounds
// to the half type, and a kernel of ours reads that and writes float32 again. A library that stores its sums
// saves the kernel and the rounding. Only where the float32 result has to be in memory anyway, as a result of
// the program or for another call: a kernel that reads it reads half as much of what is rounded.
#pragma once

#include "graph/ir.h"
#include "loops/plan.h"

namespace bolt::loops {

/// Where PlanOptions::ends_in_float says so, and no rounding is to be as in eager. The graph must be
/// numbered; true: something changed, and it is not any more.
bool end_in_casts(graph::Graph& graph, const PlanOptions& options);

}  // namespace bolt::loops

// loops/narrow_weights.h
// Contractions of float32 whose constant weights were halves -> the same by the halves
//
//   linear(x: f32, cast(w: bf16, f32))  ->  linear(x: f32, w: bf16)
//
// where the code generator multiplies by them. They are packed as they are, in half the memory, and made
// float32 on the way to the registers, which loses nothing. So a processor that has no instructions for
// halves (graph/passes/widen_halves.cpp) reads no more of them than one that does. After layouts are chosen,
// since these decide who computes a convolution.
#pragma once

#include "graph/ir.h"
#include "loops/plan.h"

namespace bolt::loops {

/// The graph must be numbered; true: something changed, and it is not any more.
bool narrow_weights(graph::Graph& graph, const PlanOptions& options);

}  // namespace bolt::loops

// loops/end_in_activations.h
// A product and the activation behind it -> one call, where the product's library can end in that
//
//   %y = linear(%x, %w, %b)
//   %z = gelu(%y) {approximate="tanh"}    ->    %z = linear(%x, %w, %b) {activation="gelu_tanh"}
//
// or a reshape of it. What the product gives is neither stored nor read again, nor rounded in between. Only
// where nothing else reads it, and where no code of our own computes it: that has epilogues of any kind.
#pragma once

#include "graph/ir.h"
#include "loops/plan.h"

namespace bolt::loops {

/// Where PlanOptions::ends_in_gelu says so. The graph must be numbered; true: something changed, and it is
/// not any more.
bool end_in_activations(graph::Graph& graph, const PlanOptions& options);

}  // namespace bolt::loops

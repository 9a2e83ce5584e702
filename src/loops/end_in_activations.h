// loops/end_in_activations.h
// A product or convolution, and the activation or sum behind it -> one call, where the library can end in
// that
//
//   %y = linear(%x, %w, %b)
//   %z = gelu(%y) {approximate="tanh"}    ->    %z = linear(%x, %w, %b) {activation="gelu_tanh"}
//   or relu(%y)                           ->                            {activation="relu"}
//
//   %y = conv(%x, %w)
//   %s = add(%y, %b), add(%s, %r)         ->    %z = conv(%x, %w, %b, %r) {activation="relu"}
//   %z = relu(%s)
//
// or, of the product, a reshape of it; of the convolution, the sum in any order, of what may be two
// convolutions, with a bias or two, and with or without another image; or such a sum with an image itself.
// What the call gives is neither stored nor read again, nor rounded in between. Only where nothing else reads
// it, and where no code of our own computes it: that has epilogues of any kind.
#pragma once

#include "graph/ir.h"
#include "loops/plan.h"

namespace bolt::loops {

/// Where PlanOptions::ends_in says so. The graph must be numbered; true: something changed, and it is not any
/// more.
bool end_in_activations(graph::Graph& graph, const PlanOptions& options);

}  // namespace bolt::loops

// loops/scatter_onto.h
// A sum of something and of what is scattered into zeros -> the same scattered into that something
//
//   %z = full() {value=0}
//   %s = scatter(%z, %i, %x) {op="sum"}
//   %y = add(%g, %s)                     ->    %y = scatter(%g, %i, %x) {op="sum"}
//
// Weights that are both an embedding and the last layer have such a gradient, as large as the vocabulary: the
// zeros are not written, nor is all of it read again for the few rows that are added to. The order of
// additions is another, as it is between threads that scatter.
#pragma once

#include "graph/ir.h"

namespace bolt::loops {

/// Where nothing else reads either. The graph must be numbered; true: something changed, and it is not any
/// more.
bool scatter_onto(graph::Graph& graph);

}  // namespace bolt::loops

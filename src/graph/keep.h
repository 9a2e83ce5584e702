// graph/keep.h
// A value that is handed on to a later part of the program: forward pass -> backward pass.
//
// Whatever the later part computes of it is apart from what was computed of it before, although the formulas
// may be equal: no pass finds them equal, and no kernel does work of both, so that nothing but the value
// itself waits in memory for that part. It is written as a flip over no dimension, which shows the elements
// as they are, and which nothing looks through.
#pragma once

#include "graph/ir.h"

namespace bolt::graph {

inline bool is_keep(const Node& n) { return n.op == Op::flip && n.attr<Syms>("dims").empty(); }

}  // namespace bolt::graph

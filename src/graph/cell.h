// graph/cell.h
// A number of any element type, and what pointwise operations make of it: for constants of graphs, and for
// the reference executions that tests compare with (tests/reference).
//
// Floating values are doubles, which only casts round. Integers are exact and wrap at their width.
#pragma once

#include "graph/ir.h"

namespace bolt::graph {

union Cell {
  double real;
  int64_t whole;  // integers and bool
};

/// Rounds a double to the nearest value of a floating type, wraps an integer to its width.
BOLT_API double round_to(DType t, double v);
BOLT_API int64_t wrap_to(DType t, int64_t v);

/// An attribute that is a number, but no size, as one of type t.
BOLT_API Cell number_cell(const Attr& value, DType t);
/// One operation whose form in a kernel is Scalar, on operands of this type (`where`: of its choices).
BOLT_API Cell scalar_cell(Op op, DType operand, const Cell* operands);
/// A pointwise node, of one element of each operand.
BOLT_API Cell pointwise_cell(const Node& node, const Cell* operands);

}  // namespace bolt::graph

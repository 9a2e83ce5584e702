// graph/verify.h
// What every Graph must satisfy, between any two passes:
//
//   order       an operand is a graph input or a result of an earlier node
//   ownership   a value knows its node and its place in it; an input its index; no operand is null
//   arity       the number of operands is what the op's row allows; one result, but for extern_call
//   attributes  exactly those of the row, of the row's types
//   types       each result has the sizes and the element type that the rules of the op give; one stride per
//   size outputs     every output is a value of this graph; a write goes to an existing input of the same
//   sizes and element
//               type, and no input is written twice
//
// Not checked: that strides describe memory without overlap, that symbolic sizes which must be equal are, and
// that indices are in range.
#pragma once

#include "graph/ir.h"

namespace bolt::graph {

/// Throws Error(Internal) that quotes the node at fault.
BOLT_API void verify(const Graph& g);

/// One node in the text form, for messages.
BOLT_API std::string describe(const Node& node);

}  // namespace bolt::graph

// graph/op_rules.h
// How the types of an operation's results follow from its operands: the private half of ops.def.
#pragma once

#include "graph/ir.h"

namespace bolt::graph {

enum class ShapeRule : uint8_t { Broadcast, Same, Reduce, Own };
enum class DTypeRule : uint8_t { Same, Bool, Attr, Float, Int64, Float32, Float64, Own };

struct OpRules {
  ShapeRule shape;
  DTypeRule dtype;
};
const OpRules& op_rules(Op op);

/// Type of the single result. Error(Internal) when operands and attributes do not fit the operation;
/// extern_call has no rule. Strides follow eager's habits where that is cheap to say (pointwise keeps a dense
/// operand's order, views keep their window), else contiguous.
BOLT_API Type infer_type(Op op, const std::vector<Value*>& operands, const Attrs& attrs);

/// NumPy's rule over two shapes.
BOLT_API Syms broadcast(const Syms& a, const Syms& b);

/// Fills in defaults and brings values to the types of the row; Error(Internal) for a missing or foreign
/// attribute.
void normalize_attrs(Op op, Attrs& attrs);

}  // namespace bolt::graph

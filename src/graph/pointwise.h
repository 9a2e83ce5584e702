// graph/pointwise.h
// The rows of pointwise.def as data: for whoever lowers, prices, expands or executes an operation that works
// element by element, so that none of them keeps a list of its own.
#pragma once

#include <span>
#include <string_view>

#include "graph/ir.h"

namespace bolt::graph {

/// How many vector instructions a vector of results takes, roughly. Two cheap ones start in a cycle of a
/// CPU's core.
enum class Cost : uint8_t { Parts = 0, Cheap = 1, Divide = 8, Exp = 24, Log = 48, Hard = 120 };

/// What it is in a kernel: an operation of the same name, several of them, or a cast.
enum class Form : uint8_t { Scalar, Expanded, Cast };

/// In which type ATen's operators of this name compute.
enum class Promotion : uint8_t {
  Arith,    // computed and given in the promoted type
  Float,    // integers become the default floating type first
  Compare,  // computed in the promoted type, gives bool
  Bool,     // operands as truth values, gives bool
  Own       // lowered by a function of its own
};

struct PointwiseRow {
  std::string_view name;
  Op op;
  int operands;
  Cost cost;
  Form form;
  Promotion promotion;
  std::string_view aten;  // without "aten::", several apart by a space
};

BOLT_API std::span<const PointwiseRow> pointwise_rows();
/// The row of an operation of the kind Pointwise.
BOLT_API const PointwiseRow& pointwise_row(Op op);
inline int instructions(Op op) { return static_cast<int>(pointwise_row(op).cost); }

}  // namespace bolt::graph

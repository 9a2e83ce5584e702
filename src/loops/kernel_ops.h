// loops/kernel_ops.h
// Facts about the scalar operations of a kernel, each from its row in graph/pointwise.def, and about
// reductions.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "graph/ir.h"
#include "loops/kernel.h"

namespace bolt::loops {

BOLT_API std::string_view scalar_op_name(ScalarOp op);
BOLT_API std::optional<ScalarOp> scalar_op_from_name(std::string_view name);
BOLT_API int scalar_op_arity(ScalarOp op);
/// The operation of the graph that it is.
graph::Op graph_op(ScalarOp op);
/// Vector instructions for a vector of results, roughly (graph/pointwise.h).
BOLT_API int instructions(ScalarOp op);
/// Is it a polynomial with special cases, or a loop: exp, tanh, erf, fmod?
bool is_function(ScalarOp op);
BOLT_API std::string_view reduce_op_name(ReduceOp op);
BOLT_API std::optional<ReduceOp> reduce_op_from_name(std::string_view name);
/// Comparisons and tests give b8, `where` the type of its choices, everything else the type of its operands.
BOLT_API DType op_result_dtype(ScalarOp op, const std::vector<DType>& operands);
BOLT_API DType reduce_result_dtype(ReduceOp op, DType operand);
/// How a scatter's store is called: "last", "sum", ...
BOLT_API std::string_view into_name(Into into);
BOLT_API std::optional<Into> into_from_name(std::string_view name);
inline bool is_arg_reduce(ReduceOp op) { return op == ReduceOp::ArgMax || op == ReduceOp::ArgMin; }
bool gives_bool(ScalarOp op);
/// May code make one instruction, which rounds once, of this product or sum and of a sum or product beside
/// it? Not of a sum of two products: one of them would be rounded and the other not, and what is 0 in eager
/// (the difference of two equal elements that were normalised) would be what rounding takes away, with a
/// sign. Other operations and integers have nothing to contract.
BOLT_API bool may_contract(const Kernel& k, const Expr& e);
/// Is it a number of the half type t in any case: one that was, is chosen among such, or has another sign?
BOLT_API bool holds(const std::vector<Expr>& exprs, ExprId id, DType t);
/// As what a kernel reads and stores elements of type t. Those with which none computes are moved as whole
/// numbers that are as wide, where there are such.
BOLT_API DType moved_as(DType t);
/// Over which dimensions `e`, whose operands are already in `k`, varies.
uint32_t dims_of(const Kernel& k, const Expr& e);

}  // namespace bolt::loops

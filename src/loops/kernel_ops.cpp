// loops/kernel_ops.cpp
#include "loops/kernel_ops.h"

#include <iterator>

namespace bolt::loops {
namespace {

struct ScalarFacts {
  std::string_view name;
  int arity;
};
constexpr ScalarFacts kScalarOps[] = {
#define X(name, n) {#name, n},
    BOLT_FOR_EACH_SCALAR_OP(X)
#undef X
};
constexpr std::string_view kReduceOps[] = {"sum", "prod", "max", "min", "any", "all", "argmax", "argmin"};

}  // namespace

std::string_view scalar_op_name(ScalarOp op) { return kScalarOps[static_cast<int>(op)].name; }
int scalar_op_arity(ScalarOp op) { return kScalarOps[static_cast<int>(op)].arity; }
std::string_view reduce_op_name(ReduceOp op) { return kReduceOps[static_cast<int>(op)]; }

std::optional<ScalarOp> scalar_op_from_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kScalarOps); ++i)
    if (kScalarOps[i].name == name) return static_cast<ScalarOp>(i);
  return std::nullopt;
}

std::optional<ReduceOp> reduce_op_from_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kReduceOps); ++i)
    if (kReduceOps[i] == name) return static_cast<ReduceOp>(i);
  return std::nullopt;
}

bool gives_bool(ScalarOp op) {
  switch (op) {
    case ScalarOp::isnan:
    case ScalarOp::isinf:
    case ScalarOp::logical_not:
    case ScalarOp::eq:
    case ScalarOp::ne:
    case ScalarOp::lt:
    case ScalarOp::le:
    case ScalarOp::gt:
    case ScalarOp::ge: return true;
    default: return false;
  }
}

DType op_result_dtype(ScalarOp op, const std::vector<DType>& operands) {
  if (gives_bool(op)) return DType::Bool;
  if (op == ScalarOp::from_bits) return DType::F64;
  return op == ScalarOp::where ? operands[1] : operands[0];
}

DType reduce_result_dtype(ReduceOp op, DType operand) { return is_arg_reduce(op) ? DType::I64 : operand; }

}  // namespace bolt::loops

// loops/kernel_ops.cpp
#include "loops/kernel_ops.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "graph/op_rules.h"
#include "graph/pointwise.h"
#include "support/error.h"
#include "support/half.h"

namespace bolt::loops {
namespace {

/// By ScalarOp: its row in the graph's table.
const std::vector<const graph::PointwiseRow*>& rows() {
  static const auto* table = [] {
    auto* t = new std::vector<const graph::PointwiseRow*>;
    for (const graph::PointwiseRow& row : graph::pointwise_rows())
      if (row.form == graph::Form::Scalar) t->push_back(&row);
    return t;
  }();
  return *table;
}

constexpr std::string_view kReduceOps[] = {"sum", "prod",   "max",    "min",      "any",
                                           "all", "argmax", "argmin", "logaddexp"};
constexpr std::string_view kInto[] = {"", "last", "sum", "prod", "max", "min"};

/// Does it give one of its operands, or that with another sign?
bool chooses(ScalarOp op) {
  using S = ScalarOp;
  static constexpr S all[] = {S::neg,  S::abs,  S::maximum,  S::minimum,
                              S::fmax, S::fmin, S::copysign, S::where};
  return std::find(std::begin(all), std::end(all), op) != std::end(all);
}

bool is_number_of(double value, DType t) {
  const auto number = static_cast<float>(value);
  const float rounded =
      t == DType::BF16 ? bf16_to_float(float_to_bf16(number)) : f16_to_float(float_to_f16(number));
  return rounded == value || std::isnan(value);
}

}  // namespace

graph::Op graph_op(ScalarOp op) { return rows()[static_cast<size_t>(op)]->op; }
std::string_view scalar_op_name(ScalarOp op) { return rows()[static_cast<size_t>(op)]->name; }
int scalar_op_arity(ScalarOp op) { return rows()[static_cast<size_t>(op)]->operands; }
int instructions(ScalarOp op) { return static_cast<int>(rows()[static_cast<size_t>(op)]->cost); }
bool is_function(ScalarOp op) { return instructions(op) >= static_cast<int>(graph::Cost::Exp); }
std::string_view reduce_op_name(ReduceOp op) { return kReduceOps[static_cast<int>(op)]; }

std::optional<ScalarOp> scalar_op_from_name(std::string_view name) {
  for (size_t i = 0; i < rows().size(); ++i)
    if (rows()[i]->name == name) return static_cast<ScalarOp>(i);
  return std::nullopt;
}

std::optional<ReduceOp> reduce_op_from_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kReduceOps); ++i)
    if (kReduceOps[i] == name) return static_cast<ReduceOp>(i);
  return std::nullopt;
}

std::string_view into_name(Into into) { return kInto[static_cast<int>(into)]; }

std::optional<Into> into_from_name(std::string_view name) {
  for (size_t i = 1; i < std::size(kInto); ++i)
    if (kInto[i] == name) return static_cast<Into>(i);
  return std::nullopt;
}

ReduceOp combiner_of(Into into) {
  BOLT_CHECK(into != Into::Over && into != Into::Last, "a store that combines nothing");
  return static_cast<ReduceOp>(static_cast<int>(into) - static_cast<int>(Into::Sum));
}

bool gives_bool(ScalarOp op) { return graph::op_rules(graph_op(op)).dtype == graph::DTypeRule::Bool; }

bool may_contract(const Kernel& k, const Expr& e) {
  if (e.kind != ExprKind::Op || !is_float(e.dtype)) return false;
  if (e.op == ScalarOp::mul) return true;
  auto is_product = [&](ExprId a) {
    const Expr& made = k.exprs[a];
    return made.kind == ExprKind::Op && made.op == ScalarOp::mul;
  };
  return (e.op == ScalarOp::add || e.op == ScalarOp::sub) &&
         !(is_product(e.args[0]) && is_product(e.args[1]));
}

bool holds(const std::vector<Expr>& exprs, ExprId id, DType t) {
  const Expr& e = exprs[id];
  auto does = [&](ExprId a) { return holds(exprs, a, t); };
  switch (e.kind) {
    case ExprKind::Cast: return exprs[e.args[0]].dtype == t || exprs[e.args[0]].dtype == DType::Bool;
    case ExprKind::Const: return is_float(e.dtype) && is_number_of(e.value, t);
    case ExprKind::Reduce:
      return (e.reduce_op == ReduceOp::Max || e.reduce_op == ReduceOp::Min) && does(e.args[0]);
    case ExprKind::Op:
      return chooses(e.op) && std::all_of(e.args.begin() + (e.op == ScalarOp::where), e.args.end(), does);
    default: return false;
  }
}

DType op_result_dtype(ScalarOp op, const std::vector<DType>& operands) {
  if (gives_bool(op)) return DType::Bool;
  if (op == ScalarOp::from_bits) return DType::F64;
  if (op == ScalarOp::random) return DType::F32;
  return op == ScalarOp::where ? operands[1] : operands[0];
}

DType moved_as(DType t) {
  switch (t) {
    case DType::C64:
    case DType::U64: return DType::I64;
    case DType::U32: return DType::I32;
    case DType::U16: return DType::I16;
    case DType::F8E4M3:
    case DType::F8E5M2: return DType::U8;
    default: return t;
  }
}

DType reduce_result_dtype(ReduceOp op, DType operand) { return is_arg_reduce(op) ? DType::I64 : operand; }

}  // namespace bolt::loops

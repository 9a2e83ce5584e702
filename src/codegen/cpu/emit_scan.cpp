// codegen/cpu/emit_scan.cpp
// Scans of the emitter. The loops over a row run forward (emit_loop.cpp), so what came before an element is a
// number that each adds to: one for each row, of rows that are the lanes of a vector a vector. Lanes along
// the row are combined with each other first, each with the one before it, then with the two before, the four
// before; what came before the vector joins last, so that one step a vector waits for the vector before. What
// adds up or multiplies floats is kept in double, as eager keeps it. Products of doubles themselves are made
// one after the other: in another order they could leave the range that they stay in.

#include "codegen/cpu/emitter.h"

namespace bolt::codegen::cpu {

using loops::Expr;
using loops::ExprKind;
using loops::ReduceOp;

DType Emitter::running_type(const Expr& e) const {
  const bool adds_up = e.reduce_op != ReduceOp::Max && e.reduce_op != ReduceOp::Min;
  return adds_up && e.dtype == DType::F32 ? DType::F64 : e.dtype;
}

// A row begins.
void Emitter::begin_scans() {
  for (ExprId id = 0; id < static_cast<ExprId>(k_.exprs.size()); ++id) {
    const Expr& e = expr(id);
    if (e.kind != ExprKind::Scan) continue;
    const uint32_t rows = e.dims & ~e.reduce_dims;
    const unsigned lanes = is_vector(rows) ? static_cast<unsigned>(s_.lanes) : 1;
    const DType t = running_type(e);
    for (Sub s : subs(rows)) {
      llvm::AllocaInst* place = slot(ops_.type(t, lanes));
      running_[{id, s}] = place;
      at_current();
      b_.CreateStore(ops_.splat(ops_.identity(e.reduce_op, t), lanes), place);
    }
  }
}

/// Each lane of x combined with `before` and all lanes before it.
Emitter::Value Emitter::along_lanes(const Expr& e, DType t, Value x, Value before) {
  const int lanes = s_.lanes;
  if (e.reduce_op == ReduceOp::Prod && e.dtype == DType::F64) {
    Value all = llvm::PoisonValue::get(x->getType());
    for (uint64_t lane = 0; lane < static_cast<uint64_t>(lanes); ++lane) {
      before = ops_.combine(e.reduce_op, t, before, b_.CreateExtractElement(x, lane));
      all = b_.CreateInsertElement(all, before, lane);
    }
    return all;
  }
  if (e.reduce_op == ReduceOp::LogAddExp) return logs_along_lanes(t, x, before);
  return with_lanes_before(e.reduce_op, t, x, before);
}

Emitter::Value Emitter::with_lanes_before(ReduceOp op, DType t, Value x, Value before) {
  const int lanes = s_.lanes;
  const Value nothing = ops_.splat(ops_.identity(op, t), static_cast<unsigned>(lanes));
  for (int by = 1; by < lanes; by *= 2) {
    std::vector<int> moved;  // lanes of x come behind those of `nothing`
    for (int lane = 0; lane < lanes; ++lane) moved.push_back(lane < by ? lane : lanes + lane - by);
    x = ops_.combine(op, t, b_.CreateShuffleVector(nothing, x, moved), x);
  }
  return ops_.combine(op, t, ops_.splat(before, static_cast<unsigned>(lanes)), x);
}

// One exponential and one logarithm for all: exponentials of what is left by the largest number of them are
// added up. That loses what is far below numbers behind it, and infinities; then each pair is added as logs.
Emitter::Value Emitter::logs_along_lanes(DType t, Value x, Value before) {
  using loops::ScalarOp;
  constexpr double kFar = 16;  // e^-kFar costs the logarithm's sum no digits to speak of
  const auto lanes = static_cast<unsigned>(s_.lanes);
  const Value first = ops_.combine(ReduceOp::Max, t, before, b_.CreateExtractElement(x, uint64_t{0}));
  const Value largest = ops_.combine(ReduceOp::Max, t, before, b_.CreateFPMaxReduce(x));
  const Value above = ops_.splat(largest, lanes);
  const Value parts = ops_.apply(ScalarOp::exp, t, {ops_.apply(ScalarOp::sub, t, {x, above})});
  const Value part = ops_.apply(ScalarOp::exp, t, {ops_.apply(ScalarOp::sub, t, {before, largest})});
  const Value sums = with_lanes_before(ReduceOp::Sum, t, parts, part);
  const Value near = ops_.apply(ScalarOp::add, t, {ops_.apply(ScalarOp::log, t, {sums}), above});
  const Value rise = ops_.apply(ScalarOp::sub, t, {largest, first});
  const Value far = b_.CreateFCmpUGT(rise, ops_.constant(t, kFar, 0));
  return ops_.math().when_any(far, near,
                              [&](Value) { return with_lanes_before(ReduceOp::LogAddExp, t, x, before); });
}

Emitter::Placed Emitter::scan(ExprId id, Sub s) {
  const Expr& e = expr(id);
  const DType t = running_type(e);
  const int lanes = is_vector(e.dims) ? s_.lanes : 1;
  Value x = wide(eval(e.args[0], s), lanes).value;
  llvm::AllocaInst* place = running_.at({id, normal(e.dims & ~e.reduce_dims, s)});
  at_current();
  x = ops_.cast(x, e.dtype, t);
  Value running = b_.CreateLoad(place->getAllocatedType(), place);
  if (lanes == 1 || !varies(e.reduce_dims, s_.vec_dim)) {
    running = ops_.combine(e.reduce_op, t, running, x);
    b_.CreateStore(running, place);
    return {ops_.cast(running, t, e.dtype), depth()};
  }
  const Value all = along_lanes(e, t, x, running);
  running = b_.CreateExtractElement(all, static_cast<uint64_t>(lanes - 1));
  b_.CreateStore(running, place);
  return {ops_.cast(all, t, e.dtype), depth()};
}

}  // namespace bolt::codegen::cpu

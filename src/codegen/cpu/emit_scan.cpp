// codegen/cpu/emit_scan.cpp
// Scans of the emitter. The loops over a row run forward (emit_loop.cpp), so what came before an element is a
// number that each adds to: one for each row, of rows that are the lanes of a vector a vector. Lanes along
// the row are taken one after the other. What adds up or multiplies floats is kept in double, as eager keeps
// it.

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
  Value all = llvm::PoisonValue::get(x->getType());
  for (int lane = 0; lane < lanes; ++lane) {
    running = ops_.combine(e.reduce_op, t, running, b_.CreateExtractElement(x, static_cast<uint64_t>(lane)));
    all = b_.CreateInsertElement(all, running, static_cast<uint64_t>(lane));
  }
  b_.CreateStore(running, place);
  return {ops_.cast(all, t, e.dtype), depth()};
}

}  // namespace bolt::codegen::cpu

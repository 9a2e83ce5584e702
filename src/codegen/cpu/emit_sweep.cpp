// codegen/cpu/emit_sweep.cpp
// Column reductions of the emitter whose accumulators lie in L1: a few rows at a time are read from end to
// end, as they lie in memory, and added to a row of accumulators.
//
// With accumulators in registers a reduction over rows reads a strip some vectors wide down all the rows:
// another page and, where the row's length is a power of two, the same few cache sets at each step. Rows read
// in full run at the speed of a copy (4096 x 4096 floats, one thread: 50 GB/s against 20). Several rows at
// once share the loads and stores of the accumulators; more than the schedule says are again too many
// streams.

#include <utility>

#include "codegen/cpu/emitter.h"

namespace bolt::codegen::cpu {

using loops::Expr;
using loops::ExprKind;

void Emitter::emit_sweep(const Range& block) {
  std::vector<ExprId> ids;
  for (ExprId id = 0; id < static_cast<ExprId>(k_.exprs.size()); ++id)
    if (expr(id).kind == ExprKind::Reduce) ids.push_back(id);
  if (sweep_rows_.empty()) {
    for (ExprId id : ids) {  // a tail writes whole vectors
      const int64_t elements = s_.sweep_block + static_cast<int64_t>(s_.lanes);
      auto* row = slot(llvm::ArrayType::get(ops_.type(expr(id).dtype, 1), static_cast<uint64_t>(elements)));
      row->setAlignment(llvm::Align(64));
      sweep_rows_[id] = row;
    }
  }
  auto place = [&](ExprId id, Sub s) {
    const Open& vec = open_[s_.vec_dim];
    Value at = b_.CreateSub(vec.index, block.begin);
    if (s.v) at = b_.CreateAdd(at, constant(static_cast<int64_t>(s.v) * s_.lanes));
    return b_.CreateInBoundsGEP(ops_.type(expr(id).dtype, 1), sweep_rows_.at(id), at);
  };
  const unsigned lanes = static_cast<unsigned>(s_.lanes);
  auto vectors = [&] { return open_[s_.vec_dim].count; };

  vector_loop(block.begin, block.count, [&] {
    at_current();
    for (ExprId id : ids)
      for (int v = 0; v < vectors(); ++v)
        b_.CreateAlignedStore(ops_.splat(ops_.identity(expr(id).reduce_op, expr(id).dtype), lanes),
                              place(id, {v, 0}), alignment(expr(id).dtype));
  });

  const std::vector<int> rows = loop_order(expr(ids[0]).reduce_dims);
  const int saved_tile = std::exchange(tile_dim_, rows.back());
  auto add = [&] {
    for (ExprId id : ids)
      for (Sub s : subs(expr(expr(id).args[0]).dims)) eval(expr(id).args[0], s);
    for (ExprId id : ids)
      for (int v = 0; v < vectors(); ++v) add_to_sweep(id, v, place);
  };
  std::function<void(size_t)> sweep = [&](size_t level) {
    const int dim = rows[level];
    const bool last = level + 1 == rows.size();
    scalar_loop(dim, constant(0), size(dim), last ? s_.sweep_rows : 1, [&] {
      if (!last) return sweep(level + 1);
      vector_loop(block.begin, block.count, add);
    });
  };
  sweep(0);
  tile_dim_ = saved_tile;

  vector_loop(block.begin, block.count, [&] {
    at_current();
    for (ExprId id : ids)
      for (int v = 0; v < vectors(); ++v) {
        Value sum = b_.CreateAlignedLoad(ops_.type(expr(id).dtype, lanes), place(id, {v, 0}),
                                         alignment(expr(id).dtype));
        remember({KeyKind::Expr, nullptr, id, v, 0}, sum, depth());
      }
    emit_body();
  });
}

// The rows of this round as a tree, then the accumulator. A tail's foreign lanes hold rubbish that nobody
// stores.
void Emitter::add_to_sweep(ExprId id, int v, const std::function<Value(ExprId, Sub)>& place) {
  const Expr& e = expr(id);
  const ExprId operand = e.args[0];
  std::vector<Value> parts;
  for (int t = 0; t < open_[tile_dim_].count; ++t)
    parts.push_back(wide(eval(operand, normal(expr(operand).dims, {v, t})), s_.lanes).value);
  at_current();
  const auto combine = [&](Value a, Value b) { return ops_.combine(e.reduce_op, e.dtype, a, b); };
  Value rows = combined_as_tree(std::move(parts), combine);
  Value at = place(id, {v, 0});
  Value sum = b_.CreateAlignedLoad(rows->getType(), at, alignment(e.dtype));
  b_.CreateAlignedStore(combine(sum, rows), at, alignment(e.dtype));
}

}  // namespace bolt::codegen::cpu

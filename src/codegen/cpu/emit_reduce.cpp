// codegen/cpu/emit_reduce.cpp
// Reductions of the emitter. Reductions over the same dimensions that do not need one another share one
// sweep. Each has an accumulator per sub-vector, so additions of one chain are several vectors apart; long
// sums are cut into blocks whose results are added up apart, which keeps the error near that of pairwise
// summation.

#include <algorithm>

#include "codegen/cpu/emitter.h"

namespace bolt::codegen::cpu {

using loops::Expr;
using loops::ExprKind;
using loops::ReduceOp;

namespace {

constexpr int64_t kBlockRounds = 128;  // additions in one chain
constexpr int64_t kBlocksFrom = 1024;  // rounds
constexpr int kMostVectors = 8;

bool carries_position(const Expr& e) {
  return e.reduce_op == ReduceOp::ArgMax || e.reduce_op == ReduceOp::ArgMin;
}

bool is_extreme(const Expr& e) {
  return is_float(e.dtype) && (e.reduce_op == ReduceOp::Max || e.reduce_op == ReduceOp::Min);
}

}  // namespace

llvm::AllocaInst* Emitter::slot(llvm::Type* type) {
  llvm::BasicBlock& entry = fn_->getEntryBlock();
  Builder at_entry(&entry, entry.begin());
  return at_entry.CreateAlloca(type);
}

// The reductions that the value needs, not looking behind them.
void Emitter::ancestors(ExprId id, std::vector<ExprId>* reduces) const {
  each_operand(expr(id), [&](ExprId a) {
    if (expr(a).kind == ExprKind::Reduce)
      reduces->push_back(a);
    else
      ancestors(a, reduces);
  });
}

int Emitter::reduce_depth(ExprId id) {
  int d = 0;
  const uint32_t dims = expr(id).dims;
  for (size_t i = 0; i < open_.size(); ++i)
    if ((dims >> i & 1) && open_[i].index) d = std::max(d, open_[i].depth);
  std::vector<ExprId> needed;
  ancestors(id, &needed);
  for (ExprId r : needed)
    if (auto p = find({KeyKind::Expr, nullptr, r, 0, 0})) d = std::max(d, p->depth);
  return d;
}

std::vector<Emitter::ExprId> Emitter::siblings(ExprId id, int depth) {
  std::vector<ExprId> group;
  for (ExprId other = 0; other < static_cast<ExprId>(k_.exprs.size()); ++other) {
    const Expr& e = expr(other);
    if (e.kind != ExprKind::Reduce || e.reduce_dims != expr(id).reduce_dims || e.dims != expr(id).dims)
      continue;
    if (find({KeyKind::Expr, nullptr, other, 0, 0})) continue;
    std::vector<ExprId> needed;
    ancestors(other, &needed);
    const bool ready = std::all_of(needed.begin(), needed.end(), [&](ExprId r) {
      auto p = find({KeyKind::Expr, nullptr, r, 0, 0});
      return p && p->depth <= depth;
    });
    if (other == id || ready) group.push_back(other);
  }
  return group;
}

Emitter::Placed Emitter::reduce(ExprId id, Sub s) {
  std::vector<ExprId> needed;
  ancestors(id, &needed);
  for (ExprId r : needed)
    if ((expr(r).dims & ~expr(id).dims) == 0) eval(r, s);
  const int d = reduce_depth(id);
  emit_group(siblings(id, d), d);
  auto p = find({KeyKind::Expr, nullptr, id, s.v, s.t});
  BOLT_CHECK(p, "reduction %", id, " left no value");
  return *p;
}

// In the scope at `depth`, whatever is open inside it: deeper scopes and loop variables step aside meanwhile.
void Emitter::emit_group(const std::vector<ExprId>& ids, int d) {
  std::vector<Scope> deeper(std::make_move_iterator(scopes_.begin() + d + 1),
                            std::make_move_iterator(scopes_.end()));
  scopes_.resize(static_cast<size_t>(d) + 1, Scope{nullptr, {}});
  const std::vector<Open> saved_open = open_;
  for (Open& o : open_)
    if (o.index && o.depth > d) o = {};
  const int saved_tile = tile_dim_;
  const bool saved_blocks = block_sums_, saved_fetching = fetching_;
  const int saved_vectors = vectors_;

  const std::vector<int> order = loop_order(expr(ids[0]).reduce_dims);
  tile_dim_ = order.back() == s_.vec_dim ? -1 : order.back();
  if (varies(expr(ids[0]).reduce_dims, s_.vec_dim)) {
    vectors_ = kMostVectors;
    for (ExprId id : ids) {
      auto own = s_.rounds.find(id);
      vectors_ = std::min(vectors_, own == s_.rounds.end() ? s_.unroll : own->second);
    }
    fetching_ = std::find(ids.begin(), ids.end(), s_.ahead_of) != ids.end();
  }
  block_sums_ = needs_blocks(ids);
  std::vector<Accumulator> accs;
  for (ExprId id : ids) accs.push_back(make_accumulator(id));
  reduce_loops(order, 0, accs);
  at_current();
  for (Accumulator& acc : accs) finish(acc);
  for (auto& [id, row] : rows_)
    if (row.second == Row::Filling) row.second = Row::Full;

  block_sums_ = saved_blocks, fetching_ = saved_fetching;
  vectors_ = saved_vectors;
  tile_dim_ = saved_tile;
  open_ = saved_open;
  for (Scope& scope : deeper) scopes_.push_back(std::move(scope));
}

// Enough independent chains to hide the addition's latency when the lanes hold different results.
int Emitter::accumulators_per_vector(int dim) const {
  const Sym n = k_.dims[dim].size;
  const int vectors = s_.vec_dim >= 0 && open_[s_.vec_dim].index ? open_[s_.vec_dim].count : 1;
  const int wanted = vectors >= 4 ? 2 : 4;
  return static_cast<int>(
      std::clamp<int64_t>(n.value_or(wanted), 1, wanted));  // also of a dimension of size 0
}

Emitter::Accumulator Emitter::make_accumulator(ExprId id) {
  const Expr& e = expr(id);
  const Expr& operand = expr(e.args[0]);
  const bool across = varies(e.reduce_dims, s_.vec_dim);
  const Open* vec = s_.vec_dim >= 0 ? &open_[s_.vec_dim] : nullptr;
  Accumulator acc;
  acc.id = id;
  acc.lanes = across || (varies(operand.dims, s_.vec_dim) && vec->lanes) ? s_.lanes : 1;
  int vectors = 1;
  if (across)
    vectors = vec->index ? vec->count : vectors_;
  else if (varies(operand.dims, s_.vec_dim))
    vectors = vec->count;
  const int tiles = tile_dim_ >= 0 ? accumulators_per_vector(tile_dim_) : 1;

  const unsigned lanes = static_cast<unsigned>(acc.lanes);
  const DType t = operand.dtype;
  Value start = ops_.splat(ops_.identity(e.reduce_op, t), lanes);
  for (int tile = 0; tile < tiles; ++tile) {
    for (int v = 0; v < vectors; ++v) {
      auto make = [&](llvm::Type* type, Value value) {
        llvm::AllocaInst* s = slot(type);
        at_current();
        b_.CreateStore(value, s);
        return s;
      };
      const Sub sub{v, tile};
      acc.slots[sub] = make(ops_.type(t, lanes), start);
      if (block_sums_) acc.totals[sub] = make(ops_.type(t, lanes), start);
      if (carries_position(e))
        acc.positions[sub] = make(ops_.type(DType::I64, lanes), ops_.splat(constant(0), lanes));
      if (is_extreme(e)) {
        llvm::Type* bits = nan_bits(ops_.type(t, lanes));
        acc.nans[sub] = make(bits, llvm::Constant::getNullValue(bits));
      }
    }
  }
  return acc;
}

bool Emitter::needs_blocks(const std::vector<ExprId>& ids) const {
  bool floating = false;
  for (ExprId id : ids) {
    const ReduceOp op = expr(id).reduce_op;
    if (op != ReduceOp::Sum) return false;
    floating |= is_float(expr(id).dtype);
  }
  if (!floating) return false;
  Sym rounds(1);
  for (int d : loop_order(expr(ids[0]).reduce_dims)) rounds = rounds * k_.dims[d].size;
  const int64_t step =
      varies(expr(ids[0]).reduce_dims, s_.vec_dim) ? static_cast<int64_t>(s_.lanes) * vectors_ : 2;
  return rounds.value_or(INT64_MAX / 2) / step > kBlocksFrom;
}

void Emitter::reduce_loops(const std::vector<int>& dims, size_t level, std::vector<Accumulator>& accs) {
  const int dim = dims[level];
  if (level + 1 == dims.size()) return innermost(dim, accs);
  scalar_loop(dim, constant(0), size(dim), 1, [&] { reduce_loops(dims, level + 1, accs); });
}

void Emitter::innermost(int dim, std::vector<Accumulator>& accs) {
  if (open_[dim].index) {  // a whole row
    accumulate(accs);
    if (block_sums_) flush(accs);
    return;
  }
  const int tiles = dim == tile_dim_ ? accumulators_per_vector(dim) : 1;
  auto run = [&](Value begin, Value count) {
    auto body = [&] { accumulate(accs); };
    if (dim == s_.vec_dim)
      vector_loop(begin, count, body);
    else
      scalar_loop(dim, begin, count, tiles, body);
  };
  if (!block_sums_) return run(constant(0), size(dim));
  const int64_t step = dim == s_.vec_dim ? static_cast<int64_t>(s_.lanes) * vectors_ : tiles;
  const Sym n = k_.dims[dim].size;
  if (n.is_const() && n.value() <= step * kBlockRounds) {
    run(constant(0), size(dim));
    return flush(accs);
  }
  Value all = size(dim);
  split_loop(
      constant(0), all, step * kBlockRounds, step * kBlockRounds,
      [&](Value begin) {
        run(begin, constant(step * kBlockRounds));
        flush(accs);
      },
      [&](Value begin, Value end) {
        at_current();
        run(begin, b_.CreateSub(end, begin));
        flush(accs);
      });
}

// The lines of the next row that correspond to this round's. Behind the last row nothing is there: a prefetch
// of an address that is nobody's does nothing.
void Emitter::fetch_ahead() {
  const Sym row = loops::Kernel::dim(s_.outer.back().dim);
  for (ExprId id : s_.ahead) {
    const Expr& e = expr(id);
    const Sym next = e.index + linear_in(e.index, row).coef;
    const int64_t bytes = static_cast<int64_t>(s_.lanes) * dtype_bytes(e.dtype);
    for (Sub s : subs(e.dims | expr(s_.ahead_of).reduce_dims)) {
      if (s.v * bytes % kLineBytes) continue;
      const Address a = address(e.buffer, next, {}, s, true);
      at_current();
      prefetch(a.pointer);
    }
  }
}

void Emitter::accumulate(std::vector<Accumulator>& accs) {
  if (fetching_) fetch_ahead();
  for (Accumulator& acc : accs)
    for (Sub s : subs(expr(expr(acc.id).args[0]).dims | expr(acc.id).reduce_dims))
      eval(expr(acc.id).args[0], s);
  for (Accumulator& acc : accs)
    for (Sub s : subs(expr(expr(acc.id).args[0]).dims | expr(acc.id).reduce_dims)) accumulate_one(acc, s);
}

void Emitter::accumulate_one(Accumulator& acc, Sub s) {
  const Expr& e = expr(acc.id);
  const DType t = expr(e.args[0]).dtype;
  Value x = wide(eval(e.args[0], s), acc.lanes).value;
  at_current();
  Value inside = varies(e.reduce_dims, s_.vec_dim) ? mask_of(s) : nullptr;
  if (inside)
    x = b_.CreateSelect(inside, x,
                        ops_.splat(ops_.identity(e.reduce_op, t), static_cast<unsigned>(acc.lanes)));
  if (carries_position(e)) return accumulate_position(acc, s, x);
  if (is_extreme(e)) return accumulate_extreme(acc, s, x);
  llvm::AllocaInst* cell = acc.slots.at(s);
  b_.CreateStore(ops_.combine(e.reduce_op, t, b_.CreateLoad(x->getType(), cell), x), cell);
}

// The machine's own maximum loses a NaN that its first operand is and takes one instruction; which lanes met
// one is noted apart, off the chain that each round waits for.
void Emitter::accumulate_extreme(Accumulator& acc, Sub s, Value x) {
  llvm::AllocaInst *cell = acc.slots.at(s), *nans = acc.nans.at(s);
  Value best = b_.CreateLoad(x->getType(), cell);
  Value wins =
      expr(acc.id).reduce_op == ReduceOp::Max ? b_.CreateFCmpOGT(x, best) : b_.CreateFCmpOLT(x, best);
  b_.CreateStore(b_.CreateSelect(wins, x, best), cell);
  Value bits = b_.CreateLoad(nans->getAllocatedType(), nans);
  Value nan = b_.CreateFCmpUNO(x, x);
  if (nan->getType() != bits->getType()) nan = b_.CreateSExt(nan, bits->getType());
  b_.CreateStore(b_.CreateOr(bits, nan), nans);
}

// As the machine compares: mask registers, or lanes of all ones.
llvm::Type* Emitter::nan_bits(llvm::Type* values) const {
  const unsigned width = ops_.target().isa >= Target::Isa::Avx512 ? 1 : values->getScalarSizeInBits();
  return values->getWithNewType(llvm::IntegerType::get(context_, width));
}

// Indices only grow along a chain, so "strictly better" keeps the first of equals.
void Emitter::accumulate_position(Accumulator& acc, Sub s, Value x) {
  const Expr& e = expr(acc.id);
  const int dim = loop_order(e.reduce_dims).back();
  const unsigned lanes = static_cast<unsigned>(acc.lanes);
  Value here =
      ops_.splat(index(loops::Kernel::dim(dim), s, dim == s_.vec_dim && lanes_now() > 1).value, lanes);
  at_current();
  here = ops_.splat(here, lanes);
  llvm::AllocaInst *cell = acc.slots.at(s), *place = acc.positions.at(s);
  Value best = b_.CreateLoad(x->getType(), cell), where = b_.CreateLoad(here->getType(), place);
  Value wins = ops_.beats(e.reduce_op, expr(e.args[0]).dtype, x, best);
  b_.CreateStore(b_.CreateSelect(wins, x, best), cell);
  b_.CreateStore(b_.CreateSelect(wins, here, where), place);
}

void Emitter::flush(std::vector<Accumulator>& accs) {
  at_current();
  for (Accumulator& acc : accs) {
    const Expr& e = expr(acc.id);
    const DType t = expr(e.args[0]).dtype;
    for (auto& [sub, cell] : acc.slots) {
      llvm::Type* type = cell->getAllocatedType();
      llvm::AllocaInst* total = acc.totals.at(sub);
      Value sum = ops_.combine(e.reduce_op, t, b_.CreateLoad(type, total), b_.CreateLoad(type, cell));
      b_.CreateStore(sum, total);
      b_.CreateStore(ops_.splat(ops_.identity(e.reduce_op, t), static_cast<unsigned>(acc.lanes)), cell);
    }
  }
}

Emitter::Pair Emitter::better(const Expr& e, Pair a, Pair b) {
  const DType t = expr(e.args[0]).dtype;
  if (!a.position) return {ops_.combine(e.reduce_op, t, a.value, b.value), nullptr};
  Value wins = ops_.beats(e.reduce_op, t, b.value, a.value);
  Value loses = ops_.beats(e.reduce_op, t, a.value, b.value);
  Value earlier = b_.CreateICmpSLT(b.position, a.position);
  wins = b_.CreateOr(wins, b_.CreateAnd(b_.CreateNot(loses), earlier));
  return {b_.CreateSelect(wins, b.value, a.value), b_.CreateSelect(wins, b.position, a.position)};
}

Emitter::Pair Emitter::fold_lanes(const Expr& e, Pair p) {
  auto* type = llvm::dyn_cast<llvm::FixedVectorType>(p.value->getType());
  if (!type) return p;
  for (unsigned n = type->getNumElements(); n > 1; n /= 2) {
    llvm::SmallVector<int, 32> low, high;
    for (unsigned i = 0; i < n / 2; ++i)
      low.push_back(static_cast<int>(i)), high.push_back(static_cast<int>(i + n / 2));
    auto part = [&](Value v, llvm::ArrayRef<int> pick) {
      return v ? b_.CreateShuffleVector(v, pick) : nullptr;
    };
    p = better(e, {part(p.value, low), part(p.position, low)}, {part(p.value, high), part(p.position, high)});
  }
  p.value = b_.CreateExtractElement(p.value, uint64_t{0});
  if (p.position) p.position = b_.CreateExtractElement(p.position, uint64_t{0});
  return p;
}

void Emitter::finish(Accumulator& acc) {
  const Expr& e = expr(acc.id);
  const bool across = varies(e.reduce_dims, s_.vec_dim);
  std::map<int, std::vector<Pair>> results;  // by surviving vector
  for (auto& [sub, cell] : acc.slots) {
    const auto& from = acc.totals.empty() ? acc.slots : acc.totals;
    Value value = b_.CreateLoad(cell->getAllocatedType(), from.at(sub));
    if (!acc.nans.empty()) {
      llvm::AllocaInst* nans = acc.nans.at(sub);
      Value bits = b_.CreateLoad(nans->getAllocatedType(), nans);
      Value nan = b_.CreateICmpNE(bits, llvm::Constant::getNullValue(bits->getType()));
      value = b_.CreateSelect(nan, llvm::ConstantFP::getNaN(value->getType()), value);
    }
    Value position = nullptr;
    if (carries_position(e)) {
      llvm::AllocaInst* place = acc.positions.at(sub);
      position = b_.CreateLoad(place->getAllocatedType(), place);
    }
    results[across ? 0 : sub.v].push_back({value, position});
  }
  for (auto& [v, parts] : results) {
    Pair p = combined_as_tree(parts, [&](Pair a, Pair b) { return better(e, a, b); });
    if (across) p = fold_lanes(e, p);
    remember({KeyKind::Expr, nullptr, acc.id, v, 0}, carries_position(e) ? p.position : p.value, depth());
  }
}

}  // namespace bolt::codegen::cpu

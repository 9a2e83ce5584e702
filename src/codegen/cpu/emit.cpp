// codegen/cpu/emit.cpp
// The emitter's frame: function, work items, the order of reductions and stores, expressions and row buffers.

#include "codegen/cpu/emit.h"

#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>

#include "codegen/cpu/emitter.h"
#include "loops/kernel_ops.h"

namespace bolt::codegen::cpu {

using loops::Expr;
using loops::ExprKind;

Emitter::Emitter(const loops::Kernel& kernel, const LoopSchedule& schedule, const LlvmMachine& machine,
                 llvm::Module& module, const std::string& name)
    : k_(kernel),
      s_(schedule),
      context_(module.getContext()),
      b_(context_),
      ops_(b_, machine.target()),
      open_(kernel.dims.size()),
      tile_dim_(schedule.tile_dim),
      vectors_(schedule.unroll) {
  llvm::Type *pointer = b_.getPtrTy(), *i64 = b_.getInt64Ty();
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), {pointer, pointer, i64, i64}, false);
  fn_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
  machine.set_attributes(*fn_);
  for (const Expr& e : k_.exprs) reduced_ |= e.reduce_dims;
  reduced_ |= k_.met_along();
}

void Emitter::run() {
  auto* entry = llvm::BasicBlock::Create(context_, "entry", fn_);
  b_.SetInsertPoint(entry);
  scopes_.push_back({b_.CreateRetVoid(), {}});
  at_current();
  auto argument = [&](unsigned i) { return fn_->getArg(i); };
  for (size_t i = 0; i < k_.buffers.size(); ++i)
    buffers_.push_back(
        b_.CreateLoad(b_.getPtrTy(), b_.CreateConstInBoundsGEP1_64(b_.getPtrTy(), argument(0), i)));
  for (size_t i = 0; i < k_.symbols.size(); ++i)
    symbols_[k_.symbols[i].node()] =
        b_.CreateLoad(b_.getInt64Ty(), b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), argument(1), i));
  for (ExprId id : s_.kept) {
    auto* row = slot(llvm::ArrayType::get(
        ops_.type(expr(id).dtype, 1),
        static_cast<uint64_t>(s_.row_elements.value()) + static_cast<uint64_t>(s_.lanes)));
    row->setAlignment(llvm::Align(64));
    rows_[id] = {row, Row::Empty};
  }
  emit_items(argument(2), argument(3));
  report_misses();
}

// Stores past the caches need aligned memory, which the caller's may not be: then none of the first loop's
// items are left for it.
void Emitter::emit_items(Value begin, Value end) {
  auto items = [&](Value from, Value to) { loop(from, to, 1, [&](Value item) { emit_item(item); }); };
  if (s_.streamed.empty()) return items(begin, end);
  Value bits = constant(0);
  for (int b : s_.streamed) bits = b_.CreateOr(bits, b_.CreatePtrToInt(buffers_[b], b_.getInt64Ty()));
  Value aligned = b_.CreateICmpEQ(b_.CreateAnd(bits, constant(63)), constant(0));
  Value middle = b_.CreateSelect(aligned, end, begin);
  streaming_ = true;
  items(begin, middle);
  streaming_ = false;
  items(middle, end);
  at_current();
  b_.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {});  // for whoever reads it on another thread
}

// ---- work items

// Opens a plain dimension; of a blocked one gives the range that this item covers.
Emitter::Range Emitter::open_outer(const OuterDim& outer, Value idx, bool single) {
  Open& open = open_[outer.dim];
  const Sym n = k_.dims[outer.dim].size;
  const bool registers = outer.dim == s_.vec_dim || outer.dim == s_.tile_dim;
  if (!registers) {
    open = {.index = idx, .depth = depth()};
    return {};
  }
  if (single) return {outer.dim, constant(0), size(outer.dim)};
  Value block = index(outer.block, {}, false).value, all = size(outer.dim);
  at_current();
  Value begin = b_.CreateMul(idx, block);
  const bool even = n.is_const() && outer.block.is_const() && n.value() % outer.block.value() == 0;
  Value count =
      even ? block : b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, block, b_.CreateSub(all, begin));
  return {outer.dim, begin, count};
}

void Emitter::emit_item(Value item) {
  std::vector<Range> ranges;
  Value rest = item;
  for (size_t i = s_.outer.size(); i-- > 0;) {
    const OuterDim& o = s_.outer[i];
    const Sym blocks = ceildiv(k_.dims[o.dim].size, o.block);
    Value idx = rest;
    const bool single = blocks.is_const(1);
    if (single) {
      idx = constant(0);
    } else if (i > 0) {
      Value n = index(blocks, {}, false).value;
      at_current();
      idx = b_.CreateURem(rest, n);
      rest = b_.CreateUDiv(rest, n);
    }
    ranges.push_back(open_outer(o, idx, single));
  }
  Range vector, tile;
  for (const Range& r : ranges) {
    if (r.dim < 0) continue;
    (r.dim == s_.vec_dim ? vector : tile) = r;
  }
  open_ranges(vector, tile);
  for (Open& o : open_) o = {};
}

void Emitter::open_ranges(const Range& vector, const Range& tile) {
  if (s_.sweep_rows) return emit_sweep(vector);
  if (s_.whole_row) open_whole_row();
  auto inner = [&] {
    if (vector.dim < 0) return emit_body();
    vector_loop(vector.begin, vector.count, [&] { emit_body(); });
  };
  if (tile.dim < 0) return inner();
  scalar_loop(tile.dim, tile.begin, tile.count, s_.tile, inner);
}

std::vector<int> Emitter::loop_order(uint32_t dims) const {
  std::vector<int> order;
  for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d)
    if ((dims >> d & 1) && d != s_.vec_dim) order.push_back(d);
  if (varies(dims, s_.vec_dim)) order.push_back(s_.vec_dim);
  return order;
}

uint32_t Emitter::dims_of(const loops::Store& st) const { return k_.dims_of(st); }

// Every reduction whose result is known per item comes first, in order; then the stores, those that need the
// same loops together.
void Emitter::emit_body() {
  for (auto& [id, row] : rows_) row.second = Row::Empty;
  if (s_.tile_dim >= 0 && !s_.ahead.empty()) fetch_squares_ahead();
  for (ExprId id = 0; id < static_cast<ExprId>(k_.exprs.size()); ++id)
    if (expr(id).kind == ExprKind::Reduce && !(expr(id).dims & reduced_)) eval(id, {});
  begin_scans();
  std::map<uint32_t, Stores> by_loops;
  for (const loops::Store& st : k_.stores) {
    uint32_t loops = dims_of(st) & reduced_;
    for (size_t d = 0; d < open_.size(); ++d)
      if (open_[d].index) loops &= ~(1u << d);
    by_loops[loops].push_back(&st);
  }
  for (auto& [dims, stores] : by_loops) store_loops(loop_order(dims), 0, stores);
}

void Emitter::store_loops(const std::vector<int>& dims, size_t level, const Stores& stores) {
  if (level == dims.size()) return emit_stores(stores);
  auto body = [&] { store_loops(dims, level + 1, stores); };
  const int dim = dims[level];
  if (dim == s_.vec_dim)
    vector_loop(constant(0), size(dim), body);
  else
    scalar_loop(dim, constant(0), size(dim), 1, body);
}

void Emitter::emit_stores(const Stores& stores) {
  for (const loops::Store* st : stores)
    for (Sub s : subs(dims_of(*st))) eval(st->value, s);
  for (const loops::Store* st : stores)
    for (Sub s : subs(dims_of(*st))) store(*st, s);
}

// ---- expressions

Emitter::Placed Emitter::eval(ExprId id, Sub s) {
  const Expr& e = expr(id);
  s = normal(e.dims, s);
  const Key key{KeyKind::Expr, nullptr, id, s.v, s.t};
  if (auto known = find(key)) return *known;
  if (e.kind == ExprKind::Reduce) return reduce(id, s);
  if (is_kept(id) && rows_.at(id).second == Row::Full) {
    Placed p = load_kept(id, s);
    return remember(key, p.value, p.depth);
  }
  if (e.kind == ExprKind::Load && load_square(id)) return *find(key);
  Placed p = compute(id, s);
  if (is_kept(id)) store_kept(id, s, p.value);
  return remember(key, p.value, p.depth);
}

Emitter::Placed Emitter::compute(ExprId id, Sub s) {
  const Expr& e = expr(id);
  const int lanes = is_vector(e.dims) ? s_.lanes : 1;
  switch (e.kind) {
    case ExprKind::Const: return {ops_.constant(e.dtype, e.value, e.ivalue), 0};
    case ExprKind::Index: return wide(index(e.index, s, lanes > 1), lanes);
    case ExprKind::Load: return load(e, s);
    case ExprKind::Check: return check(e, s);
    case ExprKind::Scan: return scan(id, s);
    case ExprKind::Acc: BOLT_CHECK(false, "an accumulator outside a contraction's epilogue");
    default: break;
  }
  if (e.kind == ExprKind::Cast && is_half(e.dtype) && expr(e.args[0]).dtype == DType::F32 &&
      loops::holds(k_.exprs, e.args[0], e.dtype))
    return wide(half_bits(e.args[0], e.dtype, s), lanes);
  llvm::SmallVector<Value, 3> args;
  int d = 0;
  std::vector<Placed> placed;
  for (ExprId a : e.args) placed.push_back(eval(a, s)), d = std::max(d, placed.back().depth);
  for (Placed p : placed) args.push_back(wide(p, lanes).value);
  at(d);
  if (e.kind == ExprKind::Cast) return {ops_.cast(args[0], expr(e.args[0]).dtype, e.dtype), d};
  const DType operand = expr(e.args.back()).dtype;
  return {ops_.apply(e.op, operand, args, loops::may_contract(k_, e)), d};
}

// Of a number that one of the half type t is in any case (loops::holds): nothing is made wider to choose it
// or to give it another sign, and nothing is rounded.
Emitter::Placed Emitter::half_bits(ExprId id, DType t, Sub s) {
  const Expr& e = expr(id);
  s = normal(e.dims, s);
  const Key key{KeyKind::HalfBits, nullptr, id, s.v, s.t};
  if (auto known = find(key)) return *known;
  const int lanes = is_vector(e.dims) ? s_.lanes : 1;
  auto of = [&](size_t i) { return wide(half_bits(e.args[i], t, s), lanes); };
  auto masked = [&](bool flips, uint64_t bits) -> Placed {
    const Placed x = of(0);
    at(x.depth);
    Value mask = llvm::ConstantInt::get(x.value->getType(), bits);
    return {flips ? b_.CreateXor(x.value, mask) : b_.CreateAnd(x.value, mask), x.depth};
  };
  auto chosen = [&]() -> Placed {
    const Placed condition = wide(eval(e.args[0], s), lanes), yes = of(1), no = of(2);
    const int d = std::max({condition.depth, yes.depth, no.depth});
    at(d);
    return {b_.CreateSelect(condition.value, yes.value, no.value), d};
  };
  Placed p;
  if (e.kind == ExprKind::Cast && expr(e.args[0]).dtype == t) return eval(e.args[0], s);
  if (e.kind == ExprKind::Const) return {ops_.constant(t, e.value, e.ivalue), 0};
  const bool is_open = e.kind == ExprKind::Op && !is_kept(id);
  if (is_open && e.op == loops::ScalarOp::neg) {
    p = masked(true, 0x8000);
  } else if (is_open && e.op == loops::ScalarOp::abs) {
    p = masked(false, 0x7fff);
  } else if (is_open && e.op == loops::ScalarOp::where) {
    p = chosen();
  } else {
    p = eval(id, s);
    at(p.depth);
    p.value = ops_.narrowed(p.value, t);
  }
  return remember(key, p.value, p.depth);
}

// ---- row buffers

bool Emitter::is_kept(ExprId id) const { return rows_.count(id) != 0; }

// Values lie in the order of the row's dimensions, vec_dim innermost.
Emitter::Value Emitter::kept_address(ExprId id, Sub s) {
  Sym position(0);
  for (int d : loop_order(reduced_)) position = position * k_.dims[d].size + loops::Kernel::dim(d);
  Value i = index(position, s, false).value;
  at_current();
  return b_.CreateInBoundsGEP(ops_.type(expr(id).dtype, 1), rows_.at(id).first, i);
}

Emitter::Placed Emitter::load_kept(ExprId id, Sub s) {
  Value p = kept_address(id, s);
  return {b_.CreateAlignedLoad(ops_.type(expr(id).dtype, static_cast<unsigned>(lanes_now())), p,
                               alignment(expr(id).dtype)),
          depth()};
}

// A tail writes whole vectors: the buffer has room for one more.
void Emitter::store_kept(ExprId id, Sub s, Value value) {
  auto& row = rows_.at(id);
  row.second = Row::Filling;
  Value p = kept_address(id, s);
  b_.CreateAlignedStore(value, p, alignment(expr(id).dtype));
}

void emit_kernel(const loops::Kernel& kernel, const LoopSchedule& schedule, const LlvmMachine& machine,
                 llvm::Module& module, const std::string& name) {
  Emitter(kernel, schedule, machine, module, name).run();
}

}  // namespace bolt::codegen::cpu

// codegen/cpu/gemm/loops_epilogue.cpp
// Loops expressions on one vector of sums -> LLVM IR; see loops_epilogue.h
#include "codegen/cpu/gemm/loops_epilogue.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "codegen/cpu/gemm/emit_util.h"
#include "codegen/cpu/ops.h"
#include "loops/kernel_ops.h"
#include "support/error.h"

namespace bolt::codegen::cpu::gemm {
namespace {

using llvm::Value;
using loops::Expr;
using loops::ExprId;
using loops::ExprKind;
using loops::Kernel;

constexpr int kFunctionCost = 25;  // a polynomial and its special cases

int cost_of(const Kernel& kernel) {
  int cost = static_cast<int>(kernel.stores.size());
  for (const Expr& e : kernel.exprs) {
    if (e.kind == ExprKind::Op) cost += loops::is_function(e.op) ? kFunctionCost : 1;
    if (e.kind == ExprKind::Load || e.kind == ExprKind::Cast) ++cost;
  }
  return cost;
}

/// Value of an index expression; `symbol` gives the symbols' values.
Value* emit_index(llvm::IRBuilder<>& b, Sym s, const std::function<Value*(Sym)>& symbol) {
  if (s.is_const()) return i64(b, s.value());
  const SymNode& node = *s.node();
  if (node.op == SymOp::Symbol) return symbol(s);
  Value* total = emit_index(b, node.args[0], symbol);
  for (size_t i = 1; i < node.args.size(); ++i) {
    Value* next = emit_index(b, node.args[i], symbol);
    if (total->getType() != next->getType()) {
      Value*& scalar = total->getType()->isVectorTy() ? next : total;
      Value* vector = total->getType()->isVectorTy() ? total : next;
      scalar = b.CreateVectorSplat(llvm::cast<llvm::FixedVectorType>(vector->getType())->getElementCount(),
                                   scalar);
    }
    switch (node.op) {
      case SymOp::Add: total = b.CreateAdd(total, next); break;
      case SymOp::Mul: total = b.CreateMul(total, next); break;
      case SymOp::FloorDiv: total = b.CreateUDiv(total, next); break;
      case SymOp::Mod: total = b.CreateURem(total, next); break;
      case SymOp::Min: total = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, total, next); break;
      case SymOp::Max: total = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, total, next); break;
      case SymOp::Symbol: break;
    }
  }
  return total;
}

/// The epilogue of one tile.
///
/// What does not depend on the row is emitted once per vector of columns, in front of everything else (its
/// loads may move there: an epilogue writes nothing that it reads, InOut buffers apart). An index that moves
/// evenly with rows and columns is a constant displacement from one address per tile.
class LoopsTileEpilogue final : public TileEpilogue {
 public:
  LoopsTileEpilogue(llvm::IRBuilder<>& b, const Kernel& kernel, int first_buffer, const Target& target,
                    int lanes, const TileSite& site)
      : b_(b),
        k_(kernel),
        first_buffer_(first_buffer),
        ops_(b, target),
        site_(site),
        lanes_(static_cast<unsigned>(lanes)),
        column_dim_(static_cast<int>(kernel.dims.size()) - 1),
        column_(Kernel::dim(column_dim_)),
        sizes_(make_size_emitter(kernel.symbols)) {
    auto* rows = llvm::BasicBlock::Create(b.getContext(), "epilogue", b.GetInsertBlock()->getParent());
    common_ = b.CreateBr(rows);
    b.SetInsertPoint(rows);
    for (const Expr& e : k_.exprs) is_common_.push_back(find_common(e));
  }

  void finish(Value* sums, Value* row, int vector) override {
    // Math functions may split the block at the insertion point for their cold paths, so it needs an end to
    // split off.
    llvm::Instruction* end = b_.CreateUnreachable();
    b_.SetInsertPoint(end);
    if (row != row_) of_row_.clear(), row_ = row, row_number_ = nullptr;
    sums_ = sums;
    vector_ = vector;
    of_vector_.clear();
    for (const loops::Store& store : k_.stores) emit_store(store);
    b_.SetInsertPoint(end->getParent());
    end->eraseFromParent();
  }

 private:
  // ---- values, each where it is known first

  bool varies_by_column(uint32_t dims) const { return (dims >> column_dim_ & 1) != 0; }
  bool varies_by_row(uint32_t dims) const { return (dims & ~(1u << column_dim_)) != 0; }

  /// May it be emitted in front of the rows?
  bool find_common(const Expr& e) const {
    auto common = [&](ExprId id) { return id == loops::kNone || is_common_[id]; };
    if (e.kind == ExprKind::Acc || varies_by_row(e.dims)) return false;
    if (e.kind == ExprKind::Load && k_.buffers[e.buffer].role != loops::BufferRole::In) return false;
    return std::all_of(e.args.begin(), e.args.end(), common) && common(e.mask) &&
           std::all_of(e.gather.begin(), e.gather.end(),
                       [&](const loops::GatherTerm& g) { return common(g.value); });
  }

  Value* value(ExprId id) {
    const Expr& e = k_.exprs[id];
    if (e.kind == ExprKind::Acc) return sums_;
    if (e.kind == ExprKind::Const) return ops_.constant(e.dtype, e.value, e.ivalue);
    const bool column = varies_by_column(e.dims);
    const bool common = is_common_[id];
    auto& known = common ? of_tile_ : column ? of_vector_ : of_row_;
    Value*& slot = known[{id, column ? vector_ : -1}];
    if (!slot) slot = common ? in_front([&] { return compute(e); }) : compute(e);
    return slot;
  }

  template <class Emit>
  Value* in_front(const Emit& emit) {
    llvm::IRBuilderBase::InsertPointGuard guard(b_);
    b_.SetInsertPoint(common_);
    return emit();
  }

  Value* compute(const Expr& e) {
    switch (e.kind) {
      case ExprKind::Index: return index(e.index);
      case ExprKind::Load: return load(e);
      case ExprKind::Cast: return ops_.cast(value(e.args[0]), k_.exprs[e.args[0]].dtype, e.dtype);
      case ExprKind::Op: return apply(e);
      default: throw_unsupported("reduction in the epilogue ", k_.name);
    }
  }

  static bool is_vector(Value* v) { return v->getType()->isVectorTy(); }
  Value* widen(Value* v) { return is_vector(v) ? v : ops_.splat(v, lanes_); }

  Value* apply(const Expr& e) {
    std::vector<Value*> args;
    for (ExprId id : e.args) args.push_back(value(id));
    if (std::any_of(args.begin(), args.end(), is_vector)) {
      for (Value*& arg : args) arg = widen(arg);
    }
    const DType operand = k_.exprs[e.args.back()].dtype;
    return ops_.apply(e.op, operand, args, loops::may_contract(k_, e));
  }

  // ---- index arithmetic

  int64_t first_lane() const { return int64_t{vector_} * lanes_; }
  Value* column_number() { return b_.CreateAdd(site_.col, i64(b_, first_lane())); }
  Value* row_number() {
    if (!row_number_) row_number_ = b_.CreateAdd(site_.row, row_);
    return row_number_;
  }

  /// A scalar where the index does not depend on the column, else a value per lane.
  Value* index(Sym s) {
    return emit_index(b_, s, [this](Sym symbol) -> Value* {
      if (symbol != column_) return row_symbol(symbol);
      llvm::SmallVector<llvm::Constant*, 16> numbers;
      for (unsigned lane = 0; lane < lanes_; ++lane) numbers.push_back(b_.getInt64(lane));
      return b_.CreateAdd(b_.CreateVectorSplat(lanes_, column_number()), llvm::ConstantVector::get(numbers));
    });
  }

  /// A row dimension or a size.
  Value* row_symbol(Sym symbol) {
    for (int d = 0; d < column_dim_; ++d) {
      if (symbol == Kernel::dim(d)) return row_part(d);
    }
    return sizes_(b_, site_.syms, symbol);
  }

  /// Index along dimension `d` of the row that row's number stands for.
  Value* row_part(int d) {
    Value* rest = row_number();
    for (int inner = column_dim_ - 1; inner > d; --inner) {
      rest = b_.CreateUDiv(rest, sizes_(b_, site_.syms, k_.dims[inner].size));
    }
    return d == 0 ? rest : b_.CreateURem(rest, sizes_(b_, site_.syms, k_.dims[d].size));
  }

  /// How an index moves: rest + row_step * row + column_step * column, as far as it does so evenly.
  struct Motion {
    std::optional<int64_t> row_step, column_step;
    Sym rest = 0;
  };

  Motion motion(Sym s) const {
    int64_t constant = 0, column = 0;
    std::vector<int64_t> steps(static_cast<size_t>(column_dim_), 0);
    Motion m;
    m.row_step = 0;
    m.column_step = 0;
    for (const SymTerm& term : sum_terms(s, &constant)) {
      const uint32_t dims = k_.varies(term.term);
      bool plain = term.term == column_;
      if (plain) column += term.coef;
      for (int d = 0; d < column_dim_; ++d)
        if (term.term == Kernel::dim(d)) steps[d] += term.coef, plain = true;
      if (plain) continue;
      if (varies_by_column(dims)) m.column_step.reset();
      if (varies_by_row(dims)) m.row_step.reset();
      m.rest += Sym(term.coef) * term.term;
    }
    m.rest += Sym(constant);
    if (m.column_step) m.column_step = column;
    if (m.row_step) m.row_step = even_step(steps);
    return m;
  }

  /// One step for the row's number, if the row dimensions lie densely; those of size 1 are always at 0.
  std::optional<int64_t> even_step(const std::vector<int64_t>& steps) const {
    int64_t inner = 0;
    Sym expected = 0;
    bool first = true;
    for (int d = column_dim_ - 1; d >= 0; --d) {
      const Sym size = k_.dims[d].size;
      if (size.is_const(1)) continue;
      const int64_t step = steps[d];
      if (first) {
        inner = step;
      } else if (Sym(step) != expected) {
        return std::nullopt;
      }
      first = false;
      expected = Sym(step) * size;
    }
    return inner;
  }

  // ---- addresses

  struct Address {
    Value* pointer;  // of the first lane, or one per lane
    enum { Same, Row, Scattered } kind;
  };

  Address address(int buffer, Sym s, const std::vector<loops::GatherTerm>& gather) {
    llvm::Type* element = ops_.memory_type(k_.buffers[buffer].dtype, 1);
    const Motion m = motion(s);
    if (!gather.empty() || !m.column_step) return scattered(buffer, element, s, gather);
    Value* pointer = m.row_step ? even_rows(buffer, element, s, m) : uneven_rows(buffer, element, s);
    const int64_t step = *m.column_step;
    if (step == 0) return {pointer, Address::Same};
    pointer = b_.CreateGEP(element, pointer, i64(b_, step * first_lane()));
    if (step == 1) return {pointer, Address::Row};
    llvm::SmallVector<llvm::Constant*, 16> lanes;
    for (unsigned lane = 0; lane < lanes_; ++lane)
      lanes.push_back(b_.getInt64(static_cast<uint64_t>(step * static_cast<int64_t>(lane))));
    return {b_.CreateGEP(element, pointer, llvm::ConstantVector::get(lanes)), Address::Scattered};
  }

  /// One address for the tile, the row a displacement.
  Value* even_rows(int buffer, llvm::Type* element, Sym s, const Motion& m) {
    Value*& base = bases_[{buffer, s.str()}];
    if (!base) {
      base = in_front([&] {
        Value* offset = emit_index(b_, m.rest, [&](Sym size) { return sizes_(b_, site_.syms, size); });
        offset = b_.CreateAdd(offset, b_.CreateMul(site_.row, i64(b_, *m.row_step)));
        offset = b_.CreateAdd(offset, b_.CreateMul(site_.col, i64(b_, *m.column_step)));
        return b_.CreateGEP(element, load_buffer(b_, site_.buffers, first_buffer_ + buffer), offset);
      });
    }
    return b_.CreateGEP(element, base, b_.CreateMul(row_, i64(b_, *m.row_step)));
  }

  /// An address for each row.
  Value* uneven_rows(int buffer, llvm::Type* element, Sym s) {
    Value* offset = emit_index(
        b_, s, [this](Sym symbol) -> Value* { return symbol == column_ ? site_.col : row_symbol(symbol); });
    return b_.CreateGEP(element, load_buffer(b_, site_.buffers, first_buffer_ + buffer), offset);
  }

  Address scattered(int buffer, llvm::Type* element, Sym s, const std::vector<loops::GatherTerm>& gather) {
    Value* offset = widen(index(s));
    for (const loops::GatherTerm& term : gather) {
      Value* scale = widen(index(term.coef));
      offset = b_.CreateAdd(offset, b_.CreateMul(widen(value(term.value)), scale));
    }
    Value* base = load_buffer(b_, site_.buffers, first_buffer_ + buffer);
    return {b_.CreateGEP(element, base, offset), Address::Scattered};
  }

  // ---- memory

  /// Lanes of this vector that are columns; null: all.
  Value* lanes_mask() {
    if (!site_.columns_left) return nullptr;
    Value*& mask = masks_[vector_];
    if (!mask)
      mask = in_front([&] {
        return lane_mask(b_, static_cast<int>(lanes_),
                         b_.CreateSub(site_.columns_left, i64(b_, first_lane())));
      });
    return mask;
  }
  /// Lanes that exist and that `condition` allows; null: all.
  Value* mask(ExprId condition) {
    Value* exists = lanes_mask();
    if (condition == loops::kNone) return exists;
    Value* wanted = widen(value(condition));
    return exists ? b_.CreateAnd(exists, wanted) : wanted;
  }

  Value* load(const Expr& e) {
    const Address at = address(e.buffer, e.index, e.gather);
    const llvm::Align align(static_cast<uint64_t>(dtype_bytes(e.dtype)));
    if (at.kind == Address::Same && e.mask == loops::kNone) {
      return ops_.from_memory(b_.CreateAlignedLoad(ops_.memory_type(e.dtype, 1), at.pointer, align), e.dtype);
    }
    llvm::Type* type = ops_.memory_type(e.dtype, lanes_);
    Value* lanes = mask(e.mask);
    if (at.kind == Address::Row && !lanes)
      return ops_.from_memory(b_.CreateAlignedLoad(type, at.pointer, align), e.dtype);
    if (!lanes) lanes = llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(b_.getInt1Ty(), lanes_));
    Value* fill = ops_.splat(
        ops_.to_memory(ops_.constant(e.dtype, e.fill, static_cast<int64_t>(e.fill)), e.dtype), lanes_);
    Value* raw = at.kind == Address::Row ? b_.CreateMaskedLoad(type, at.pointer, align, lanes, fill)
                                         : b_.CreateMaskedGather(type, widen(at.pointer), align, lanes, fill);
    return ops_.from_memory(raw, e.dtype);
  }

  void emit_store(const loops::Store& store) {
    const DType dtype = k_.buffers[store.buffer].dtype;
    Address at = address(store.buffer, store.index, store.gather);
    // One column is one lane: the others do not exist.
    if (at.kind == Address::Same && k_.dims.back().size.is_const(1) && site_.columns_left)
      at.kind = Address::Row;
    if (at.kind == Address::Same) throw_unsupported("store of a row in the epilogue ", k_.name);
    const llvm::Align align(static_cast<uint64_t>(dtype_bytes(dtype)));
    Value* data = ops_.to_memory(widen(value(store.value)), dtype);
    Value* lanes = mask(store.mask);
    if (at.kind == Address::Row && !lanes) {
      b_.CreateAlignedStore(data, at.pointer, align);
    } else if (at.kind == Address::Row) {
      b_.CreateMaskedStore(data, at.pointer, align, lanes);
    } else {
      b_.CreateMaskedScatter(data, at.pointer, align, lanes);
    }
  }

  using Known = std::map<std::pair<ExprId, int>, Value*>;  // by expression and vector (-1: the same for all)

  llvm::IRBuilder<>& b_;
  const Kernel& k_;
  const int first_buffer_;
  Ops ops_;
  const TileSite site_;
  const unsigned lanes_;
  const int column_dim_;
  const Sym column_;
  SizeEmitter sizes_;
  std::vector<bool> is_common_;
  llvm::Instruction* common_;  // what the tile has in common is emitted before this
  Known of_tile_, of_row_, of_vector_;
  std::map<std::pair<int, std::string>, Value*> bases_;
  std::map<int, Value*> masks_;
  // of the vector being finished
  Value* sums_ = nullptr;
  Value* row_ = nullptr;
  Value* row_number_ = nullptr;
  int vector_ = 0;
};

}  // namespace

SizeEmitter make_size_emitter(const Syms& symbols) {
  return [symbols](llvm::IRBuilder<>& b, Value* syms, Sym size) {
    return emit_index(b, size, [&](Sym symbol) -> Value* {
      const auto found = std::find(symbols.begin(), symbols.end(), symbol);
      BOLT_CHECK(found != symbols.end(), "size symbol ", symbol.str(), " is not passed to the kernel");
      return b.CreateLoad(
          b.getInt64Ty(),
          b.CreateConstGEP1_64(b.getInt64Ty(), syms, static_cast<uint64_t>(found - symbols.begin())));
    });
  };
}

Epilogue make_epilogue(const Kernel& kernel, int first_buffer, const Target& target) {
  Epilogue epilogue;
  epilogue.cost = cost_of(kernel);
  epilogue.begin = [&kernel, first_buffer, &target](llvm::IRBuilder<>& b, int lanes, const TileSite& site) {
    return std::make_unique<LoopsTileEpilogue>(b, kernel, first_buffer, target, lanes, site);
  };
  return epilogue;
}

}  // namespace bolt::codegen::cpu::gemm

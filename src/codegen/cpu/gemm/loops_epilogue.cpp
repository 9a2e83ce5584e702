// src/codegen/cpu/gemm/loops_epilogue.cpp
// Loops expressions on one vector of sums -> LLVM IR; see loops_epilogue.h
#include "codegen/cpu/gemm/loops_epilogue.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "codegen/cpu/gemm/emit_util.h"
#include "codegen/cpu/ops.h"
#include "support/error.h"

namespace bolt::codegen::cpu::gemm {
namespace {

using llvm::Value;
using loops::Expr;
using loops::ExprId;
using loops::ExprKind;
using loops::Kernel;
using loops::ScalarOp;

constexpr int kFunctionCost = 25;  // exp, tanh, erf, ...: a polynomial and its special cases

bool is_function(ScalarOp op) {
  switch (op) {
    case ScalarOp::exp:
    case ScalarOp::exp2:
    case ScalarOp::expm1:
    case ScalarOp::log:
    case ScalarOp::log2:
    case ScalarOp::log10:
    case ScalarOp::log1p:
    case ScalarOp::sin:
    case ScalarOp::cos:
    case ScalarOp::tan:
    case ScalarOp::asin:
    case ScalarOp::acos:
    case ScalarOp::atan:
    case ScalarOp::sinh:
    case ScalarOp::cosh:
    case ScalarOp::tanh:
    case ScalarOp::erf:
    case ScalarOp::erfc:
    case ScalarOp::sigmoid:
    case ScalarOp::pow:
    case ScalarOp::atan2:
    case ScalarOp::fmod:
    case ScalarOp::remainder: return true;
    default: return false;
  }
}

int cost_of(const Kernel& kernel) {
  int cost = static_cast<int>(kernel.stores.size());
  for (const Expr& e : kernel.exprs) {
    if (e.kind == ExprKind::Op) cost += is_function(e.op) ? kFunctionCost : 1;
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

/// The epilogue at one site: values of all expressions, then the stores.
class SiteEmitter {
 public:
  SiteEmitter(llvm::IRBuilder<>& b, const Kernel& kernel, int first_buffer, const Target& target, Value* sums,
              const EpilogueSite& site)
      : b_(b),
        k_(kernel),
        first_buffer_(first_buffer),
        ops_(b, target),
        sums_(sums),
        site_(site),
        lanes_(llvm::cast<llvm::FixedVectorType>(sums->getType())->getNumElements()),
        column_(Kernel::dim(static_cast<int>(kernel.dims.size()) - 1)),
        sizes_(make_size_emitter(kernel.symbols)) {}

  void emit() {
    for (const Expr& e : k_.exprs) values_.push_back(value_of(e));
    for (const loops::Store& store : k_.stores) emit_store(store);
  }

 private:
  Value* value_of(const Expr& e) {
    switch (e.kind) {
      case ExprKind::Acc: return sums_;
      case ExprKind::Const: return ops_.constant(e.dtype, e.value, e.ivalue);
      case ExprKind::Index: return index(e.index);
      case ExprKind::Load: return load(e);
      case ExprKind::Cast:
        return ops_.cast(value(e.args[0]), k_.exprs[static_cast<size_t>(e.args[0])].dtype, e.dtype);
      case ExprKind::Op: return apply(e);
      case ExprKind::Reduce: break;
    }
    throw_unsupported("reduction in the epilogue ", k_.name);
  }

  Value* value(ExprId id) const { return values_[static_cast<size_t>(id)]; }
  static bool is_vector(Value* v) { return v->getType()->isVectorTy(); }
  Value* widen(Value* v) { return is_vector(v) ? v : ops_.splat(v, lanes_); }

  Value* apply(const Expr& e) {
    std::vector<Value*> args;
    for (ExprId id : e.args) args.push_back(value(id));
    if (std::any_of(args.begin(), args.end(), is_vector)) {
      for (Value*& arg : args) arg = widen(arg);
    }
    return ops_.apply(e.op, k_.exprs[static_cast<size_t>(e.args.back())].dtype, args);
  }

  /// A scalar where the index does not depend on the column, else a value per lane.
  Value* index(Sym s) { return emit_offset(s, true); }

  Value* symbol_value(Sym symbol, bool per_lane) {
    if (symbol == column_) {
      if (!per_lane) return site_.col;
      llvm::SmallVector<llvm::Constant*, 16> numbers;
      for (unsigned lane = 0; lane < lanes_; ++lane) numbers.push_back(b_.getInt64(lane));
      return b_.CreateAdd(b_.CreateVectorSplat(lanes_, site_.col), llvm::ConstantVector::get(numbers));
    }
    for (size_t d = 0; d + 1 < k_.dims.size(); ++d) {
      if (symbol == Kernel::dim(static_cast<int>(d))) return row_part(d);
    }
    return sizes_(b_, site_.syms, symbol);
  }

  /// Index along dimension `d` of the row that row's number stands for.
  Value* row_part(size_t d) {
    Value* rest = site_.row;
    for (size_t inner = k_.dims.size() - 2; inner > d; --inner) {
      rest = b_.CreateUDiv(rest, sizes_(b_, site_.syms, k_.dims[inner].size));
    }
    return d == 0 ? rest : b_.CreateURem(rest, sizes_(b_, site_.syms, k_.dims[d].size));
  }

  /// `s` with its row dimensions replaced by a multiple of the row's number, where they lie densely.
  Value* emit_offset(Sym s, bool per_lane) {
    struct RowDim {
      Sym symbol, size;
      int64_t step;
    };
    std::vector<RowDim> rows;  // dimensions of size 1 are always at index 0
    for (size_t d = 0; d + 1 < k_.dims.size(); ++d) {
      if (!k_.dims[d].size.is_const(1))
        rows.push_back({Kernel::dim(static_cast<int>(d)), k_.dims[d].size, 0});
    }
    Sym others = 0;
    int64_t constant = 0;
    for (const SymTerm& term : sum_terms(s, &constant)) {
      auto row =
          std::find_if(rows.begin(), rows.end(), [&](const RowDim& r) { return r.symbol == term.term; });
      if (row != rows.end()) {
        row->step += term.coef;
      } else {
        others += Sym(term.coef) * term.term;
      }
    }
    for (size_t d = 0; d + 1 < rows.size(); ++d) {
      if (Sym(rows[d + 1].step) * rows[d + 1].size != Sym(rows[d].step))
        return emit_index(b_, s, symbols(per_lane));
    }
    Value* rest = emit_index(b_, others + Sym(constant), symbols(per_lane));
    if (rows.empty() || rows.back().step == 0) return rest;
    Value* row = b_.CreateMul(site_.row, i64(b_, rows.back().step));
    return b_.CreateAdd(is_vector(rest) ? widen(row) : row, rest);
  }

  std::function<Value*(Sym)> symbols(bool per_lane) {
    return [this, per_lane](Sym symbol) { return symbol_value(symbol, per_lane); };
  }

  /// How many elements apart neighbouring columns lie; nothing when that is not one number.
  std::optional<int64_t> column_step(Sym s) const {
    int64_t constant = 0, step = 0;
    for (const SymTerm& term : sum_terms(s, &constant)) {
      if (term.term == column_) {
        step += term.coef;
        continue;
      }
      std::vector<Sym> symbols;
      collect_symbols(term.term, &symbols);
      if (std::find(symbols.begin(), symbols.end(), column_) != symbols.end()) return std::nullopt;
    }
    return step;
  }

  struct Address {
    Value* pointer;  // of the first lane, or one per lane
    enum { Same, Row, Scattered } kind;
  };

  Address address(int buffer, Sym s, const std::vector<loops::GatherTerm>& gather) {
    Value* base = load_buffer(b_, site_.buffers, first_buffer_ + buffer);
    llvm::Type* element = ops_.memory_type(k_.buffers[static_cast<size_t>(buffer)].dtype, 1);
    const std::optional<int64_t> step = column_step(s);
    const bool gathers_lanes = std::any_of(gather.begin(), gather.end(), [&](const loops::GatherTerm& term) {
      return is_vector(value(term.value));
    });
    const bool simple = step && (*step == 0 || *step == 1) && !gathers_lanes;
    Value* offset = emit_offset(s, !simple);
    if (!simple) offset = widen(offset);
    for (const loops::GatherTerm& term : gather) {
      Value* part = value(term.value);
      Value* scale = emit_index(b_, term.coef, symbols(false));
      if (!simple) part = widen(part), scale = widen(scale);
      offset = b_.CreateAdd(offset, b_.CreateMul(part, scale));
    }
    return {b_.CreateGEP(element, base, offset), !simple ? Address::Scattered
                                                 : *step ? Address::Row
                                                         : Address::Same};
  }

  /// Lanes that exist and that `condition` allows; null: all.
  Value* mask(ExprId condition) {
    if (condition == loops::kNone) return site_.mask;
    Value* wanted = widen(value(condition));
    return site_.mask ? b_.CreateAnd(site_.mask, wanted) : wanted;
  }

  Value* load(const Expr& e) {
    const Address at = address(e.buffer, e.index, e.gather);
    const llvm::Align align(static_cast<uint64_t>(dtype_bytes(e.dtype)));
    if (at.kind == Address::Same && (e.mask == loops::kNone)) {
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
    const DType dtype = k_.buffers[static_cast<size_t>(store.buffer)].dtype;
    const Address at = address(store.buffer, store.index, store.gather);
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

  llvm::IRBuilder<>& b_;
  const Kernel& k_;
  const int first_buffer_;
  Ops ops_;
  Value* sums_;
  EpilogueSite site_;
  unsigned lanes_;
  Sym column_;
  SizeEmitter sizes_;
  std::vector<Value*> values_;
};

}  // namespace

SizeEmitter make_size_emitter(const std::vector<Sym>& symbols) {
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
  epilogue.emit = [&kernel, first_buffer, &target](llvm::IRBuilder<>& b, Value* sums,
                                                   const EpilogueSite& site) {
    // Math functions may split the block at the insertion point for their cold paths, so it needs an end to
    // split off.
    llvm::Instruction* end = b.CreateUnreachable();
    b.SetInsertPoint(end);
    SiteEmitter(b, kernel, first_buffer, target, sums, site).emit();
    b.SetInsertPoint(end->getParent());
    end->eraseFromParent();
  };
  return epilogue;
}

}  // namespace bolt::codegen::cpu::gemm

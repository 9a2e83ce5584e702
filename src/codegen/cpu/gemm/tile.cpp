// codegen/cpu/gemm/tile.cpp
// register tile -> LLVM IR; see tile.h for the algorithm
//
// The IR is close to final on purpose: one basic block for the innermost loop, accumulators as phis,
// constant displacements from one A and one B pointer. LLVM has nothing left to transform, only to
// allocate registers, which keeps a kernel's compile time at a few milliseconds.
#include "codegen/cpu/gemm/tile.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "codegen/cpu/gemm/emit_util.h"

namespace bolt::codegen::cpu::gemm {
namespace {

using llvm::Value;

/// What the loops over K carry from step to step.
struct Carried {
  Value* b;
  std::vector<Value*> sums;
};

class TileEmitter {
 public:
  TileEmitter(llvm::IRBuilder<>& builder, const TileShape& shape, Value* steps)
      : b_(builder),
        shape_(shape),
        run_time_steps_(steps),
        float_(builder.getFloatTy()),
        vector_(llvm::FixedVectorType::get(float_, shape.lanes)) {}

  std::vector<Value*> emit(Value* a, Value* b_panel) {
    cut_ = cut_level();
    if (cut_ == shape_.k.size()) return emit_level(0, a, {b_panel, zeros()}).sums;
    make_totals();
    emit_level(0, a, {b_panel, {}});
    std::vector<Value*> sums;
    for (Value* total : totals_) sums.push_back(load(total));
    return sums;
  }

 private:
  /// A sum over a long K is made of partial sums over about this many steps: its rounding error grows with
  /// the longest chain of additions. (MKL does the same.)
  static constexpr int64_t kChain = 256;

  std::vector<Value*> zeros() const {
    return std::vector<Value*>(static_cast<size_t>(shape_.rows() * shape_.vectors),
                               llvm::Constant::getNullValue(vector_));
  }

  /// The loop to cut into blocks: the outermost one whose body is no longer than a chain. The number of loops
  /// where the whole of K is short enough.
  size_t cut_level() {
    if (run_time_steps_) return shape_.k.size();
    int64_t inner = 1;
    for (size_t level = shape_.k.size(); level-- > 0;) {
      const int64_t count = shape_.k[level].count;
      if (inner * count > kChain * 5 / 4) {  // into blocks of nearly equal length
        const int64_t blocks = (inner * count + kChain - 1) / kChain;
        steps_ = std::max<int64_t>(1, (count + blocks - 1) / blocks);
        return level;
      }
      inner *= shape_.k[level].count;
    }
    return shape_.k.size();
  }

  // The totals live in memory, where they are touched once a block; as registers they would push the partial
  // sums out. Volatile keeps LLVM from making registers of them.
  void make_totals() {
    llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
    llvm::IRBuilder<> at_entry(&entry, entry.begin());
    for (Value* zero : zeros()) {
      totals_.push_back(at_entry.CreateAlloca(vector_));
      b_.CreateStore(zero, totals_.back(), /*isVolatile=*/true);
    }
  }
  Value* load(Value* total) { return b_.CreateLoad(vector_, total, /*isVolatile=*/true); }

  /// `count` steps of the loop that is cut, from zero, onto the totals.
  Value* emit_block(Value* a, Value* b_panel, int64_t count) {
    Carried done = emit_loop(cut_, count, a, {b_panel, zeros()});
    for (size_t i = 0; i < totals_.size(); ++i)
      b_.CreateStore(b_.CreateFAdd(load(totals_[i]), done.sums[i]), totals_[i], /*isVolatile=*/true);
    return done.b;
  }

  /// The loop that is cut: whole blocks, and what is left.
  Carried emit_blocks(Value* a, Carried in) {
    const KLevel& loop = shape_.k[cut_];
    const int64_t blocks = loop.count / steps_, rest = loop.count % steps_;
    llvm::BasicBlock* before = b_.GetInsertBlock();
    auto* body = llvm::BasicBlock::Create(b_.getContext(), "block", before->getParent());
    auto* after = llvm::BasicBlock::Create(b_.getContext(), "block.end", before->getParent());
    b_.CreateBr(body);
    b_.SetInsertPoint(body);
    llvm::PHINode* left = phi(b_.getInt64Ty(), b_.getInt64(static_cast<uint64_t>(blocks)), before);
    llvm::PHINode* a_now = phi(b_.getPtrTy(), a, before);
    llvm::PHINode* b_now = phi(b_.getPtrTy(), in.b, before);
    in.b = emit_block(a_now, b_now, steps_);
    Value* a_next = at(a_now, loop.a_step * steps_);
    llvm::BasicBlock* latch = b_.GetInsertBlock();
    Value* fewer = b_.CreateNUWSub(left, b_.getInt64(1));
    left->addIncoming(fewer, latch);
    a_now->addIncoming(a_next, latch);
    b_now->addIncoming(in.b, latch);
    b_.CreateCondBr(b_.CreateICmpNE(fewer, b_.getInt64(0)), body, after);
    b_.SetInsertPoint(after);
    if (rest > 0) in.b = emit_block(a_next, in.b, rest);
    return in;
  }

  Carried emit_level(size_t level, Value* a, Carried in) {
    if (level == shape_.k.size()) return emit_step(a, std::move(in));
    if (level == cut_ && in.sums.empty()) return emit_blocks(a, std::move(in));
    return emit_loop(level, shape_.k[level].count, a, std::move(in));
  }

  Carried emit_loop(size_t level, int64_t count, Value* a, Carried in) {
    const KLevel& loop = shape_.k[level];
    if (count == 1 && !run_time_steps_) return emit_level(level + 1, a, std::move(in));
    Value* steps = run_time_steps_ ? run_time_steps_ : b_.getInt64(static_cast<uint64_t>(count));

    llvm::BasicBlock* before = b_.GetInsertBlock();
    llvm::Function* function = before->getParent();
    auto* body = llvm::BasicBlock::Create(b_.getContext(), "k", function);
    auto* after = llvm::BasicBlock::Create(b_.getContext(), "k.end", function);
    b_.CreateBr(body);

    b_.SetInsertPoint(body);
    llvm::PHINode* left = phi(b_.getInt64Ty(), steps, before);
    llvm::PHINode* a_now = phi(b_.getPtrTy(), a, before);
    llvm::PHINode* b_now = phi(b_.getPtrTy(), in.b, before);
    std::vector<llvm::PHINode*> sums;
    Carried now{b_now, {}};
    for (Value* sum : in.sums) {
      sums.push_back(phi(vector_, sum, before));
      now.sums.push_back(sums.back());
    }

    Carried next = emit_level(level + 1, a_now, std::move(now));
    llvm::BasicBlock* latch = b_.GetInsertBlock();
    Value* rest = b_.CreateNUWSub(left, b_.getInt64(1));
    left->addIncoming(rest, latch);
    a_now->addIncoming(at(a_now, loop.a_step), latch);
    b_now->addIncoming(next.b, latch);
    for (size_t i = 0; i < sums.size(); ++i) sums[i]->addIncoming(next.sums[i], latch);
    b_.CreateCondBr(b_.CreateICmpNE(rest, b_.getInt64(0)), body, after);
    b_.SetInsertPoint(after);
    return next;
  }

  /// One step of K: the loads and multiply-adds of the whole tile.
  Carried emit_step(Value* a, Carried in) {
    std::vector<Value*> columns;
    for (int v = 0; v < shape_.vectors; ++v)
      columns.push_back(emit_columns(b_at(in.b, int64_t{v} * shape_.lanes), v + 1 == shape_.vectors));
    emit_prefetch(in.b);
    for (int r = 0; r < shape_.rows(); ++r) {
      Value* number = b_.CreateAlignedLoad(float_, at(a, shape_.row_offsets[r]), llvm::Align(4));
      Value* row = b_.CreateVectorSplat(static_cast<unsigned>(shape_.lanes), number);
      for (int v = 0; v < shape_.vectors; ++v) {
        Value*& sum = in.sums[r * shape_.vectors + v];
        sum = multiply_add(row, columns[v], sum);
      }
    }
    in.b = b_at(in.b, shape_.b_step);
    return in;
  }

  Value* multiply_add(Value* x, Value* y, Value* sum) {
    if (!shape_.pairs) return b_.CreateIntrinsic(vector_, llvm::Intrinsic::fmuladd, {x, y, sum});
    auto* halves = llvm::FixedVectorType::get(b_.getBFloatTy(), 2 * static_cast<unsigned>(shape_.lanes));
    const llvm::Intrinsic::ID dot = shape_.lanes == 16  ? llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512
                                    : shape_.lanes == 8 ? llvm::Intrinsic::x86_avx512bf16_dpbf16ps_256
                                                        : llvm::Intrinsic::x86_avx512bf16_dpbf16ps_128;
    return b_.CreateIntrinsic(dot, {}, {sum, b_.CreateBitCast(x, halves), b_.CreateBitCast(y, halves)});
  }

  Value* emit_columns(Value* from, bool last) {
    return emit_widened(b_, load_columns(vector_of(b_, shape_.b, shape_.lanes), from, last), shape_.b);
  }
  Value* load_columns(llvm::Type* type, Value* from, bool last) {
    const llvm::Align align(dtype_bytes(shape_.b));
    if (!last || shape_.last_lanes == 0) return b_.CreateAlignedLoad(type, from, align);
    llvm::SmallVector<llvm::Constant*, 16> exists;
    for (int lane = 0; lane < shape_.lanes; ++lane) exists.push_back(b_.getInt1(lane < shape_.last_lanes));
    return b_.CreateMaskedLoad(type, from, align, llvm::ConstantVector::get(exists),
                               llvm::Constant::getNullValue(type));
  }

  void emit_prefetch(Value* b) {
    if (shape_.prefetch == 0) return;
    constexpr int kLine = 64;
    const auto bytes = static_cast<int>(shape_.vectors * shape_.lanes * dtype_bytes(shape_.b));
    for (int line = 0; line < bytes; line += kLine) {
      Value* where =
          b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), b, static_cast<uint64_t>(shape_.prefetch + line));
      // read, keep in all cache levels, data
      b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                         {where, b_.getInt32(0), b_.getInt32(3), b_.getInt32(1)});
    }
  }

  Value* b_at(Value* base, int64_t elements) {
    return elements == 0 ? base : number_at(b_, shape_.b, base, i64(b_, elements));
  }
  Value* at(Value* base, int64_t elements) {
    if (elements == 0) return base;
    return b_.CreateConstGEP1_64(float_, base, static_cast<uint64_t>(elements));
  }

  llvm::PHINode* phi(llvm::Type* type, Value* first, llvm::BasicBlock* from) {
    llvm::PHINode* node = b_.CreatePHI(type, 2);
    node->addIncoming(first, from);
    return node;
  }

  llvm::IRBuilder<>& b_;
  const TileShape& shape_;
  Value* run_time_steps_;  ///< null: the shape's
  llvm::Type* float_;
  llvm::FixedVectorType* vector_;
  size_t cut_ = 0;     ///< the loop over K that is cut into blocks
  int64_t steps_ = 0;  ///< of it in a block
  std::vector<Value*> totals_;
};

}  // namespace

std::vector<Value*> emit_tile_product(llvm::IRBuilder<>& b, const TileShape& shape, Value* a, Value* b_panel,
                                      Value* steps) {
  return TileEmitter(b, shape, steps).emit(a, b_panel);
}

}  // namespace bolt::codegen::cpu::gemm

// src/codegen/cpu/gemm/tile.cpp
// register tile -> LLVM IR; see tile.h for the algorithm
//
// The IR is close to final on purpose: one basic block for the innermost loop, accumulators as phis,
// constant displacements from one A and one B pointer. LLVM has nothing left to transform, only to
// allocate registers, which keeps a kernel's compile time at a few milliseconds.
#include "codegen/cpu/gemm/tile.h"

#include <llvm/IR/Intrinsics.h>

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
  TileEmitter(llvm::IRBuilder<>& builder, const TileShape& shape)
      : b_(builder),
        shape_(shape),
        float_(builder.getFloatTy()),
        vector_(llvm::FixedVectorType::get(float_, shape.lanes)) {}

  std::vector<Value*> emit(Value* a, Value* b_panel) {
    Carried start{b_panel, std::vector<Value*>(static_cast<size_t>(shape_.rows() * shape_.vectors),
                                               llvm::Constant::getNullValue(vector_))};
    return emit_level(0, a, std::move(start)).sums;
  }

 private:
  Carried emit_level(size_t level, Value* a, Carried in) {
    if (level == shape_.k.size()) return emit_step(a, std::move(in));
    const KLevel& loop = shape_.k[level];
    if (loop.count == 1) return emit_level(level + 1, a, std::move(in));

    llvm::BasicBlock* before = b_.GetInsertBlock();
    llvm::Function* function = before->getParent();
    auto* body = llvm::BasicBlock::Create(b_.getContext(), "k", function);
    auto* after = llvm::BasicBlock::Create(b_.getContext(), "k.end", function);
    b_.CreateBr(body);

    b_.SetInsertPoint(body);
    llvm::PHINode* left = phi(b_.getInt64Ty(), b_.getInt64(static_cast<uint64_t>(loop.count)), before);
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
    for (int v = 0; v < shape_.vectors; ++v) {
      columns.push_back(b_.CreateAlignedLoad(vector_, at(in.b, int64_t{v} * shape_.lanes), llvm::Align(4)));
    }
    emit_prefetch(in.b);
    for (int r = 0; r < shape_.rows(); ++r) {
      Value* number =
          b_.CreateAlignedLoad(float_, at(a, shape_.row_offsets[static_cast<size_t>(r)]), llvm::Align(4));
      Value* row = b_.CreateVectorSplat(static_cast<unsigned>(shape_.lanes), number);
      for (int v = 0; v < shape_.vectors; ++v) {
        Value*& sum = in.sums[static_cast<size_t>(r * shape_.vectors + v)];
        sum = b_.CreateIntrinsic(vector_, llvm::Intrinsic::fmuladd,
                                 {row, columns[static_cast<size_t>(v)], sum});
      }
    }
    in.b = at(in.b, shape_.b_step);
    return in;
  }

  void emit_prefetch(Value* b) {
    if (shape_.prefetch == 0) return;
    constexpr int kLine = 64;
    int bytes = shape_.vectors * shape_.lanes * static_cast<int>(sizeof(float));
    for (int line = 0; line < bytes; line += kLine) {
      Value* where =
          b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), b, static_cast<uint64_t>(shape_.prefetch + line));
      // read, keep in all cache levels, data
      b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                         {where, b_.getInt32(0), b_.getInt32(3), b_.getInt32(1)});
    }
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
  llvm::Type* float_;
  llvm::FixedVectorType* vector_;
};

}  // namespace

std::vector<Value*> emit_tile_product(llvm::IRBuilder<>& b, const TileShape& shape, Value* a,
                                      Value* b_panel) {
  return TileEmitter(b, shape).emit(a, b_panel);
}

}  // namespace bolt::codegen::cpu::gemm

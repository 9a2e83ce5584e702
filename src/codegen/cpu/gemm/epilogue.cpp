// src/codegen/cpu/gemm/epilogue.cpp
// sums of a tile -> epilogue code, unrolled or looped; see epilogue.h
#include "codegen/cpu/gemm/epilogue.h"

#include "codegen/cpu/gemm/emit_util.h"

namespace bolt::codegen::cpu::gemm {
namespace {

using llvm::Value;

class EpilogueEmitter {
 public:
  EpilogueEmitter(llvm::IRBuilder<>& b, const Epilogue& epilogue, const std::vector<Value*>& sums,
                  int vectors, EpilogueSite site, Value* columns_left)
      : b_(b),
        epilogue_(epilogue),
        sums_(sums),
        vectors_(vectors),
        rows_(static_cast<int>(sums.size()) / vectors),
        site_(site),
        type_(llvm::cast<llvm::FixedVectorType>(sums.front()->getType())),
        lanes_(static_cast<int>(type_->getNumElements())) {
    for (int v = 0; v < vectors_; ++v) {
      masks_.push_back(columns_left
                           ? lane_mask(b_, lanes_, b_.CreateSub(columns_left, i64(b_, int64_t{v} * lanes_)))
                           : nullptr);
    }
  }

  void unrolled() {
    Value* first = site_.row;
    Value* col = site_.col;
    for (int r = 0; r < rows_; ++r) {
      site_.row = b_.CreateAdd(first, i64(b_, r));
      for (int v = 0; v < vectors_; ++v) one(sums_[static_cast<size_t>(r * vectors_ + v)], col, v);
    }
  }

  void looped() {
    Value* buffer = reserve();
    for (size_t i = 0; i < sums_.size(); ++i)
      b_.CreateStore(sums_[i], vector_at(buffer, i64(b_, static_cast<int64_t>(i))));
    Value* first = site_.row;
    Value* col = site_.col;
    emit_for(b_, i64(b_, 0), i64(b_, rows_), 1, [&](Value* r) {
      site_.row = b_.CreateAdd(first, r);
      Value* start = b_.CreateMul(r, i64(b_, vectors_));
      for (int v = 0; v < vectors_; ++v) {
        one(b_.CreateLoad(type_, vector_at(buffer, b_.CreateAdd(start, i64(b_, v)))), col, v);
      }
    });
  }

 private:
  void one(Value* sums, Value* col, int v) {
    site_.col = b_.CreateAdd(col, i64(b_, int64_t{v} * lanes_));
    site_.mask = masks_[static_cast<size_t>(v)];
    epilogue_.emit(b_, sums, site_);
  }

  Value* vector_at(Value* buffer, Value* index) { return b_.CreateGEP(type_, buffer, index); }

  /// A stack slot for the sums, in the entry block so that it is part of the frame.
  Value* reserve() {
    llvm::IRBuilderBase::InsertPointGuard guard(b_);
    llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
    b_.SetInsertPoint(&entry, entry.getFirstInsertionPt());
    return b_.CreateAlloca(llvm::ArrayType::get(type_, sums_.size()));
  }

  llvm::IRBuilder<>& b_;
  const Epilogue& epilogue_;
  const std::vector<Value*>& sums_;
  const int vectors_;
  const int rows_;
  EpilogueSite site_;
  llvm::FixedVectorType* type_;
  const int lanes_;
  std::vector<Value*> masks_;
};

}  // namespace

void emit_epilogue(llvm::IRBuilder<>& b, const Epilogue& epilogue, const std::vector<Value*>& sums,
                   int vectors, EpilogueSite site, Value* columns_left) {
  EpilogueEmitter emitter(b, epilogue, sums, vectors, site, columns_left);
  if (epilogue.cost * static_cast<int>(sums.size()) <= kMaxUnrolledEpilogue) {
    emitter.unrolled();
  } else {
    emitter.looped();
  }
}

}  // namespace bolt::codegen::cpu::gemm

// codegen/cpu/gemm/epilogue.cpp
// sums of a tile -> epilogue code, unrolled or looped; see epilogue.h
#include "codegen/cpu/gemm/epilogue.h"

#include "codegen/cpu/gemm/emit_util.h"

namespace bolt::codegen::cpu::gemm {
namespace {

using llvm::Value;

void unrolled(llvm::IRBuilder<>& b, TileEpilogue& tile, const std::vector<Value*>& sums, int vectors) {
  for (size_t i = 0; i < sums.size(); ++i) {
    const int at = static_cast<int>(i);
    tile.finish(sums[i], i64(b, at / vectors), at % vectors);
  }
}

/// A stack slot for the sums, in the entry block so that it is part of the frame.
Value* reserve(llvm::IRBuilder<>& b, const std::vector<Value*>& sums) {
  llvm::IRBuilderBase::InsertPointGuard guard(b);
  llvm::BasicBlock& entry = b.GetInsertBlock()->getParent()->getEntryBlock();
  b.SetInsertPoint(&entry, entry.getFirstInsertionPt());
  return b.CreateAlloca(llvm::ArrayType::get(sums[0]->getType(), sums.size()));
}

void looped(llvm::IRBuilder<>& b, TileEpilogue& tile, const std::vector<Value*>& sums, int vectors) {
  llvm::Type* type = sums[0]->getType();
  Value* buffer = reserve(b, sums);
  auto place = [&](Value* index) { return b.CreateGEP(type, buffer, index); };
  for (size_t i = 0; i < sums.size(); ++i) b.CreateStore(sums[i], place(i64(b, static_cast<int64_t>(i))));
  const int64_t rows = static_cast<int64_t>(sums.size()) / vectors;
  emit_for(b, i64(b, 0), i64(b, rows), 1, [&](Value* row) {
    Value* start = b.CreateMul(row, i64(b, vectors));
    for (int v = 0; v < vectors; ++v) {
      tile.finish(b.CreateLoad(type, place(b.CreateAdd(start, i64(b, v)))), row, v);
    }
  });
}

}  // namespace

void emit_epilogue(llvm::IRBuilder<>& b, const Epilogue& epilogue, const std::vector<Value*>& sums,
                   int vectors, const TileSite& site) {
  const auto lanes = llvm::cast<llvm::FixedVectorType>(sums.front()->getType())->getNumElements();
  std::unique_ptr<TileEpilogue> tile = epilogue.begin(b, static_cast<int>(lanes), site);
  const bool unroll = epilogue.cost * static_cast<int>(sums.size()) <= kMaxUnrolledEpilogue;
  (unroll ? unrolled : looped)(b, *tile, sums, vectors);
}

}  // namespace bolt::codegen::cpu::gemm

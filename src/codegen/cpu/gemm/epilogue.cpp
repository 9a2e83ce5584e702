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

void over_rows(llvm::IRBuilder<>& b, TileEpilogue& tile, llvm::Type* type, Value* sums, Value* rows,
               int vectors) {
  emit_for(b, i64(b, 0), rows, 1, [&](Value* row) {
    Value* start = b.CreateMul(row, i64(b, vectors));
    for (int v = 0; v < vectors; ++v)
      tile.finish(b.CreateLoad(type, b.CreateGEP(type, sums, b.CreateAdd(start, i64(b, v)))), row, v);
  });
}

void looped(llvm::IRBuilder<>& b, TileEpilogue& tile, const std::vector<Value*>& sums, int vectors) {
  llvm::Type* type = sums[0]->getType();
  Value* buffer = reserve(b, sums);
  for (size_t i = 0; i < sums.size(); ++i)
    b.CreateStore(sums[i], b.CreateGEP(type, buffer, i64(b, static_cast<int64_t>(i))));
  over_rows(b, tile, type, buffer, i64(b, static_cast<int64_t>(sums.size()) / vectors), vectors);
}

}  // namespace

void emit_epilogue(llvm::IRBuilder<>& b, const Epilogue& epilogue, const std::vector<Value*>& sums,
                   int vectors, const TileSite& site) {
  const auto lanes = llvm::cast<llvm::FixedVectorType>(sums.front()->getType())->getNumElements();
  std::unique_ptr<TileEpilogue> tile = epilogue.begin(b, static_cast<int>(lanes), site);
  const bool unroll = epilogue.cost * static_cast<int>(sums.size()) <= kMaxUnrolledEpilogue;
  (unroll ? unrolled : looped)(b, *tile, sums, vectors);
}

void emit_epilogue_of_memory(llvm::IRBuilder<>& b, const Epilogue& epilogue, Value* sums, Value* rows,
                             int vectors, int lanes, const TileSite& site) {
  std::unique_ptr<TileEpilogue> tile = epilogue.begin(b, lanes, site);
  auto* type = llvm::FixedVectorType::get(b.getFloatTy(), static_cast<unsigned>(lanes));
  over_rows(b, *tile, type, sums, rows, vectors);
}

}  // namespace bolt::codegen::cpu::gemm

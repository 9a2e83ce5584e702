// codegen/cpu/gemm/emit_util.cpp
// small pieces of IR; see emit_util.h
#include "codegen/cpu/gemm/emit_util.h"

#include <llvm/IR/Intrinsics.h>

namespace bolt::codegen::cpu::gemm {

using llvm::BasicBlock;
using llvm::IRBuilder;
using llvm::Value;

void emit_for(IRBuilder<>& b, Value* low, Value* high, int64_t step,
              const std::function<void(Value*)>& body) {
  emit_fold(b, low, high, step, {}, [&](Value* index, std::vector<Value*> values) {
    body(index);
    return values;
  });
}

std::vector<Value*> emit_fold(IRBuilder<>& b, Value* low, Value* high, int64_t step,
                              std::vector<Value*> values,
                              const std::function<std::vector<Value*>(Value*, std::vector<Value*>)>& body) {
  BasicBlock* before = b.GetInsertBlock();
  llvm::Function* function = before->getParent();
  auto* head = BasicBlock::Create(b.getContext(), "for", function);
  auto* inside = BasicBlock::Create(b.getContext(), "for.body", function);
  auto* after = BasicBlock::Create(b.getContext(), "for.end", function);
  b.CreateBr(head);
  b.SetInsertPoint(head);
  llvm::PHINode* index = b.CreatePHI(b.getInt64Ty(), 2);
  index->addIncoming(low, before);
  std::vector<Value*> carried;
  for (Value* value : values) {
    llvm::PHINode* phi = b.CreatePHI(value->getType(), 2);
    phi->addIncoming(value, before);
    carried.push_back(phi);
  }
  b.CreateCondBr(b.CreateICmpSLT(index, high), inside, after);
  b.SetInsertPoint(inside);
  const std::vector<Value*> next = body(index, carried);
  index->addIncoming(b.CreateNSWAdd(index, i64(b, step)), b.GetInsertBlock());
  for (size_t i = 0; i < next.size(); ++i)
    llvm::cast<llvm::PHINode>(carried[i])->addIncoming(next[i], b.GetInsertBlock());
  b.CreateBr(head);
  b.SetInsertPoint(after);
  return carried;
}

void emit_if(IRBuilder<>& b, Value* condition, const std::function<void()>& then,
             const std::function<void()>& otherwise) {
  llvm::Function* function = b.GetInsertBlock()->getParent();
  auto* yes = BasicBlock::Create(b.getContext(), "then", function);
  auto* no = BasicBlock::Create(b.getContext(), "else", function);
  auto* after = otherwise ? BasicBlock::Create(b.getContext(), "endif", function) : no;
  b.CreateCondBr(condition, yes, no);
  b.SetInsertPoint(yes);
  then();
  b.CreateBr(after);
  if (otherwise) {
    b.SetInsertPoint(no);
    otherwise();
    b.CreateBr(after);
  }
  b.SetInsertPoint(after);
}

Value* float_at(IRBuilder<>& b, Value* base, Value* elements) {
  return b.CreateGEP(b.getFloatTy(), base, elements);
}

Value* float_at(IRBuilder<>& b, Value* base, int64_t elements) {
  return elements == 0 ? base : float_at(b, base, i64(b, elements));
}

llvm::FixedVectorType* vector_of(IRBuilder<>& b, DType dtype, int lanes) {
  llvm::Type* number = dtype == DType::F32   ? b.getFloatTy()
                       : dtype == DType::F16 ? b.getHalfTy()
                                             : static_cast<llvm::Type*>(b.getInt16Ty());
  return llvm::FixedVectorType::get(number, static_cast<unsigned>(lanes));
}

Value* number_at(IRBuilder<>& b, DType dtype, Value* base, Value* elements) {
  return b.CreateGEP(vector_of(b, dtype, 1)->getElementType(), base, elements);
}

Value* emit_widened(IRBuilder<>& b, Value* numbers, DType dtype) {
  if (dtype == DType::F32) return numbers;
  const auto lanes =
      static_cast<int>(llvm::cast<llvm::FixedVectorType>(numbers->getType())->getNumElements());
  llvm::FixedVectorType* floats = vector_of(b, DType::F32, lanes);
  if (dtype == DType::F16) return b.CreateFPExt(numbers, floats);
  // A bfloat16 is the upper half of a float32.
  auto* words = llvm::FixedVectorType::get(b.getInt32Ty(), static_cast<unsigned>(lanes));
  return b.CreateBitCast(b.CreateShl(b.CreateZExt(numbers, words), uint64_t{16}), floats);
}

void emit_widened_copy(IRBuilder<>& b, DType dtype, int lanes, Value* to, Value* from, Value* count) {
  emit_for(b, i64(b, 0), count, lanes, [&](Value* i) {
    Value* numbers = b.CreateAlignedLoad(vector_of(b, dtype, lanes), number_at(b, dtype, from, i),
                                         llvm::Align(dtype_bytes(dtype)));
    b.CreateAlignedStore(emit_widened(b, numbers, dtype), float_at(b, to, i), llvm::Align(4));
  });
}

Value* lane_mask(IRBuilder<>& b, int lanes, Value* count) {
  llvm::SmallVector<llvm::Constant*, 16> numbers;
  for (int lane = 0; lane < lanes; ++lane) numbers.push_back(b.getInt32(static_cast<uint32_t>(lane)));
  Value* limit = b.CreateTrunc(minimum(b, count, i64(b, lanes)), b.getInt32Ty());
  return b.CreateICmpSLT(llvm::ConstantVector::get(numbers),
                         b.CreateVectorSplat(static_cast<unsigned>(lanes), limit));
}

Value* load_buffer(IRBuilder<>& b, Value* buffers, int index) {
  return b.CreateLoad(b.getPtrTy(),
                      b.CreateConstGEP1_64(b.getPtrTy(), buffers, static_cast<uint64_t>(index)));
}

Value* reserve_floats(IRBuilder<>& b, int64_t count) {
  llvm::AllocaInst* slot = b.CreateAlloca(llvm::ArrayType::get(b.getFloatTy(), static_cast<uint64_t>(count)));
  slot->setAlignment(llvm::Align(64));
  return slot;
}

Value* minimum(IRBuilder<>& b, Value* x, Value* y) {
  return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y);
}

Value* maximum(IRBuilder<>& b, Value* x, Value* y) {
  return b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, x, y);
}

void emit_copy(IRBuilder<>& b, int lanes, Value* to, Value* from, Value* count) {
  auto* vector = llvm::FixedVectorType::get(b.getFloatTy(), static_cast<unsigned>(lanes));
  llvm::Value* zero = llvm::Constant::getNullValue(vector);
  const llvm::Align align(4);
  Value* whole = b.CreateAnd(count, i64(b, -int64_t{lanes}));
  emit_for(b, i64(b, 0), whole, lanes, [&](Value* i) {
    Value* data = from ? b.CreateAlignedLoad(vector, float_at(b, from, i), align) : zero;
    b.CreateAlignedStore(data, float_at(b, to, i), align);
  });
  if (lanes == 1) return;
  emit_if(b, b.CreateICmpSLT(whole, count), [&] {
    Value* mask = lane_mask(b, lanes, b.CreateSub(count, whole));
    Value* data = from ? b.CreateMaskedLoad(vector, float_at(b, from, whole), align, mask, zero) : zero;
    b.CreateMaskedStore(data, float_at(b, to, whole), align, mask);
  });
}

}  // namespace bolt::codegen::cpu::gemm

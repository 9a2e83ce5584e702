// codegen/cpu/arithmetic.cpp
// The vocabulary that math.cpp is written in: constants, fma, exact powers of two, guarded cold paths.

#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>

#include "codegen/cpu/math.h"

namespace bolt::codegen::cpu {

using llvm::Type;

unsigned Arithmetic::lanes(Value x) const {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  return vector ? vector->getNumElements() : 1;
}

bool Arithmetic::is_double(Value x) const { return x->getType()->getScalarType()->isDoubleTy(); }

Type* Arithmetic::with_element(Value like, Type* element) const {
  if (!like->getType()->isVectorTy()) return element;
  return llvm::FixedVectorType::get(element, lanes(like));
}

Type* Arithmetic::int_type(Value like) const {
  return with_element(like, b_.getIntNTy(like->getType()->getScalarSizeInBits()));
}

Arithmetic::Value Arithmetic::constant(Value like, double value) const {
  return llvm::ConstantFP::get(like->getType(), value);
}

Arithmetic::Value Arithmetic::integer(Value like, int64_t value) const {
  return llvm::ConstantInt::get(int_type(like), static_cast<uint64_t>(value), /*IsSigned=*/true);
}

Arithmetic::Value Arithmetic::fma(Value a, Value b, Value c) const {
  return b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
}

Arithmetic::Value Arithmetic::unary(llvm::Intrinsic::ID id, Value x) const {
  return b_.CreateUnaryIntrinsic(id, x);
}

Arithmetic::Value Arithmetic::copysign(Value magnitude, Value sign) const {
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude, sign);
}

Arithmetic::Value Arithmetic::poly(Value x, std::span<const double> c) const {
  Value sum = constant(x, c.back());
  for (size_t i = c.size() - 1; i-- > 0;) sum = fma(sum, x, constant(x, c[i]));
  return sum;
}

namespace {

/// 2^n for an integral floating n in the normal range: n added to the exponent of 1.
llvm::Value* power_of_two(const Arithmetic& a, Builder& b, llvm::Value* n) {
  // n + 1.5 * 2^mantissa_bits leaves n in the low bits: no conversion, which AVX2 lacks for 64 bits.
  const bool dbl = a.is_double(n);
  llvm::Value* magic = a.constant(n, dbl ? 0x1.8p52 : 0x1.8p23);
  llvm::Value* low = a.bits(b.CreateFAdd(n, magic));
  llvm::Value* exponent = b.CreateShl(low, a.integer(n, dbl ? 52 : 23));
  return a.from_bits(b.CreateAdd(exponent, a.bits(a.constant(n, 1.0))), n);
}

struct ScaleInstruction {
  llvm::Intrinsic::ID id;
  bool rounding_operand;
};

// AVX-512's scalef exists for whole registers only.
ScaleInstruction scale_instruction(bool dbl, unsigned bits) {
  using namespace llvm::Intrinsic;
  if (bits == 512) return {dbl ? x86_avx512_mask_scalef_pd_512 : x86_avx512_mask_scalef_ps_512, true};
  if (bits == 256) return {dbl ? x86_avx512_mask_scalef_pd_256 : x86_avx512_mask_scalef_ps_256, false};
  if (bits == 128) return {dbl ? x86_avx512_mask_scalef_pd_128 : x86_avx512_mask_scalef_ps_128, false};
  return {not_intrinsic, false};
}

llvm::Value* scale_register(Builder& b, const ScaleInstruction& op, llvm::Value* x, llvm::Value* n,
                            unsigned lanes) {
  llvm::SmallVector<llvm::Value*, 5> args = {
      x, n, x, llvm::ConstantInt::getAllOnesValue(b.getIntNTy(lanes < 8 ? 8 : lanes))};
  if (op.rounding_operand) args.push_back(b.getInt32(4));  // the current direction
  return b.CreateIntrinsic(op.id, {}, args);
}

}  // namespace

Arithmetic::Value Arithmetic::scale(Value x, Value n) const {
  const bool dbl = is_double(x);
  const unsigned count = lanes(x), bits = count * (dbl ? 64 : 32);
  if (target_.isa >= Target::Isa::Avx512 && bits >= 128) {
    const unsigned part = std::min(count, dbl ? 8u : 16u);
    const ScaleInstruction op = scale_instruction(dbl, part * (dbl ? 64 : 32));
    if (part == count) return scale_register(b_, op, x, n, part);
    Value result = llvm::PoisonValue::get(x->getType());
    for (unsigned at = 0; at < count; at += part) {
      llvm::SmallVector<int, 16> pick;
      for (unsigned i = 0; i < part; ++i) pick.push_back(static_cast<int>(at + i));
      Value piece =
          scale_register(b_, op, b_.CreateShuffleVector(x, pick), b_.CreateShuffleVector(n, pick), part);
      result = b_.CreateInsertVector(x->getType(), result, piece, b_.getInt64(at));
    }
    return result;
  }
  // Two steps: each factor is a normal number, and only the second product can round.
  Value half = unary(llvm::Intrinsic::rint, b_.CreateFMul(n, constant(n, 0.5)));
  Value rest = b_.CreateFSub(n, half);
  return b_.CreateFMul(b_.CreateFMul(x, power_of_two(*this, b_, half)), power_of_two(*this, b_, rest));
}

Arithmetic::Value Arithmetic::when_any(Value condition, Value value,
                                       const std::function<Value(Value)>& then) const {
  Value any = condition->getType()->isVectorTy() ? b_.CreateOrReduce(condition) : condition;
  // Blocks under construction may have no terminator yet; splitting needs one.
  llvm::BasicBlock* block = b_.GetInsertBlock();
  llvm::Instruction* placeholder = nullptr;
  if (b_.GetInsertPoint() == block->end()) {
    placeholder = b_.CreateUnreachable();
    b_.SetInsertPoint(placeholder);
  }
  llvm::Instruction* at = &*b_.GetInsertPoint();
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::MDNode* rarely = llvm::MDBuilder(b_.getContext()).createBranchWeights(1, 1 << 20);
  llvm::Instruction* end = llvm::SplitBlockAndInsertIfThen(any, at->getIterator(), false, rarely);
  b_.SetInsertPoint(end);
  Value changed = then(value);
  llvm::BasicBlock* cold = end->getParent();
  b_.SetInsertPoint(at->getParent(), at->getParent()->begin());
  llvm::PHINode* result = b_.CreatePHI(value->getType(), 2);
  result->addIncoming(value, before);
  result->addIncoming(changed, cold);
  if (placeholder) {
    llvm::BasicBlock* tail = placeholder->getParent();
    placeholder->eraseFromParent();
    b_.SetInsertPoint(tail);
  } else {
    b_.SetInsertPoint(at);
  }
  return result;
}

}  // namespace bolt::codegen::cpu

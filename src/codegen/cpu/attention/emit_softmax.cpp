// codegen/cpu/attention/emit_softmax.cpp
// exponentials and sums of a block of scores; see emit_softmax.h
#include "codegen/cpu/attention/emit_softmax.h"

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "codegen/cpu/gemm/tile_function.h"

namespace bolt::codegen::cpu::attention {
namespace {

using gemm::float_at;
using gemm::i64;
using llvm::Value;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int kLeastExponent = -127;  // becomes a factor of 0
/// 2^f on [-1/2, 1/2]: a minimax fit of its relative error, the constant term being 1.
constexpr double kExp2[] = {1,
                            0x1.62e430af27847p-1,
                            0x1.ebfbdc3c2ebddp-3,
                            0x1.c6aee88df31aap-5,
                            0x1.3b2d4cf259871p-7,
                            0x1.5f3e5343ac365p-10,
                            0x1.41fbbc2422842p-13};
constexpr double kShortExp2[] = {1, 0x1.62e12c9d77408p-1, 0x1.ec037754377aap-3, 0x1.c9fc45341909ap-5,
                                 0x1.3a02cc3381e95p-7};

llvm::FixedVectorType* vector_of(llvm::IRBuilder<>& b, int lanes) {
  return llvm::FixedVectorType::get(b.getFloatTy(), static_cast<unsigned>(lanes));
}
Value* constant(Value* like, double x) { return llvm::ConstantFP::get(like->getType(), x); }

/// 2^t of t <= 0, by a polynomial on [-1/2, 1/2].
Value* exp2_down(llvm::IRBuilder<>& b, Value* t, std::span<const double> polynomial) {
  // The comparison is false for NaN, which so goes on.
  Value* least = constant(t, kLeastExponent);
  t = b.CreateSelect(b.CreateFCmpOGT(least, t), least, t);
  // Adding 1.5 * 2^23 + 127 rounds to an integer and leaves the biased exponent in the lowest bits.
  Value* magic = constant(t, 12582912.0 + 127);
  Value* shifted = b.CreateFAdd(t, magic);
  Value* f = b.CreateFSub(t, b.CreateFSub(shifted, magic));
  Value* p = constant(t, polynomial.back());
  for (size_t i = polynomial.size() - 1; i-- > 0;)
    p = b.CreateIntrinsic(t->getType(), llvm::Intrinsic::fma, {p, f, constant(t, polynomial[i])});
  auto* integers = llvm::FixedVectorType::get(
      b.getInt32Ty(), llvm::cast<llvm::FixedVectorType>(t->getType())->getNumElements());
  Value* power = b.CreateShl(b.CreateBitCast(shifted, integers), uint64_t{23});
  return b.CreateFMul(p, b.CreateBitCast(power, t->getType()));
}

}  // namespace

Value* Softmax::larger(llvm::IRBuilder<>& b, Value* x, Value* most) {
  return b.CreateSelect(b.CreateFCmpOGT(x, most), x, most);
}

Value* Softmax::weight(llvm::IRBuilder<>& b, Value* score, Value* maximum) const {
  Value* below = b.CreateFSub(score, maximum);
  Value* t = b.CreateFMul(below, constant(below, scale * std::log2(std::exp(1.0))));
  return exp2_down(b, t, rounds ? std::span<const double>(kShortExp2) : kExp2);
}

Value* Softmax::inverse(llvm::IRBuilder<>& b, Value* sum) const {
  Value* inverse = b.CreateFDiv(constant(sum, 1), sum);
  if (empty_rows_nan) return inverse;
  return b.CreateSelect(b.CreateFCmpOEQ(sum, constant(sum, 0)), constant(sum, 0), inverse);
}

void Softmax::emit_begin(llvm::IRBuilder<>& b, int vectors, Value* statistics) const {
  const llvm::Align align(4);
  llvm::Type* type = vector_of(b, lanes);
  for (int v = 0; v < vectors; ++v) {
    auto set = [&](int which, double x) {
      b.CreateAlignedStore(llvm::ConstantFP::get(type, x), float_at(b, row(b, statistics, which), v * lanes),
                           align);
    };
    set(0, -kInf);
    if (!several_blocks) continue;
    set(1, -kInf);
    set(2, 0);
  }
}

std::vector<Value*> Softmax::emit_most(llvm::IRBuilder<>& b, int vectors, Value* statistics) const {
  std::vector<Value*> most;
  for (int v = 0; v < vectors; ++v) {
    Value* at = float_at(b, maximum(b, statistics), int64_t{v} * lanes);
    Value* m = b.CreateAlignedLoad(vector_of(b, lanes), at, llvm::Align(4));
    most.push_back(b.CreateSelect(b.CreateFCmpOEQ(m, constant(m, -kInf)), constant(m, 0), m));
  }
  return most;
}

llvm::Function* Softmax::emit_function(llvm::Module& module, const std::string& name, int vectors) const {
  llvm::IRBuilder<> b(module.getContext());
  llvm::Function* f = gemm::begin_tile(module, b, name, {b.getPtrTy(), b.getInt64Ty(), b.getPtrTy()});
  const llvm::Align align(4);
  llvm::Type* type = vector_of(b, lanes);
  auto at = [&](Value* base, int v) { return float_at(b, base, int64_t{v} * lanes); };
  const std::vector<Value*> most = emit_most(b, vectors, f->getArg(2));
  const std::vector<Value*> zero(static_cast<size_t>(vectors), llvm::ConstantFP::get(type, 0));
  const std::vector<Value*> sums =
      gemm::emit_fold(b, i64(b, 0), f->getArg(1), 1, zero, [&](Value* key, std::vector<Value*> sum) {
        Value* scores = float_at(b, f->getArg(0), b.CreateMul(key, i64(b, width)));
        for (int v = 0; v < vectors; ++v) {
          const size_t i = static_cast<size_t>(v);
          Value* p = weight(b, b.CreateAlignedLoad(type, at(scores, v), align), most[i]);
          b.CreateAlignedStore(p, at(scores, v), align);
          sum[i] = b.CreateFAdd(sum[i], p);
        }
        return sum;
      });
  emit_end(b, f->getArg(2), most, sums);
  b.CreateRetVoid();
  return f;
}

void Softmax::emit_end(llvm::IRBuilder<>& b, Value* statistics, const std::vector<Value*>& most,
                       const std::vector<Value*>& sums) const {
  const llvm::Align align(4);
  llvm::Type* type = vector_of(b, lanes);
  for (size_t i = 0; i < sums.size(); ++i) {
    auto at = [&](Value* base) { return float_at(b, base, static_cast<int64_t>(i) * lanes); };
    Value* factor_at = at(factor(b, statistics));
    if (!several_blocks) {
      b.CreateAlignedStore(inverse(b, sums[i]), factor_at, align);
      continue;
    }
    Value *under = at(row(b, statistics, 1)), *total = at(row(b, statistics, 2));
    Value* shrink = weight(b, b.CreateAlignedLoad(type, under, align), most[i]);
    Value* sum = b.CreateIntrinsic(type, llvm::Intrinsic::fma,
                                   {b.CreateAlignedLoad(type, total, align), shrink, sums[i]});
    b.CreateAlignedStore(b.CreateAlignedLoad(type, at(maximum(b, statistics)), align), under, align);
    b.CreateAlignedStore(sum, total, align);
    b.CreateAlignedStore(shrink, factor_at, align);
  }
}

void Softmax::emit_inverse(llvm::IRBuilder<>& b, int vectors, Value* statistics) const {
  const llvm::Align align(4);
  llvm::Type* type = vector_of(b, lanes);
  for (int v = 0; v < vectors; ++v) {
    Value* sum = b.CreateAlignedLoad(type, float_at(b, row(b, statistics, 2), v * lanes), align);
    b.CreateAlignedStore(inverse(b, sum), float_at(b, factor(b, statistics), v * lanes), align);
  }
}

}  // namespace bolt::codegen::cpu::attention

// codegen/cpu/attention/emit_mask.cpp
// scale, mask and causal rule on a block of scores; see emit_mask.h
#include "codegen/cpu/attention/emit_mask.h"

#include <limits>
#include <vector>

#include "codegen/cpu/attention/emit_softmax.h"
#include "codegen/cpu/gemm/emit_util.h"
#include "codegen/cpu/gemm/pack_emit.h"
#include "codegen/cpu/gemm/tile_function.h"

namespace bolt::codegen::cpu::attention {
namespace {

using gemm::float_at;
using gemm::i64;
using llvm::Value;

class MaskEmitter {
 public:
  MaskEmitter(llvm::Module& module, const std::string& name, const MaskShape& shape)
      : s_(shape), b_(module.getContext()) {
    llvm::Type *pointer = b_.getPtrTy(), *integer = b_.getInt64Ty();
    f_ = gemm::begin_tile(module, b_, name,
                          {pointer, integer, pointer, integer, integer, pointer, integer, integer});
    vector_ = llvm::FixedVectorType::get(b_.getFloatTy(), static_cast<unsigned>(s_.lanes));
    nothing_ = llvm::ConstantFP::get(vector_, -std::numeric_limits<double>::infinity());
    zero_ = llvm::Constant::getNullValue(vector_);
  }

  llvm::Function* emit() {
    for (int v = 0; v < s_.vectors; ++v) {
      first_lane_ = int64_t{v} * s_.lanes;
      Value* at = float_at(b_, f_->getArg(5), first_lane_);
      Value* most = b_.CreateAlignedLoad(vector_, at, llvm::Align(4));
      b_.CreateAlignedStore(in_squares() ? squares(most) : rows(most), at, llvm::Align(4));
    }
    b_.CreateRetVoid();
    return f_;
  }

 private:
  Value* keys() { return f_->getArg(1); }
  Value* stride(Sym s, unsigned argument) {
    if (s.is_const()) return i64(b_, s.value());
    return f_->getArg(argument);
  }
  Value* query_stride() { return stride(s_.mask->query_stride, 6); }
  Value* key_stride() { return stride(s_.mask->key_stride, 7); }
  Value* splat(Value* x) { return b_.CreateVectorSplat(static_cast<unsigned>(s_.lanes), x); }
  bool in_squares() const {
    return s_.mask && s_.mask->key_stride.is_const(1) && !s_.mask->query_stride.is_const(0);
  }
  llvm::Type* element() {
    return s_.mask->boolean ? b_.getInt8Ty() : s_.mask->half ? b_.getInt16Ty() : b_.getFloatTy();
  }
  llvm::Align align() { return llvm::Align(s_.mask->boolean ? 1 : s_.mask->half ? 2 : 4); }
  llvm::FixedVectorType* elements() {
    return llvm::FixedVectorType::get(element(), static_cast<unsigned>(s_.lanes));
  }
  /// What elements of the mask add to the scores.
  Value* added(Value* numbers) {
    if (s_.mask->boolean) return b_.CreateSelect(b_.CreateIsNotNull(numbers), zero_, nothing_);
    if (!s_.mask->half) return numbers;
    auto* words = llvm::FixedVectorType::get(b_.getInt32Ty(), static_cast<unsigned>(s_.lanes));
    return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(numbers, words), uint64_t{16}), vector_);
  }

  /// As many keys as a vector has lanes at a time. Beyond the last key the mask is -inf.
  Value* squares(Value* most) {
    std::vector<Value*> queries;
    for (int lane = 0; lane < s_.lanes; ++lane)
      queries.push_back(b_.CreateGEP(element(), f_->getArg(2), query_offset(lane)));
    return gemm::emit_fold(b_, i64(b_, 0), keys(), s_.lanes, {most},
                           [&](Value* key, std::vector<Value*> carried) {
                             Value* exists = gemm::lane_mask(b_, s_.lanes, b_.CreateSub(keys(), key));
                             std::vector<Value*> square;
                             for (Value* q : queries) square.push_back(mask_row(q, key, exists));
                             square = gemm::emit_transpose(b_, std::move(square));
                             for (int i = 0; i < s_.lanes; ++i)
                               carried[0] = finish(b_.CreateAdd(key, i64(b_, i)), square[i], carried[0]);
                             return carried;
                           })[0];
  }
  /// What is added to the scores of one query and `lanes` keys.
  Value* mask_row(Value* query, Value* key, Value* exists) {
    Value* at = b_.CreateGEP(element(), query, key);
    Value* numbers =
        b_.CreateMaskedLoad(elements(), at, align(), exists, llvm::Constant::getNullValue(elements()));
    return b_.CreateSelect(exists, added(numbers), nothing_);
  }

  Value* rows(Value* most) {
    return gemm::emit_fold(b_, i64(b_, 0), keys(), 1, {most}, [&](Value* key, std::vector<Value*> carried) {
      carried[0] = finish(key, s_.mask ? mask_column(key) : nullptr, carried[0]);
      return carried;
    })[0];
  }
  /// What is added to the scores of `lanes` queries and one key.
  Value* mask_column(Value* key) {
    Value* at = b_.CreateGEP(element(), f_->getArg(2), b_.CreateMul(key, key_stride()));
    if (s_.mask->query_stride.is_const(0))
      return added(b_.CreateVectorSplat(static_cast<unsigned>(s_.lanes),
                                        b_.CreateAlignedLoad(element(), at, align())));
    Value* numbers = llvm::PoisonValue::get(elements());
    for (int lane = 0; lane < s_.lanes; ++lane) {
      Value* from = b_.CreateGEP(element(), at, query_offset(lane));
      numbers = b_.CreateInsertElement(numbers, b_.CreateAlignedLoad(element(), from, align()),
                                       static_cast<uint64_t>(lane));
    }
    return added(numbers);
  }
  /// Of a lane's query in the mask; lanes beyond the last query repeat it.
  Value* query_offset(int lane) {
    Value* query = gemm::minimum(b_, i64(b_, first_lane_ + lane), b_.CreateSub(f_->getArg(3), i64(b_, 1)));
    return b_.CreateMul(query, query_stride());
  }

  /// Writes one key's scores and returns the maxima with them.
  Value* finish(Value* key, Value* added, Value* most) {
    Value* at =
        float_at(b_, f_->getArg(0), b_.CreateAdd(b_.CreateMul(key, i64(b_, s_.width)), i64(b_, first_lane_)));
    Value* score = b_.CreateAlignedLoad(vector_, at, llvm::Align(4));
    Value* scale = llvm::ConstantFP::get(vector_, s_.scale);
    score = added ? b_.CreateIntrinsic(vector_, llvm::Intrinsic::fma, {score, scale, added})
                  : b_.CreateFMul(score, scale);
    if (s_.causal) score = b_.CreateSelect(visible(key), score, nothing_);
    b_.CreateAlignedStore(score, at, llvm::Align(4));
    return Softmax::larger(b_, score, most);
  }
  /// Lanes whose query is no earlier than the key.
  Value* visible(Value* key) {
    llvm::SmallVector<llvm::Constant*, 16> lanes;
    for (int lane = 0; lane < s_.lanes; ++lane) lanes.push_back(b_.getInt32(static_cast<uint32_t>(lane)));
    Value* first =
        b_.CreateTrunc(b_.CreateSub(b_.CreateSub(key, f_->getArg(4)), i64(b_, first_lane_)), b_.getInt32Ty());
    return b_.CreateICmpSLE(splat(first), llvm::ConstantVector::get(lanes));
  }

  const MaskShape& s_;
  llvm::IRBuilder<> b_;
  llvm::Function* f_;
  llvm::FixedVectorType* vector_;
  llvm::Constant *nothing_, *zero_;
  int64_t first_lane_ = 0;  // of the vector being emitted, in the block
};

}  // namespace

llvm::Function* emit_mask_function(llvm::Module& module, const std::string& name, const MaskShape& shape) {
  return MaskEmitter(module, name, shape).emit();
}

}  // namespace bolt::codegen::cpu::attention

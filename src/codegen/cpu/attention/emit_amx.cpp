// codegen/cpu/attention/emit_amx.cpp
// a task's functions for matrix registers; see emit_amx.h
#include "codegen/cpu/attention/emit_amx.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <vector>

#include "codegen/cpu/attention/emit_softmax.h"
#include "codegen/cpu/gemm/amx_tile.h"
#include "codegen/cpu/gemm/emit_util.h"
#include "codegen/cpu/gemm/pack_emit.h"
#include "codegen/cpu/gemm/tile_function.h"

namespace bolt::codegen::cpu::attention {
namespace {

using gemm::emit_for;
using gemm::emit_if;
using gemm::float_at;
using gemm::i64;
using gemm::maximum;
using gemm::minimum;
using llvm::Value;

constexpr int kRows = AmxAttention::kRows;
const llvm::Align kAny(4);

llvm::FixedVectorType* floats(llvm::IRBuilder<>& b) {
  return llvm::FixedVectorType::get(b.getFloatTy(), kRows);
}
llvm::FixedVectorType* halves(llvm::IRBuilder<>& b, unsigned count) {
  return llvm::FixedVectorType::get(b.getInt16Ty(), count);
}

/// The two halves of each word.
Value* words_of(llvm::IRBuilder<>& b, Value* low, Value* high) {
  llvm::SmallVector<int, 32> order;
  for (int i = 0; i < kRows; ++i) order.append({i, kRows + i});
  return b.CreateBitCast(b.CreateShuffleVector(low, high, order), floats(b));
}

/// Rounded to bfloat16, as words.
Value* rounded_pairs(llvm::IRBuilder<>& b, Value* even, Value* odd) {
  Value* both = b.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtne2ps2bf16_512, {}, {odd, even});
  both = b.CreateBitCast(both, halves(b, 2 * kRows));
  llvm::SmallVector<int, 32> order;
  for (int i = 0; i < kRows; ++i) order.append({i, kRows + i});
  return b.CreateBitCast(b.CreateShuffleVector(both, order), floats(b));
}

/// `keys` (i64) in pairs, and these in whole steps.
Value* whole_pairs(llvm::IRBuilder<>& b, Value* keys, int step) {
  Value* steps = b.CreateUDiv(b.CreateAdd(keys, i64(b, 2 * step - 1)), i64(b, 2 * step));
  return b.CreateMul(steps, i64(b, step));
}

}  // namespace

llvm::Function* AmxAttention::emit_scores(llvm::Module& module, const std::string& name, int vectors) const {
  llvm::IRBuilder<> b(module.getContext());
  llvm::Type *pointer = b.getPtrTy(), *integer = b.getInt64Ty();
  llvm::Function* f =
      gemm::begin_tile(module, b, name, {pointer, integer, pointer, pointer, integer, integer});
  Value *k = f->getArg(0), *row_bytes = f->getArg(1), *scores = f->getArg(3), *keys = f->getArg(4);
  // Where the last register begins: in front of the block, or behind it where these are the first keys.
  Value* last = maximum(b, b.CreateSub(keys, i64(b, kRows)), b.CreateNeg(f->getArg(5)));
  auto tile = [&](Value* row, int registers) {
    for (int v = 0; v < vectors; v += 2) {
      gemm::AmxProduct product{.registers = registers,
                               .vectors = std::min(2, vectors - v),
                               .step = step,
                               .row_bytes = row_bytes,
                               .b = float_at(b, f->getArg(2), int64_t{v} * kRows),
                               .b_width = width,
                               .k = {{depth, 1}},
                               .sum_width = width};
      for (int r = 0; r < registers; ++r) {
        Value* first = minimum(b, b.CreateAdd(row, i64(b, r * kRows)), last);
        product.a[r] = b.CreateGEP(b.getInt8Ty(), k, b.CreateMul(first, row_bytes));
        product.sums[r] =
            float_at(b, scores, b.CreateAdd(b.CreateMul(first, i64(b, width)), i64(b, int64_t{v} * kRows)));
      }
      gemm::emit_amx_product(b, product);
    }
  };
  Value* whole = b.CreateAnd(b.CreateAdd(keys, i64(b, kRows - 1)), i64(b, -2 * kRows));
  emit_for(b, i64(b, 0), whole, 2 * kRows, [&](Value* row) { tile(row, 2); });
  emit_if(b, b.CreateICmpSLT(whole, keys), [&] { tile(whole, 1); });
  b.CreateRetVoid();
  return f;
}

llvm::Function* AmxAttention::emit_maximum(llvm::Module& module, const std::string& name, int vectors) const {
  llvm::IRBuilder<> b(module.getContext());
  llvm::Function* f = gemm::begin_tile(module, b, name, {b.getPtrTy(), b.getInt64Ty(), b.getPtrTy()});
  auto at = [&](Value* base, int v) { return float_at(b, base, int64_t{v} * kRows); };
  std::vector<Value*> most;
  for (int v = 0; v < vectors; ++v) most.push_back(b.CreateAlignedLoad(floats(b), at(f->getArg(2), v), kAny));
  most = gemm::emit_fold(b, i64(b, 0), f->getArg(1), 1, most, [&](Value* key, std::vector<Value*> now) {
    Value* row = float_at(b, f->getArg(0), b.CreateMul(key, i64(b, width)));
    for (int v = 0; v < vectors; ++v) {
      Value*& m = now[v];
      m = Softmax::larger(b, b.CreateAlignedLoad(floats(b), at(row, v), kAny), m);
    }
    return now;
  });
  for (int v = 0; v < vectors; ++v) b.CreateAlignedStore(most[v], at(f->getArg(2), v), kAny);
  b.CreateRetVoid();
  return f;
}

llvm::Function* AmxAttention::emit_weights(llvm::Module& module, const std::string& name, int vectors,
                                           const Softmax& softmax) const {
  llvm::IRBuilder<> b(module.getContext());
  llvm::Type *pointer = b.getPtrTy(), *integer = b.getInt64Ty();
  llvm::Function* f = gemm::begin_tile(module, b, name, {pointer, integer, pointer, pointer});
  Value *scores = f->getArg(0), *keys = f->getArg(1), *statistics = f->getArg(2);
  Value* pairs = whole_pairs(b, keys, step);
  auto row_at = [&](Value* key, int v) {
    return float_at(b, scores, b.CreateAdd(b.CreateMul(key, i64(b, width)), i64(b, int64_t{v} * kRows)));
  };
  // Keys that fill up the last step weigh nothing.
  emit_for(b, keys, b.CreateMul(pairs, i64(b, 2)), 1, [&](Value* key) {
    for (int v = 0; v < vectors; ++v)
      b.CreateAlignedStore(llvm::ConstantFP::getInfinity(floats(b), /*Negative=*/true), row_at(key, v), kAny);
  });
  // One vector of queries after the other: the words of a square fill half of the registers.
  std::vector<Value*> sums;
  const std::vector<Value*> all_most = softmax.emit_most(b, vectors, statistics);
  for (int v = 0; v < vectors; ++v) {
    Value* most = all_most[v];
    const std::vector<Value*> zero{llvm::Constant::getNullValue(floats(b))};
    auto body = [&](Value* pair, std::vector<Value*> sum) {
      std::vector<Value*> square(kRows, zero[0]);
      for (int i = 0; i < step; ++i) {
        Value* key = b.CreateMul(b.CreateAdd(pair, i64(b, i)), i64(b, 2));
        auto weight = [&](Value* of) {
          return softmax.weight(b, b.CreateAlignedLoad(floats(b), row_at(of, v), kAny), most);
        };
        Value *even = weight(key), *odd = weight(b.CreateAdd(key, i64(b, 1)));
        sum[0] = b.CreateFAdd(sum[0], b.CreateFAdd(even, odd));
        square[i] = rounded_pairs(b, even, odd);
      }
      square = gemm::emit_transpose(b, std::move(square));
      for (int q = 0; q < kRows; ++q)
        b.CreateAlignedStore(
            square[q], float_at(b, float_at(b, f->getArg(3), (v * kRows + q) * weight_row()), pair), kAny);
      return sum;
    };
    sums.push_back(gemm::emit_fold(b, i64(b, 0), pairs, step, zero, body)[0]);
  }
  softmax.emit_end(b, statistics, all_most, sums);
  b.CreateRetVoid();
  return f;
}

llvm::Function* AmxAttention::emit_pack_values(llvm::Module& module, const std::string& name) const {
  llvm::IRBuilder<> b(module.getContext());
  llvm::Function* f = gemm::begin_tile(module, b, name, {b.getPtrTy(), b.getInt64Ty(), b.getPtrTy()});
  Value *values = f->getArg(0), *keys = f->getArg(1);
  Value* zeros = llvm::Constant::getNullValue(halves(b, kRows));
  auto load = [&](Value* key, int64_t column) -> Value* {
    Value* offset = b.CreateAdd(b.CreateMul(key, i64(b, value_row)), i64(b, column));
    Value* at = b.CreateGEP(b.getInt16Ty(), values, offset);
    const int64_t left = value_depth - column;
    if (left >= kRows) return b.CreateAlignedLoad(halves(b, kRows), at, llvm::Align(2));
    return b.CreateMaskedLoad(halves(b, kRows), at, llvm::Align(2), gemm::lane_mask(b, kRows, i64(b, left)),
                              zeros);
  };
  auto pack = [&](Value* pair, int count) {
    Value* key = b.CreateMul(pair, i64(b, 2));
    Value* to = float_at(b, f->getArg(2), b.CreateMul(pair, i64(b, columns())));
    for (int64_t column = 0; column < value_depth; column += kRows) {
      Value* even = count > 0 ? load(key, column) : zeros;
      Value* odd = count > 1 ? load(b.CreateAdd(key, i64(b, 1)), column) : zeros;
      b.CreateAlignedStore(words_of(b, even, odd), float_at(b, to, column), kAny);
    }
  };
  Value* whole = b.CreateLShr(keys, i64(b, 1));
  Value* some = b.CreateLShr(b.CreateAdd(keys, i64(b, 1)), i64(b, 1));
  emit_for(b, i64(b, 0), whole, 1, [&](Value* pair) { pack(pair, 2); });
  emit_if(b, b.CreateICmpSLT(whole, some), [&] { pack(whole, 1); });
  emit_for(b, some, whole_pairs(b, keys, step), 1, [&](Value* pair) { pack(pair, 0); });
  b.CreateRetVoid();
  return f;
}

llvm::Function* AmxAttention::emit_values(llvm::Module& module, const std::string& name, int vectors,
                                          bool first) const {
  llvm::IRBuilder<> b(module.getContext());
  llvm::Type *pointer = b.getPtrTy(), *integer = b.getInt64Ty();
  llvm::Function* f = gemm::begin_tile(module, b, name, {pointer, pointer, integer, pointer, pointer});
  Value* totals = f->getArg(4);
  if (!first) {
    emit_for(b, i64(b, 0), i64(b, int64_t{vectors} * kRows), 1, [&](Value* query) {
      Value* factor = b.CreateVectorSplat(
          kRows, b.CreateAlignedLoad(b.getFloatTy(), float_at(b, f->getArg(3), query), kAny));
      Value* row = float_at(b, totals, b.CreateMul(query, i64(b, columns())));
      for (int64_t column = 0; column < columns(); column += kRows) {
        Value* at = float_at(b, row, column);
        b.CreateAlignedStore(b.CreateFMul(b.CreateAlignedLoad(floats(b), at, kAny), factor), at, kAny);
      }
    });
  }
  Value* pairs = whole_pairs(b, f->getArg(2), step);
  for (int64_t column = 0; column < columns(); column += 2 * kRows)
    for (int v = 0; v < vectors; v += 2) {
      gemm::AmxProduct product{.registers = std::min(2, vectors - v),
                               .vectors = columns() - column > kRows ? 2 : 1,
                               .step = step,
                               .row_bytes = i64(b, weight_row() * 4),
                               .b = float_at(b, f->getArg(1), column),
                               .b_width = columns(),
                               .k = {{1, 1}},
                               .words = pairs,
                               .sum_width = columns(),
                               .adds = b.getInt1(!first)};
      for (int r = 0; r < product.registers; ++r) {
        product.a[r] = float_at(b, f->getArg(0), (v + r) * kRows * weight_row());
        product.sums[r] = float_at(b, totals, (v + r) * kRows * columns() + column);
      }
      gemm::emit_amx_product(b, product);
    }
  b.CreateRetVoid();
  return f;
}

}  // namespace bolt::codegen::cpu::attention

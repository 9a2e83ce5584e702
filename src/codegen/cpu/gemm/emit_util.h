// codegen/cpu/gemm/emit_util.h
// small pieces of IR that every contraction emitter needs: loops, addresses, masks, row copies
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <vector>

#include "support/dtype.h"

namespace bolt::codegen::cpu::gemm {

/// for (i = low; i < high; i += step) body(i). The body may make blocks of its own.
void emit_for(llvm::IRBuilder<>& b, llvm::Value* low, llvm::Value* high, int64_t step,
              const std::function<void(llvm::Value*)>& body);

/// A loop whose values each turn makes anew from those of the turn before; returns the last ones.
std::vector<llvm::Value*> emit_fold(
    llvm::IRBuilder<>& b, llvm::Value* low, llvm::Value* high, int64_t step, std::vector<llvm::Value*> values,
    const std::function<std::vector<llvm::Value*>(llvm::Value*, std::vector<llvm::Value*>)>& body);

/// if (condition) then() else otherwise().
void emit_if(llvm::IRBuilder<>& b, llvm::Value* condition, const std::function<void()>& then,
             const std::function<void()>& otherwise = nullptr);

/// base + elements floats.
llvm::Value* float_at(llvm::IRBuilder<>& b, llvm::Value* base, llvm::Value* elements);
llvm::Value* float_at(llvm::IRBuilder<>& b, llvm::Value* base, int64_t elements);

/// base + elements numbers of this type.
llvm::Value* number_at(llvm::IRBuilder<>& b, DType dtype, llvm::Value* base, llvm::Value* elements);

/// `lanes` numbers of packed weights as they lie in memory, and the same as float32.
llvm::FixedVectorType* vector_of(llvm::IRBuilder<>& b, DType dtype, int lanes);
llvm::Value* emit_widened(llvm::IRBuilder<>& b, llvm::Value* numbers, DType dtype);
/// Makes float32 of `count` halves, a multiple of `lanes`.
void emit_widened_copy(llvm::IRBuilder<>& b, DType dtype, int lanes, llvm::Value* to, llvm::Value* from,
                       llvm::Value* count);

/// Lanes below `count`.
llvm::Value* lane_mask(llvm::IRBuilder<>& b, int lanes, llvm::Value* count);

/// buffers[index] as a pointer.
llvm::Value* load_buffer(llvm::IRBuilder<>& b, llvm::Value* buffers, int index);

/// Copies or zeroes `count` floats; `from` null: zeros.
void emit_copy(llvm::IRBuilder<>& b, int lanes, llvm::Value* to, llvm::Value* from, llvm::Value* count);

/// Room for so many floats on the stack of the function that `b` is in the entry block of.
llvm::Value* reserve_floats(llvm::IRBuilder<>& b, int64_t count);

/// An i64 expression's shorthands: constants fold on the way.
inline llvm::ConstantInt* i64(llvm::IRBuilder<>& b, int64_t v) {
  return b.getInt64(static_cast<uint64_t>(v));
}
llvm::Value* minimum(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y);
llvm::Value* maximum(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y);

}  // namespace bolt::codegen::cpu::gemm

// src/codegen/cpu/gemm/epilogue.h
// finished sums of a tile -> whatever the fused kernel does with them, stores included
//
// The tile hands over one vector of sums at a time with its place. Short epilogues (a bias, a relu) are
// emitted for each register of the tile; long ones (gelu) once, in a loop over the rows, with the sums
// passing through a buffer in the L1 cache: a tile has up to 28 registers, and 28 copies of an erf would take
// longer to compile than to run.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <vector>

namespace bolt::codegen::cpu::gemm {

/// Where a vector of sums belongs: columns [col, col + lanes) of `row`. Rows count through all batch items
/// and images.
struct EpilogueSite {
  llvm::Value* buffers;         ///< the kernel's `void* const*`
  llvm::Value* syms;            ///< the kernel's `const int64_t*`
  llvm::Value* row;             ///< i64
  llvm::Value* col;             ///< i64
  llvm::Value* mask = nullptr;  ///< vector of i1; null: every lane is a column
};

struct Epilogue {
  /// Instructions a vector, roughly: decides between registers and the loop.
  int cost = 1;
  std::function<void(llvm::IRBuilder<>& b, llvm::Value* sums, const EpilogueSite& site)> emit;
};

/// Most instructions of all of a tile's epilogues together that are emitted unrolled.
constexpr int kMaxUnrolledEpilogue = 160;

/// Emits `epilogue` for sums[row * vectors + vector]. `site.col` is the column of vector 0; `columns_left`
/// (i64, null: enough) is how many columns from there on exist.
void emit_epilogue(llvm::IRBuilder<>& b, const Epilogue& epilogue, const std::vector<llvm::Value*>& sums,
                   int vectors, EpilogueSite site, llvm::Value* columns_left);

}  // namespace bolt::codegen::cpu::gemm

// codegen/cpu/gemm/amx_tile.h
// tile of matrix registers (up to 32 rows x 32 columns, loop nest over K) + epilogue -> an internal function
//
// AMX has eight registers of 16 rows of 64 bytes. One instruction multiplies a register of A (16 rows of 16
// words of K) by one of B (16 words of K, of 16 columns each) onto one of float32 sums. The words are the
// pairs of kernels.h, and a packed panel of 32 columns lies as B's registers want it, so that tiles of
// vectors and of matrix registers read the same weights:
//
//              B0      B1               each is loaded once a step and used twice,
//        A0   sums0   sums1             which is as many loads as the multiplications hide
//        A1   sums2   sums3
//
// How many rows and words the registers have is state, and to change it takes as long as a dozen
// multiplications. It is set once a call of the kernel, for registers of A and sums to min(16, rows of the
// matrix) rows. A rest of rows is therefore multiplied together with rows in front of it, whose sums are
// dropped: the last register of rows ends where the matrix does.
//
// The sums go through a block on the stack to the epilogue, which runs over the rows that exist. K is not cut
// into blocks: results are rounded to less than what a chain of float32 additions loses.
#pragma once

#include <llvm/IR/Module.h>

#include <string>
#include <vector>

#include "codegen/cpu/gemm/epilogue.h"
#include "codegen/cpu/gemm/tile.h"
#include "codegen/cpu/gemm/tile_function.h"

namespace bolt::codegen::cpu::gemm {

/// Everything about a tile that is known when code is emitted.
struct AmxShape {
  int registers = 2;       ///< of rows: 1 or 2
  int vectors = 2;         ///< registers of columns: 1 or 2
  int64_t row_stride = 0;  ///< words between rows of A
  /// Words from the rows of the first register to those of the second, which then have results right behind
  /// those of the first and are all there (a convolution's next row of pixels). 0: the rows follow each
  /// other.
  int64_t second = 0;
  std::vector<KLevel> k;  ///< loop nest over K in words; the last one's follow each other
  int step = 16;          ///< words of K in a register: divides the last loop of the nest
  /// K, of a nest of one loop, comes in blocks, each in a call of its own; sums wait in memory in between.
  bool blocks = false;
};

/// Sets the registers up for tiles in a matrix, or an image's row, of so many rows (i64), and returns the
/// height that registers have then. To be released at the end.
llvm::Value* emit_amx_begin(llvm::IRBuilder<>& b, llvm::Value* rows, int step);
void emit_amx_end(llvm::IRBuilder<>& b);

/// A tile function that takes two arguments more: how many rows of the matrix there are from the tile's first
/// on, and how many a register has. Functions of one register are for at most 16 rows that are left, those of
/// two for more. With `blocks` there are three behind these: where the sums of the tile's rows are kept (with
/// 16 rows in front, where there is one register), the first word of K, and how many.
llvm::Function* emit_amx_tile_function(llvm::Module& module, const std::string& name, const AmxShape& shape,
                                       const Epilogue& epilogue, bool masked);

/// The multiplications of a tile, once it is known where everything lies.
struct AmxProduct {
  int registers = 2, vectors = 2, step = 16;
  llvm::Value* a[2] = {};            ///< where the rows of each register begin
  llvm::Value* row_bytes = nullptr;  ///< i64, between rows of A
  llvm::Value* b = nullptr;          ///< the first of `step` rows of words
  int64_t b_width = 32;              ///< words between them
  std::vector<KLevel> k;             ///< as in AmxShape
  llvm::Value* words = nullptr;      ///< i64, of a nest of one loop where only the run knows its count
  llvm::Value* sums[2] = {};         ///< where the sums of each register's rows go
  int64_t sum_width = 32;            ///< floats between rows of sums
  llvm::Value* adds = nullptr;       ///< to the sums that lie there
};
void emit_amx_product(llvm::IRBuilder<>& b, const AmxProduct& product);

}  // namespace bolt::codegen::cpu::gemm

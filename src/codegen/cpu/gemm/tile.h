// codegen/cpu/gemm/tile.h
// register tile (rows x vectors, loop nest over K) -> LLVM IR that leaves the products in registers
//
// A tile is `rows` rows of A against `vectors` vectors of B: each step of K loads the B vectors once,
// broadcasts one number of each row of A and does rows x vectors fused multiply-adds. Two facts keep
// the inner loop at the machine's peak with almost no address arithmetic:
//   - the distance of the rows in A is a constant of the kernel, so that each row is a displacement of
//     one pointer (a convolution's rows are just other displacements: see emit_conv.h);
//   - B is packed so that the steps of K follow each other in memory whatever the nest over K is.
//
//          B panel:  b(k, 0..V)   -> one vector register each
//   A row r: a(k, r) -> broadcast -> acc[r][0..V] += a * b
//
// All of K is summed before the tile is left, so that an epilogue can always work on finished numbers. A long
// K is summed in blocks, for the sake of its rounding; the totals of the blocks wait on the stack. It does
// not decide sizes (schedule.h) nor what happens to the sums (epilogue.h).
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <cstdint>
#include <vector>

#include "support/dtype.h"

namespace bolt::codegen::cpu::gemm {

/// One loop of the nest over K, outermost first. A moves by `a_step` elements a step; B, whose steps are
/// consecutive over the whole nest when packed, moves by `b_step` in the innermost loop.
struct KLevel {
  int64_t count = 1;
  int64_t a_step = 1;
};

/// Everything about a tile that is known when code is emitted.
struct TileShape {
  int vectors = 1;                   ///< vectors of B, each `lanes` wide
  int lanes = 16;                    ///< floats in a vector
  std::vector<int64_t> row_offsets;  ///< element offset in A of each row of the tile
  std::vector<KLevel> k;             ///< loop nest over K
  int64_t b_step = 0;                ///< elements between two steps of K in B
  int prefetch = 0;                  ///< bytes B is fetched ahead; 0: not
  bool pairs = false;                ///< words of two bfloat16 (kernels.h)
  DType b = DType::F32;              ///< halves are made float32 on the way; A is float32
  int last_lanes = 0;                ///< columns that exist in the last vector of B; 0: all of them

  int rows() const { return static_cast<int>(row_offsets.size()); }
};

/// Sums over K for every (row, vector) of the tile, row-major. `a` points at the first element of the
/// tile's row with offset 0, `b` at the first vector of the panel. `steps`: how many steps a nest of one loop
/// takes, at least one, where only the run knows (the shape's count is then not looked at, and not cut).
std::vector<llvm::Value*> emit_tile_product(llvm::IRBuilder<>& b, const TileShape& shape, llvm::Value* a,
                                            llvm::Value* b_panel, llvm::Value* steps = nullptr);

}  // namespace bolt::codegen::cpu::gemm

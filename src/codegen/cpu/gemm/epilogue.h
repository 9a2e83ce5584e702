// codegen/cpu/gemm/epilogue.h
// finished sums of a tile -> whatever the fused kernel does with them, stores included
//
// The tile hands over one vector of sums at a time. Short epilogues (a bias, a relu) are emitted for each
// register of the tile; long ones (gelu) once, in a loop over the rows, with the sums passing through a
// buffer in the L1 cache: a tile has up to 28 registers, and 28 copies of an erf would take longer to compile
// than to run.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <memory>
#include <vector>

namespace bolt::codegen::cpu::gemm {

/// Where a tile lies. Rows count through all batch items and images.
struct TileSite {
  llvm::Value* buffers;       ///< the kernel's `void* const*`
  llvm::Value* syms;          ///< the kernel's `const int64_t*`
  llvm::Value* row;           ///< i64, the first
  llvm::Value* col;           ///< i64, the first
  llvm::Value* columns_left;  ///< i64, how many columns exist from `col` on; null: enough
};

/// The epilogue of one tile, while its code is emitted.
class TileEpilogue {
 public:
  virtual ~TileEpilogue() = default;
  /// Finishes a vector of sums: its row (i64, counted from the tile's first; often a constant) and the number
  /// of its vector of columns.
  virtual void finish(llvm::Value* sums, llvm::Value* row, int vector) = 0;
};

struct Epilogue {
  /// Instructions a vector, roughly: decides between registers and the loop.
  int cost = 1;
  /// May emit what the whole tile has in common where `b` stands. Everything is to be finished before
  /// anything else is emitted.
  std::function<std::unique_ptr<TileEpilogue>(llvm::IRBuilder<>& b, int lanes, const TileSite& site)> begin;
};

/// Most instructions of all of a tile's epilogues together that are emitted unrolled.
constexpr int kMaxUnrolledEpilogue = 160;

/// Emits `epilogue` for sums[row * vectors + vector].
void emit_epilogue(llvm::IRBuilder<>& b, const Epilogue& epilogue, const std::vector<llvm::Value*>& sums,
                   int vectors, const TileSite& site);

/// Emits `epilogue` for sums in memory: `rows` (i64) rows of `vectors` vectors of `lanes` each.
void emit_epilogue_of_memory(llvm::IRBuilder<>& b, const Epilogue& epilogue, llvm::Value* sums,
                             llvm::Value* rows, int vectors, int lanes, const TileSite& site);

}  // namespace bolt::codegen::cpu::gemm

// codegen/cpu/gemm/tile_function.h
// tile shape + epilogue -> an internal function that computes and finishes one tile
//
//   void tile(const float* a, const float* b, void* const* buffers, const int64_t* syms,
//             int64_t row, int64_t col, int64_t columns_left)
//
// A function of its own, never inlined, so that its registers are allocated for the inner loop alone and a
// kernel holds its code once however many loops call it.
#pragma once

#include <llvm/IR/Module.h>

#include <string>

#include "codegen/cpu/gemm/epilogue.h"
#include "codegen/cpu/gemm/tile.h"

namespace bolt::codegen::cpu::gemm {

/// Arguments of every call of a kernel's tile functions that do not change from tile to tile.
struct KernelArgs {
  llvm::Value* buffers;
  llvm::Value* syms;
  llvm::Value* begin;
  llvm::Value* end;
};

/// Makes the kernel's function with the ABI of codegen/cpu/jit.h and leaves `b` in its entry block.
KernelArgs begin_kernel(llvm::Module& module, llvm::IRBuilder<>& b, const std::string& name);

/// Makes an internal function that is called for each tile, and leaves `b` in its entry block.
llvm::Function* begin_tile(llvm::Module& module, llvm::IRBuilder<>& b, const std::string& name,
                           llvm::ArrayRef<llvm::Type*> arguments);

/// `masked`: the last panel has columns that do not exist.
llvm::Function* emit_tile_function(llvm::Module& module, const std::string& name, const TileShape& shape,
                                   const Epilogue& epilogue, bool masked);

/// Where a tile lies.
struct TilePlace {
  llvm::Value* a;
  llvm::Value* b;
  llvm::Value* row;
  llvm::Value* col;
  llvm::Value* columns_left;
  std::vector<llvm::Value*> more;  ///< what tiles of matrix registers take beside (amx_tile.h)
};
void call_tile(llvm::IRBuilder<>& b, llvm::Function* tile, const KernelArgs& args, const TilePlace& place);

}  // namespace bolt::codegen::cpu::gemm

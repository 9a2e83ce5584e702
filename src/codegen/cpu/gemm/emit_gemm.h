// codegen/cpu/gemm/emit_gemm.h
// GemmKernel + TileSchedule + epilogue -> a kernel function in an LLVM module
//
// One work item is a task: `row_block` tiles of rows by `col_block` panels of one batch item, panels fastest,
// then rows, then batch. A constant m is cut into tiles of two heights; for a symbolic m the rows that are
// left over are done by tiles of 8, 4, 2 and 1 rows. Tiles of matrix registers take any number of rows.
// Operands that the tile cannot read as they are (transposed, or columns that do not fill the last panel) are
// first copied into the task's own scratch on the stack.
#pragma once

#include <llvm/IR/Module.h>

#include "codegen/cpu/gemm/epilogue.h"
#include "codegen/cpu/gemm/kernels.h"
#include "codegen/cpu/gemm/schedule.h"

namespace bolt::codegen::cpu::gemm {

/// The value of a size in a kernel, from its `syms`.
using SizeEmitter = std::function<llvm::Value*(llvm::IRBuilder<>& b, llvm::Value* syms, Sym size)>;

void emit_gemm(llvm::Module& module, const GemmKernel& kernel, const TileSchedule& schedule,
               const Epilogue& epilogue, const SizeEmitter& size);

}  // namespace bolt::codegen::cpu::gemm

// codegen/cpu/gemm/pack_emit.h
// one panel of a B that is not constant -> code that copies it into the order of pack.h
//
// Rows that lie whole in memory are copied vector by vector; a transposed B (attention's keys) goes through
// square transposes of `lanes` x `lanes` numbers in registers.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <cstdint>
#include <vector>

namespace bolt::codegen::cpu::gemm {

struct PanelSource {
  llvm::Value* first;  ///< element (0, first column of the panel)
  int64_t row_stride;
  int64_t col_stride;
};

/// A square of as many vectors as each has lanes, in registers: lane i of vector j becomes lane j of vector
/// i.
std::vector<llvm::Value*> emit_transpose(llvm::IRBuilder<>& b, std::vector<llvm::Value*> rows);

/// `columns_left` null: all columns of the panel exist; else the others become zeros.
void emit_pack_panel(llvm::IRBuilder<>& b, const PanelSource& from, int64_t k, int lanes, int vectors,
                     llvm::Value* columns_left, llvm::Value* to);

}  // namespace bolt::codegen::cpu::gemm

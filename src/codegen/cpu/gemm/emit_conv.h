// codegen/cpu/gemm/emit_conv.h
// ConvKernel + TileSchedule + epilogue -> a kernel function: convolution as a matrix product that is never
// written out
//
// Rows of the product are output pixels, K runs over (kh, kw, ci). In a channels-last image the pixels of one
// output row are a constant distance apart for every tap, so a tile of pixels is the same register tile as a
// matrix's:
//
//   tile of 4 pixels, tap (kh, kw):   A row r  =  x[ih0 + kh*d, (ow0 + r)*s + kw*d, 0..C)
//
// and the nest over K moves one pointer. Short rows (7 x 7 images) put several output rows into one tile.
//
// Padding, and inputs that are not channels-last: a task first copies its strip of input rows, zeros
// added, into scratch of its own on the stack (reads_in_place in schedule.h says when not). One work item is
// a strip of `row_block` bands of rows of one image by `col_block` panels; panels of all groups are numbered
// in one run, panels fastest.
#pragma once

#include "codegen/cpu/gemm/emit_gemm.h"

namespace bolt::codegen::cpu::gemm {

void emit_conv(llvm::Module& module, const ConvKernel& kernel, const TileSchedule& schedule,
               const Epilogue& epilogue, const SizeEmitter& size);

}  // namespace bolt::codegen::cpu::gemm

// codegen/cpu/gemm/loops_epilogue.h
// a Loops kernel over rows and columns, with `acc` for the tile's sum -> an Epilogue
//
//   kernel @linear_gelu (in %b0: f32, in %b1: f32, out %b2: f32) space [197 d0, 768 d1] {
//     %0 = acc f32
//     %1 = load b0[d1]                  bias
//     %2 = add %0, %1
//     %3 = load b1[768*d0 + d1]         residual
//     %4 = add %2, %3
//     store b2[768*d0 + d1] = %4
//   }
//
// The last dimension is the column; the others together number the rows, in order (image, row and column of a
// convolution's output). An index whose row dimensions lie densely is a multiple of the row's number; only
// others are taken apart by division. Vectors run along columns: loads that do not depend on the column are
// done once and spread, those with a step of one are vector loads, the rest gathers. Reductions and stores
// that write the same place for every column are not epilogues: Unsupported.
#pragma once

#include "codegen/cpu/gemm/emit_gemm.h"
#include "loops/kernel.h"

namespace bolt::codegen::cpu::gemm {

/// `kernel` and `target` must outlive the Epilogue. The epilogue's buffers are the contraction's from
/// `first_buffer` on.
Epilogue make_epilogue(const loops::Kernel& kernel, int first_buffer, const Target& target);

/// Sizes as the kernel's symbols pass them at run time; `symbols` in the order of the ABI.
SizeEmitter make_size_emitter(const Syms& symbols);

}  // namespace bolt::codegen::cpu::gemm

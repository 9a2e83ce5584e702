// codegen/cpu/gemm/emit_depthwise.h
// depthwise ConvKernel + epilogue -> a kernel function, vectors over channels
//
// A depthwise convolution has no matrix product in it: each output is kh x kw multiply-adds, so loads are
// what it costs. One tile is up to eight neighbouring output columns of one vector of channels; for each row
// of the kernel the weights are loaded once and each input column once, and feeds every output it touches:
//
//   outputs   o0 o1 o2 o3          x[ow0 - 1] -> o0
//   inputs  x  x  x  x  x  x       x[ow0]     -> o0 o1
//                                  x[ow0 + 1] -> o0 o1 o2   ...
//
// Padding costs nothing inside: rows of the kernel outside the image are left out of the loop, and tiles at
// the left and right edge are functions of their own without the taps outside. One work item is an output row
// of one image.
#pragma once

#include "codegen/cpu/gemm/emit_gemm.h"

namespace bolt::codegen::cpu::gemm {

/// Throws Unsupported for what is not done: input that is not channels-last, and padding so wide that
/// the edges take too many different tiles.
void check_depthwise(const ConvKernel& kernel);

/// Of a kernel that passes check_depthwise.
void emit_depthwise(llvm::Module& module, const ConvKernel& kernel, int lanes, const Epilogue& epilogue);

}  // namespace bolt::codegen::cpu::gemm

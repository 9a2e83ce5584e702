// codegen/cpu/gemm/pack.h
// constant weights -> panels in the order the tiles read them; done once, when weights are folded
//
// A panel holds `width` columns of B for all of K: element (k, j) at k * width + j. Panel p starts at
// p * K * width and columns beyond N are zeros, so that tiles never need a mask to load B:
//
//     B = [ k rows x N ]   ->   | panel 0: k x width | panel 1: k x width | ... |
//
// Of bfloat16 an element is a word: numbers 2k and 2k + 1 of a column (kernels.h). `b` and `w` are then the
// bfloat16 numbers, their strides count these.
//
// A convolution's K runs over (kh, kw, ci) in that order, and each group has its own run of panels. Depthwise
// weights are [kh, kw, channels], padded to whole vectors.
#pragma once

#include <cstdint>

#include "codegen/cpu/gemm/kernels.h"
#include "support/export.h"

namespace bolt::codegen::cpu::gemm {

inline int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Numbers (or words of pairs) that the packed form of a k x n matrix takes.
BOLT_API int64_t packed_size(int64_t k, int64_t n, int64_t width);
/// `b` has element strides (row_stride, col_stride): a transposed weight needs no copy before.
BOLT_API void pack_matrix(const float* b, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride,
                          int64_t width, float* packed);

/// Halves that stay halves.
BOLT_API void pack_halves(const uint16_t* b, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride,
                          int64_t width, uint16_t* packed);
BOLT_API void pack_pairs(const uint16_t* b, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride,
                         int64_t width, float* packed);

/// Packs weights [out_channels, in_channels / groups, kh, kw] (strides in elements) of a convolution that is
/// not depthwise.
BOLT_API int64_t packed_size(const ConvKernel& conv, int64_t width);
BOLT_API void pack_conv(const ConvKernel& conv, const float* w, const int64_t (&strides)[4], int64_t width,
                        float* packed);
BOLT_API void pack_conv_halves(const ConvKernel& conv, const uint16_t* w, const int64_t (&strides)[4],
                               int64_t width, uint16_t* packed);
BOLT_API void pack_conv_pairs(const ConvKernel& conv, const uint16_t* w, const int64_t (&strides)[4],
                              int64_t width, float* packed);

/// Packs depthwise weights [channels, 1, kh, kw].
BOLT_API int64_t packed_depthwise_size(const ConvKernel& conv, int64_t lanes);
BOLT_API void pack_depthwise_halves(const ConvKernel& conv, const uint16_t* w, const int64_t (&strides)[4],
                                    int64_t lanes, float* packed);
BOLT_API void pack_depthwise(const ConvKernel& conv, const float* w, const int64_t (&strides)[4],
                             int64_t lanes, float* packed);

}  // namespace bolt::codegen::cpu::gemm

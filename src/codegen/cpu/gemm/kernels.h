// codegen/cpu/gemm/kernels.h
// What a contraction kernel computes, as data: matrix products and convolutions with an epilogue.
//
//   C[b, m, n]            = epilogue( sum_k A[b, m, k] * B[b, k, n] )
//   C[img, oh, ow, co]    = epilogue( sum_{kh, kw, ci} X[img, oh*s + kh*d - p, ow*s + kw*d - p, ci] * W[kh,
//   kw, ci, co] )
//
// The sums are float32. How they are computed (tile sizes, blocks, packing on the way) is the TileSchedule's
// (schedule.h); both together give code (emit_gemm.h, emit_conv.h, emit_depthwise.h). The epilogue sees each
// sum with its row and column, loads and stores what it likes and so also decides where results go: rows of a
// convolution are output pixels, numbered (img * OH + oh) * OW + ow; columns are output channels.
//
// With `pairs` A and B are bfloat16: each 32-bit word holds two neighbours of K, and everything that counts
// numbers along K (k, strides, input channels) counts words. One instruction multiplies the pairs of a vector
// of words and adds both products, so that words are loaded, copied and padded like float32 numbers. Sums and
// epilogue are float32 as ever.
//
// Packed weights may be halves where A is float32: they take half the memory, which is what one row against a
// large layer waits for, and are made float32 on the way (TileSchedule::widened).
//
// The ABI is that of every kernel (codegen/cpu/jit.h). The contraction's own operands are buffers[a],
// buffers[b].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/dtype.h"
#include "support/export.h"
#include "support/sym.h"

namespace bolt::codegen::cpu::gemm {

/// One matrix of a product. Strides in elements; `packed`: B in the panels of pack.h, strides unused.
struct Matrix {
  int buffer = 0;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
  bool packed = false;
};

/// One batch dimension, outermost first, and how far each operand moves along it.
struct BatchDim {
  int64_t size = 1;
  int64_t a_stride = 0;
  int64_t b_stride = 0;
};

struct GemmKernel {
  std::string name;
  std::vector<BatchDim> batch;
  Sym m;  ///< constant, or symbol of the kernel
  int64_t n = 0;
  int64_t k = 0;
  Matrix a;
  Matrix b;
  bool pairs = false;
  DType weights = DType::F32;  ///< of B, where it is packed and not pairs
};

/// Convolution of images [N, H, W, C]; two spatial dimensions (a one-dimensional one has height 1).
struct ConvKernel {
  std::string name;
  Sym images = 1;
  int64_t height = 0, width = 0;  ///< of the input
  int64_t in_channels = 0;        ///< over all groups
  int64_t out_channels = 0;       ///< over all groups
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_h = 0, pad_w = 0;          ///< zeros in front
  int64_t pad_end_h = 0, pad_end_w = 0;  ///< zeros behind
  int64_t dilation_h = 1, dilation_w = 1;
  int64_t groups = 1;
  int x = 0;  ///< buffer of the input
  int w = 1;  ///< buffer of the packed weights
  /// Element strides of the input (image, row, column, channel). A channel stride of 1 is read in place.
  int64_t x_image = 0, x_row = 0, x_col = 0, x_channel = 1;
  bool pairs = false;
  DType weights = DType::F32;
  /// Depthwise: of the input, which is made float32 on the way; halves have no pairs there. Its weights are
  /// packed as float32.
  DType pixels = DType::F32;

  int64_t padded_height() const { return pad_h + height + pad_end_h; }
  int64_t padded_width() const { return pad_w + width + pad_end_w; }
  bool padded() const { return pad_h || pad_w || pad_end_h || pad_end_w; }
  int64_t out_height() const { return (padded_height() - dilation_h * (kernel_h - 1) - 1) / stride_h + 1; }
  int64_t out_width() const { return (padded_width() - dilation_w * (kernel_w - 1) - 1) / stride_w + 1; }
  bool depthwise() const {
    return !pairs && groups == in_channels && out_channels == in_channels && groups > 1;
  }
  /// As many zeros at the beginning of a side as at its end.
  void set_padding(int64_t h, int64_t w);
  /// Strides of a contiguous NHWC input.
  void set_channels_last();
};

BOLT_API std::string print(const GemmKernel& kernel);
BOLT_API std::string print(const ConvKernel& kernel);
/// Throw Error(Internal) on a description that no schedule can serve.
BOLT_API void verify(const GemmKernel& kernel);
BOLT_API void verify(const ConvKernel& kernel);

}  // namespace bolt::codegen::cpu::gemm

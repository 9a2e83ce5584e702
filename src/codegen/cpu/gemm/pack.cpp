// src/codegen/cpu/gemm/pack.cpp
// weights -> panels; see pack.h for the layout
#include "codegen/cpu/gemm/pack.h"

#include <algorithm>

namespace bolt::codegen::cpu::gemm {

int64_t packed_size(int64_t k, int64_t n, int64_t width) { return k * round_up(n, width); }

void pack_matrix(const float* b, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride, int64_t width,
                 float* packed) {
  for (int64_t column = 0; column < n; column += width) {
    const int64_t used = std::min(width, n - column);
    for (int64_t row = 0; row < k; ++row, packed += width) {
      const float* from = b + row * row_stride + column * col_stride;
      for (int64_t j = 0; j < used; ++j) packed[j] = from[j * col_stride];
      std::fill(packed + used, packed + width, 0.0f);
    }
  }
}

int64_t packed_size(const ConvKernel& conv, int64_t width) {
  const int64_t k = conv.kernel_h * conv.kernel_w * (conv.in_channels / conv.groups);
  return conv.groups * packed_size(k, conv.out_channels / conv.groups, width);
}

void pack_conv(const ConvKernel& conv, const float* w, const int64_t (&strides)[4], int64_t width,
               float* packed) {
  const int64_t in = conv.in_channels / conv.groups;
  const int64_t out = conv.out_channels / conv.groups;
  for (int64_t group = 0; group < conv.groups; ++group) {
    for (int64_t column = 0; column < out; column += width) {
      const int64_t used = std::min(width, out - column);
      for (int64_t tap = 0; tap < conv.kernel_h * conv.kernel_w; ++tap) {
        const float* from = w + (group * out + column) * strides[0] + tap / conv.kernel_w * strides[2] +
                            tap % conv.kernel_w * strides[3];
        for (int64_t channel = 0; channel < in; ++channel, packed += width) {
          for (int64_t j = 0; j < used; ++j) packed[j] = from[j * strides[0] + channel * strides[1]];
          std::fill(packed + used, packed + width, 0.0f);
        }
      }
    }
  }
}

int64_t packed_depthwise_size(const ConvKernel& conv, int64_t lanes) {
  return conv.kernel_h * conv.kernel_w * round_up(conv.in_channels, lanes);
}

void pack_depthwise(const ConvKernel& conv, const float* w, const int64_t (&strides)[4], int64_t lanes,
                    float* packed) {
  const int64_t padded = round_up(conv.in_channels, lanes);
  for (int64_t kh = 0; kh < conv.kernel_h; ++kh) {
    for (int64_t kw = 0; kw < conv.kernel_w; ++kw, packed += padded) {
      for (int64_t channel = 0; channel < padded; ++channel) {
        packed[channel] =
            channel < conv.in_channels ? w[channel * strides[0] + kh * strides[2] + kw * strides[3]] : 0;
      }
    }
  }
}

}  // namespace bolt::codegen::cpu::gemm

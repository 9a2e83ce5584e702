// codegen/cpu/gemm/pack.cpp
// weights -> panels; see pack.h for the layout
#include "codegen/cpu/gemm/pack.h"

#include <algorithm>
#include <bit>

#include "support/half.h"

namespace bolt::codegen::cpu::gemm {
namespace {

/// Elements of panels where they lie in memory; pairs as the bits of a float.
template <class Number>
struct WeightElements {
  const Number* from;
  int64_t row_stride;
  WeightElements at(int64_t offset) const { return {from + offset, row_stride}; }
  Number get(int64_t row, int64_t offset) const { return from[row * row_stride + offset]; }
};
struct Pairs {
  const uint16_t* from;
  int64_t row_stride;
  Pairs at(int64_t offset) const { return {from + offset, row_stride}; }
  float get(int64_t row, int64_t offset) const {
    const uint16_t* first = from + 2 * row * row_stride + offset;
    return std::bit_cast<float>(first[0] | static_cast<uint32_t>(first[row_stride]) << 16);
  }
};

template <class Source, class Number>
Number* pack_rows(const Source& from, int64_t k, int64_t used, int64_t col_stride, int64_t width,
                  Number* packed) {
  for (int64_t row = 0; row < k; ++row, packed += width) {
    for (int64_t j = 0; j < used; ++j) packed[j] = from.get(row, j * col_stride);
    std::fill(packed + used, packed + width, Number{});
  }
  return packed;
}

template <class Source, class Number>
void pack_panels(const Source& b, int64_t k, int64_t n, int64_t col_stride, int64_t width, Number* packed) {
  for (int64_t column = 0; column < n; column += width)
    packed = pack_rows(b.at(column * col_stride), k, std::min(width, n - column), col_stride, width, packed);
}

template <class Source, class Number>
void pack_groups(const ConvKernel& conv, const Source& w, const int64_t (&strides)[4], int64_t width,
                 Number* packed) {
  const int64_t in = conv.in_channels / conv.groups;
  const int64_t out = conv.out_channels / conv.groups;
  for (int64_t group = 0; group < conv.groups; ++group)
    for (int64_t column = 0; column < out; column += width)
      for (int64_t tap = 0; tap < conv.kernel_h * conv.kernel_w; ++tap)
        packed = pack_rows(w.at((group * out + column) * strides[0] + tap / conv.kernel_w * strides[2] +
                                tap % conv.kernel_w * strides[3]),
                           in, std::min(width, out - column), strides[0], width, packed);
}

template <class Get>
void pack_taps(const ConvKernel& conv, const Get& get, const int64_t (&strides)[4], int64_t lanes,
               float* packed) {
  const int64_t padded = round_up(conv.in_channels, lanes);
  for (int64_t kh = 0; kh < conv.kernel_h; ++kh) {
    for (int64_t kw = 0; kw < conv.kernel_w; ++kw, packed += padded) {
      for (int64_t channel = 0; channel < padded; ++channel) {
        packed[channel] =
            channel < conv.in_channels ? get(channel * strides[0] + kh * strides[2] + kw * strides[3]) : 0;
      }
    }
  }
}

}  // namespace

int64_t packed_size(int64_t k, int64_t n, int64_t width) { return k * round_up(n, width); }

void pack_matrix(const float* b, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride, int64_t width,
                 float* packed) {
  pack_panels(WeightElements<float>{b, row_stride}, k, n, col_stride, width, packed);
}
void pack_halves(const uint16_t* b, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride,
                 int64_t width, uint16_t* packed) {
  pack_panels(WeightElements<uint16_t>{b, row_stride}, k, n, col_stride, width, packed);
}
void pack_pairs(const uint16_t* b, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride,
                int64_t width, float* packed) {
  pack_panels(Pairs{b, row_stride}, k, n, col_stride, width, packed);
}

int64_t packed_size(const ConvKernel& conv, int64_t width) {
  const int64_t k = conv.kernel_h * conv.kernel_w * (conv.in_channels / conv.groups);
  return conv.groups * packed_size(k, conv.out_channels / conv.groups, width);
}

void pack_conv(const ConvKernel& conv, const float* w, const int64_t (&strides)[4], int64_t width,
               float* packed) {
  pack_groups(conv, WeightElements<float>{w, strides[1]}, strides, width, packed);
}
void pack_conv_halves(const ConvKernel& conv, const uint16_t* w, const int64_t (&strides)[4], int64_t width,
                      uint16_t* packed) {
  pack_groups(conv, WeightElements<uint16_t>{w, strides[1]}, strides, width, packed);
}
void pack_conv_pairs(const ConvKernel& conv, const uint16_t* w, const int64_t (&strides)[4], int64_t width,
                     float* packed) {
  pack_groups(conv, Pairs{w, strides[1]}, strides, width, packed);
}

int64_t packed_depthwise_size(const ConvKernel& conv, int64_t lanes) {
  return conv.kernel_h * conv.kernel_w * round_up(conv.in_channels, lanes);
}

void pack_depthwise(const ConvKernel& conv, const float* w, const int64_t (&strides)[4], int64_t lanes,
                    float* packed) {
  pack_taps(conv, [&](int64_t at) { return w[at]; }, strides, lanes, packed);
}
void pack_depthwise_halves(const ConvKernel& conv, const uint16_t* w, const int64_t (&strides)[4],
                           int64_t lanes, float* packed) {
  pack_taps(
      conv,
      [&](int64_t at) { return conv.pixels == DType::BF16 ? bf16_to_float(w[at]) : f16_to_float(w[at]); },
      strides, lanes, packed);
}

}  // namespace bolt::codegen::cpu::gemm

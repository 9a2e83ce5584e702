// tests/gemm/conv_test.cpp
// convolution kernels against float64: strides, padding, dilation, groups, depthwise, layouts, three
// instruction sets
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "support/error.h"
#include "tests/gemm/harness.h"

namespace bolt::codegen::cpu::gemm::test {
namespace {

ConvKernel conv(int64_t images, int64_t height, int64_t width, int64_t in, int64_t out, int64_t kernel) {
  ConvKernel c;
  c.name = "conv";
  c.images = images;
  c.height = height;
  c.width = width;
  c.in_channels = in;
  c.out_channels = out;
  c.kernel_h = c.kernel_w = kernel;
  c.set_channels_last();
  return c;
}

ConvKernel padded(ConvKernel c, int64_t pad, int64_t stride = 1, int64_t dilation = 1) {
  c.set_padding(pad, pad);
  c.stride_h = c.stride_w = stride;
  c.dilation_h = c.dilation_w = dilation;
  return c;
}

ConvKernel grouped(ConvKernel c, int64_t groups) {
  c.groups = groups;
  return c;
}

double reference(const ConvKernel& c, const std::vector<float>& x, const std::vector<float>& w, int64_t image,
                 int64_t oy, int64_t ox, int64_t out) {
  const int64_t in = c.in_channels / c.groups;
  const int64_t first = out / (c.out_channels / c.groups) * in;
  double sum = 0;
  for (int64_t kh = 0; kh < c.kernel_h; ++kh) {
    for (int64_t kw = 0; kw < c.kernel_w; ++kw) {
      const int64_t y = oy * c.stride_h + kh * c.dilation_h - c.pad_h;
      const int64_t z = ox * c.stride_w + kw * c.dilation_w - c.pad_w;
      if (y < 0 || y >= c.height || z < 0 || z >= c.width) continue;
      for (int64_t i = 0; i < in; ++i) {
        sum += double{x[static_cast<size_t>(image * c.x_image + y * c.x_row + z * c.x_col +
                                            (first + i) * c.x_channel)]} *
               w[static_cast<size_t>(((out * in + i) * c.kernel_h + kh) * c.kernel_w + kw)];
      }
    }
  }
  return sum;
}

void check(const ConvKernel& c, Isa isa, SimpleEpilogue e = {}, int64_t ranges = 1,
           const TileSchedule* schedule = nullptr) {
  SCOPED_TRACE(print(c) + " isa " + std::to_string(static_cast<int>(isa)));
  const int64_t images = c.images.value();
  const int64_t k = c.kernel_h * c.kernel_w * c.in_channels / c.groups;
  const int64_t pixels = images * c.out_height() * c.out_width();
  const auto x = random_floats(images * c.height * c.width * c.in_channels, 1);
  const auto w = random_floats(c.out_channels * k, 2);
  const auto bias = random_floats(c.out_channels, 3);
  const auto residual = random_floats(pixels * c.out_channels, 4);
  std::vector<float> result(residual.size() + 2 * kGuard, kUntouched);

  Compiled compiled = compile_conv(c, e, isa, schedule);
  if (!compiled.module) return;
  std::vector<float> packed = pack(compiled, w.data(), weight_strides(c));
  void* buffers[] = {const_cast<float*>(x.data()), packed.data(), result.data() + kGuard,
                     const_cast<float*>(bias.data()), const_cast<float*>(residual.data())};
  const int64_t tasks = compiled.tasks();
  for (int64_t r = 0; r < ranges; ++r)
    compiled.run(buffers, nullptr, tasks * r / ranges, tasks * (r + 1) / ranges);

  double worst = 0;
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    for (int64_t out = 0; out < c.out_channels; ++out) {
      const double sum = reference(c, x, w, pixel / (c.out_height() * c.out_width()),
                                   pixel / c.out_width() % c.out_height(), pixel % c.out_width(), out);
      const size_t at = static_cast<size_t>(pixel * c.out_channels + out);
      const double expected = apply(e, sum, bias[static_cast<size_t>(out)], residual[at]);
      worst = std::max(worst, std::abs(result[kGuard + at] - expected));
    }
  }
  EXPECT_LE(worst, 2e-7 * static_cast<double>(k) + 2e-6) << print(compiled.schedule());
  for (size_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(result[i], kUntouched);
    EXPECT_EQ(result[result.size() - 1 - i], kUntouched);
  }
}

TEST(Conv, Pointwise) {
  for (Isa isa : kIsas) {
    check(conv(2, 7, 7, 24, 40, 1), isa, {true, true, true, false});
    check(padded(conv(1, 9, 9, 16, 33, 1), 0, 2), isa);
  }
}

TEST(Conv, KernelSizesAndPadding) {
  for (Isa isa : kIsas) {
    check(padded(conv(1, 14, 14, 17, 33, 3), 1), isa, {true, false, true, false});
    check(padded(conv(2, 7, 7, 8, 16, 3), 1), isa);
    check(padded(conv(1, 15, 15, 4, 20, 5), 2, 2), isa);
    check(conv(1, 6, 20, 5, 7, 3), isa);
    check(padded(conv(1, 13, 31, 6, 48, 3), 1, 1), isa, {false, true, false, true});
  }
}

TEST(Conv, Dilation) {
  for (Isa isa : kIsas) {
    check(padded(conv(1, 12, 12, 8, 16, 3), 2, 1, 2), isa);
    check(padded(conv(1, 13, 13, 6, 10, 3), 3, 2, 3), isa);
  }
}

TEST(Conv, Groups) {
  for (Isa isa : kIsas) {
    check(grouped(padded(conv(1, 8, 8, 12, 24, 3), 1), 3), isa, {true, false, false, false});
    check(grouped(padded(conv(1, 8, 8, 32, 64, 3), 1), 2), isa);
    check(grouped(conv(1, 5, 5, 8, 16, 1), 8), isa);
  }
}

TEST(Conv, ChannelsFirstInput) {
  for (Isa isa : kIsas) {
    ConvKernel c = padded(conv(2, 20, 22, 3, 32, 7), 3, 2);
    c.x_channel = c.height * c.width;
    c.x_col = 1;
    c.x_row = c.width;
    check(c, isa, {true, false, true, false});
    c.set_padding(0, 0);
    check(c, isa);
  }
}

TEST(Conv, UnequalSides) {
  ConvKernel c = conv(1, 9, 30, 10, 20, 1);
  c.kernel_h = 3;
  c.kernel_w = 5;
  c.stride_w = 2;
  c.set_padding(1, 2);
  for (Isa isa : kIsas) check(c, isa);
  c.pad_end_h = 3;
  c.pad_end_w = 0;
  for (Isa isa : kIsas) check(c, isa);
  ConvKernel depthwise = grouped(conv(2, 9, 11, 20, 20, 3), 20);
  depthwise.stride_h = depthwise.stride_w = 2;
  depthwise.pad_end_h = 1;
  depthwise.pad_end_w = 2;
  for (Isa isa : kIsas) check(depthwise, isa);
}

TEST(Conv, RangesOfWorkAddUp) {
  const ConvKernel c = padded(conv(2, 11, 11, 8, 70, 3), 1);
  TileSchedule s;
  s.rows = 6;
  s.vectors = 2;
  s.row_block = 3;
  s.col_block = 2;
  for (bool rows_inside : {false, true}) {
    s.rows_inside = rows_inside;
    for (Isa isa : kIsas) {
      s.lanes = lanes_of(isa);
      for (int64_t ranges : {1, 3, 7}) check(c, isa, {true, true, false, false}, ranges, &s);
    }
  }
}

TEST(Conv, SeveralOutputRowsInATile) {
  TileSchedule s;
  s.vectors = 2;
  for (int bands : {2, 3}) {
    s.bands = bands;
    s.rows = 5 * bands;
    s.row_block = 1;
    for (Isa isa : kIsas) {
      s.lanes = lanes_of(isa);
      check(padded(conv(2, 5, 5, 8, 32, 3), 1), isa, {}, 2, &s);
      check(padded(conv(1, 10, 10, 8, 32, 1), 0, 2), isa, {}, 1, &s);
    }
  }
}

TEST(Depthwise, SizesStridesEdges) {
  for (Isa isa : kIsas) {
    check(grouped(padded(conv(2, 7, 7, 48, 48, 3), 1), 48), isa, {true, false, true, false});
    check(grouped(padded(conv(1, 15, 15, 20, 20, 3), 1, 2), 20), isa);
    check(grouped(padded(conv(1, 33, 33, 16, 16, 5), 2), 16), isa, {true, true, false, true});
    check(grouped(padded(conv(1, 12, 12, 7, 7, 7), 3), 7), isa);
    check(grouped(padded(conv(1, 16, 16, 9, 9, 3), 2, 1, 2), 9), isa);
    check(grouped(conv(1, 6, 6, 33, 33, 3), 33), isa);
  }
}

TEST(Depthwise, RowsWithoutAnyTapInside) {
  for (Isa isa : kIsas)
    check(grouped(padded(conv(1, 2, 2, 16, 16, 3), 5, 1, 4), 16), isa, {true, false, false, false});
}

TEST(Depthwise, RangesOfWorkAddUp) {
  for (Isa isa : kIsas) check(grouped(padded(conv(2, 9, 9, 24, 24, 3), 1), 24), isa, {}, 5);
}

TEST(Conv, EmptyOutputIsRefused) {
  EXPECT_THROW(compile_conv(conv(1, 2, 2, 4, 4, 3), {}, Isa::Scalar), Error);
}

TEST(Conv, DescriptionPrints) {
  EXPECT_EQ(print(padded(conv(1, 56, 56, 64, 128, 3), 1, 2)),
            "conv @conv [1, 56 x 56, 64] -> [28 x 28, 128] kernel 3 x 3 stride 2 x 2 pad 1 x 1 dilation 1 x "
            "1 groups 1 "
            "x=b0[200704, 3584, 64, 1] w=b1");
}

}  // namespace
}  // namespace bolt::codegen::cpu::gemm::test

// codegen/cpu/gemm/kernels.cpp
// contraction descriptions -> text, checks; see kernels.h
#include "codegen/cpu/gemm/kernels.h"

#include <sstream>

#include "support/error.h"

namespace bolt::codegen::cpu::gemm {
namespace {

void print_matrix(std::ostream& out, const char* name, const Matrix& m) {
  out << ' ' << name << "=b" << m.buffer;
  if (m.packed) {
    out << " packed";
  } else {
    out << '[' << m.row_stride << ", " << m.col_stride << ']';
  }
}

std::string numbers_text(bool pairs, DType weights) {
  if (pairs) return " pairs";
  return weights == DType::F32 ? "" : " weights " + std::string(dtype_name(weights));
}

/// "1", or "0..1" where front and back differ.
std::string pad_text(int64_t front, int64_t behind) {
  return std::to_string(front) + (front == behind ? "" : ".." + std::to_string(behind));
}

}  // namespace

void ConvKernel::set_padding(int64_t h, int64_t w) {
  pad_h = pad_end_h = h;
  pad_w = pad_end_w = w;
}

void ConvKernel::set_channels_last() {
  x_channel = 1;
  x_col = in_channels;
  x_row = width * x_col;
  x_image = height * x_row;
}

std::string print(const GemmKernel& kernel) {
  std::ostringstream out;
  out << "gemm @" << kernel.name << " [";
  for (const BatchDim& dim : kernel.batch) {
    out << dim.size << " (a " << dim.a_stride << ", b " << dim.b_stride << "), ";
  }
  out << kernel.m.str() << " x " << kernel.n << " x " << kernel.k << ']';
  print_matrix(out, "a", kernel.a);
  print_matrix(out, "b", kernel.b);
  out << numbers_text(kernel.pairs, kernel.weights);
  return out.str();
}

std::string print(const ConvKernel& kernel) {
  std::ostringstream out;
  out << "conv @" << kernel.name << " [" << kernel.images.str() << ", " << kernel.height << " x "
      << kernel.width << ", " << kernel.in_channels << "] -> [" << kernel.out_height() << " x "
      << kernel.out_width() << ", " << kernel.out_channels << "] kernel " << kernel.kernel_h << " x "
      << kernel.kernel_w << " stride " << kernel.stride_h << " x " << kernel.stride_w << " pad "
      << pad_text(kernel.pad_h, kernel.pad_end_h) << " x " << pad_text(kernel.pad_w, kernel.pad_end_w)
      << " dilation " << kernel.dilation_h << " x " << kernel.dilation_w << " groups " << kernel.groups
      << " x=b" << kernel.x << '[' << kernel.x_image << ", " << kernel.x_row << ", " << kernel.x_col << ", "
      << kernel.x_channel << "] w=b" << kernel.w << numbers_text(kernel.pairs, kernel.weights);
  if (kernel.pixels != DType::F32) out << " pixels " << dtype_name(kernel.pixels);
  return out.str();
}

void verify(const GemmKernel& kernel) {
  BOLT_CHECK(kernel.n > 0 && kernel.k > 0, print(kernel), ": empty product");
  BOLT_CHECK(!kernel.a.packed, print(kernel), ": only B is packed ahead");
  BOLT_CHECK(!kernel.pairs || (kernel.b.packed && kernel.a.col_stride == 1), print(kernel),
             ": pairs that do not lie together");
  BOLT_CHECK(kernel.weights == DType::F32 || (kernel.b.packed && !kernel.pairs), print(kernel),
             ": only packed weights are halves");
  for (const BatchDim& dim : kernel.batch) {
    BOLT_CHECK(dim.size > 0, print(kernel), ": empty batch");
    BOLT_CHECK(!kernel.b.packed || dim.b_stride == 0, print(kernel), ": packed B is one matrix");
  }
}

void verify(const ConvKernel& kernel) {
  BOLT_CHECK(kernel.padded_height() > kernel.dilation_h * (kernel.kernel_h - 1) &&
                 kernel.padded_width() > kernel.dilation_w * (kernel.kernel_w - 1),
             print(kernel), ": empty output");
  BOLT_CHECK(!kernel.pairs || kernel.x_channel == 1, print(kernel), ": pairs that do not lie together");
  BOLT_CHECK(kernel.weights == DType::F32 || !(kernel.pairs || kernel.depthwise()), print(kernel),
             ": halves for kernels that do not make them float32");
  BOLT_CHECK(kernel.pixels == DType::F32 || kernel.depthwise(), print(kernel), ": pixels of halves");
  BOLT_CHECK(kernel.in_channels > 0 && kernel.out_channels > 0, print(kernel), ": no channels");
  BOLT_CHECK(kernel.in_channels % kernel.groups == 0 && kernel.out_channels % kernel.groups == 0,
             print(kernel), ": groups do not divide the channels");
}

}  // namespace bolt::codegen::cpu::gemm

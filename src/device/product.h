// device/product.h
// Products of matrices by the library that the device has for products, where it has fast kernels.
//
// On CUDA the library's kernels for half precision need rows that begin at multiples of 16 bytes. A
// vocabulary of 50,257 gives it rows that do not, and then it takes kernels at a fifth of the speed. Where
// the product is large enough, what lies so is copied into rows with a gap between them, before and after.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace bolt::device {

/// a @ b
at::Tensor product(const at::Tensor& a, const at::Tensor& b);

/// a @ weight.T + bias
at::Tensor linear(const at::Tensor& a, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

}  // namespace bolt::device

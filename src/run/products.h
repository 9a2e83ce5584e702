// run/products.h
// Products: a library step -> one multiplication of matrices, which a device's library of matrices is called
// with directly (multiplication_of); and ATen's calls where that is not possible.
//
// Products of one operand by several weights are one call (loops/merge_products.h). Weights that lie side by
// side are one matrix as they are. And a library that multiplies batches of matrices is told how far one lies
// behind the other, and does not ask whether there is anything else in between. So weights are read where
// they lie, wherever that is, as long as the distances are equal: those of two always are.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "device/driver/multiplication.h"
#include "loops/plan.h"

namespace bolt::run {

/// A library step as one multiplication of matrices; `lying` tells of a buffer how it lies. Of several
/// weights how far one lies behind the other is told by who knows where they lie (distance_of). Nothing: it
/// is none, or the device has no library that is called directly, and ATen computes it.
std::optional<device::driver::Multiplication> multiplication_of(
    const loops::Plan& plan, const loops::Step& step,
    const std::function<device::driver::Strided(int buffer)>& lying);
/// In elements of so many bytes. Nothing: they lie at different distances, or in the opposite order, which
/// libraries cannot be told.
std::optional<int64_t> distance_of(std::span<void* const> weights, int64_t element_bytes);

/// [weights, ..., N] of x[..., K] and weights [N, K], all of one size, by one after another.
at::Tensor products_of(const at::Tensor& x, const std::vector<at::Tensor>& weights);

/// a @ b of halves, in float32: the sums that at::matmul rounds.
at::Tensor wide_product(const at::Tensor& a, const at::Tensor& b);

/// [N + M + ..., K] of weights [N, K], [M, K], ...: over their memory, which it does not hold, where they lie
/// one behind the other; else a copy.
at::Tensor joined(const std::vector<at::Tensor>& weights);

/// gelu(x w^T + bias), by its approximation: what ends a product of cuBLAS's without a kernel of its own.
at::Tensor linear_gelu(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

}  // namespace bolt::run

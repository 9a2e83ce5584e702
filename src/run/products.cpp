// run/products.cpp
#include "run/products.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_addmm_activation.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>

namespace bolt::run {
namespace {

at::Tensor over(const at::Tensor& first, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::for_blob(first.data_ptr(), sizes)
      .strides(strides)
      .target_device(first.device())
      .options(first.options())
      .make_tensor();
}

/// ATen has them where a library of the device does.
bool has_wide_products(const at::Tensor& operand) { return operand.is_cuda(); }

/// All of them as one [weights, N, K] over their memory. Nothing: they lie at different distances, or in the
/// opposite order, which tensors cannot say.
std::optional<at::Tensor> as_one(const std::vector<at::Tensor>& weights) {
  const at::Tensor& first = weights[0];
  const auto place = [&](size_t i) { return reinterpret_cast<intptr_t>(weights[i].data_ptr()); };
  const intptr_t step = place(1) - place(0), size = static_cast<intptr_t>(first.element_size());
  if (step < 0 || step % size != 0) return std::nullopt;
  for (size_t i = 1; i < weights.size(); ++i)
    if (place(i) - place(i - 1) != step || weights[i].strides() != first.strides()) return std::nullopt;
  return over(first, {static_cast<int64_t>(weights.size()), first.size(0), first.size(1)},
              {step / size, first.stride(0), first.stride(1)});
}

}  // namespace

at::Tensor joined(const std::vector<at::Tensor>& weights) {
  const char* behind = static_cast<const char*>(weights[0].data_ptr());
  int64_t rows = 0;
  for (const at::Tensor& w : weights) {
    if (!w.is_contiguous() || w.data_ptr() != behind) return at::cat(weights);
    behind += w.nbytes();
    rows += w.size(0);
  }
  const int64_t inner = weights[0].size(1);
  return over(weights[0], {rows, inner}, {inner, 1});
}

at::Tensor wide_product(const at::Tensor& a, const at::Tensor& b) {
  if (!has_wide_products(a)) return at::matmul(a.to(at::kFloat), b.to(at::kFloat));
  if (b.dim() == 3) return at::bmm(a, b, at::kFloat);
  std::vector<int64_t> sizes = a.sizes().vec();
  sizes.pop_back();
  const int64_t rows = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  sizes.push_back(b.size(1));
  return at::mm(a.reshape({rows, b.size(0)}), b, at::kFloat).view(sizes);
}

bool product_into(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias, const at::Tensor& out) {
  if (a.scalar_type() != b.scalar_type() || !out.is_contiguous() || a.dim() < 2 || out.numel() == 0)
    return false;
  const bool wide = a.scalar_type() != out.scalar_type();
  if (wide && (!has_wide_products(a) || bias.defined())) return false;
  const at::AutoDispatchBelowADInplaceOrView is_no_write_of_the_callers;
  at::Tensor to = out;
  if (b.dim() == 3 && a.dim() == 3 && a.size(0) == b.size(0) && !bias.defined()) {
    if (wide)
      at::bmm_out(to, a, b, out.scalar_type());
    else
      at::bmm_out(to, a, b);
    return true;
  }
  if (b.dim() != 2) return false;
  const int64_t rows = out.numel() / b.size(1);
  to = out.view({rows, b.size(1)});
  const at::Tensor flat = a.reshape({rows, b.size(0)});
  if (bias.defined())
    at::addmm_out(to, bias, flat, b);
  else if (wide)
    at::mm_out(to, flat, b, out.scalar_type());
  else
    at::mm_out(to, flat, b);
  return true;
}

at::Tensor products_of(const at::Tensor& x, const std::vector<at::Tensor>& weights) {
  std::vector<int64_t> sizes = x.sizes().vec();
  const int64_t inner = sizes.back(), count = static_cast<int64_t>(weights.size()),
                width = weights[0].size(0);
  sizes.pop_back();
  const int64_t rows = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  sizes.insert(sizes.begin(), count);
  sizes.push_back(width);
  const at::Tensor flat = x.reshape({rows, inner});
  if (const auto all = as_one(weights))
    return at::bmm(flat.expand({count, rows, inner}), all->transpose(1, 2)).view(sizes);
  at::Tensor out = at::empty({count, rows, width}, x.options());
  for (int64_t i = 0; i < count; ++i) {
    at::Tensor part = out.select(0, i);
    at::mm_out(part, flat, weights[static_cast<size_t>(i)].t());
  }
  return out.view(sizes);
}

at::Tensor linear_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  std::vector<int64_t> sizes = x.sizes().vec();
  const int64_t inner = sizes.back();
  sizes.pop_back();
  const int64_t rows = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  sizes.push_back(weight.size(0));
  return at::_addmm_activation(bias, x.reshape({rows, inner}), weight.t(), 1, 1, true).view(sizes);
}

}  // namespace bolt::run

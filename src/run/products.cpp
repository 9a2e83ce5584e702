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

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>

#include "device/device.h"

namespace bolt::run {

using device::driver::Multiplication;
using device::driver::Strided;

namespace {

at::Tensor over(const at::Tensor& first, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::for_blob(first.data_ptr(), sizes)
      .strides(strides)
      .target_device(first.device())
      .options(first.options())
      .make_tensor();
}

/// All of them as one [weights, N, K] over their memory.
std::optional<at::Tensor> as_one(const std::vector<at::Tensor>& weights) {
  const at::Tensor& first = weights[0];
  std::vector<void*> places;
  for (const at::Tensor& w : weights) {
    if (w.strides() != first.strides()) return std::nullopt;
    places.push_back(w.data_ptr());
  }
  const auto distance = distance_of(places, first.element_size());
  if (!distance) return std::nullopt;
  return over(first, {static_cast<int64_t>(weights.size()), first.size(0), first.size(1)},
              {*distance, first.stride(0), first.stride(1)});
}

std::optional<Multiplication> in_usual_way(const graph::Node& node, std::span<const Strided> tensors) {
  using graph::Op;
  if (node.op != Op::linear && node.op != Op::linears && node.op != Op::matmul) return std::nullopt;
  const size_t operands = tensors.size() - 1;
  Strided x = tensors[0], w = tensors[1], result = tensors[operands];
  if (node.op == Op::matmul) return device::driver::multiplication_of(x, w, result);
  const std::vector<int64_t> sizes{w.sizes[1], w.sizes[0]}, strides{w.strides[1], w.strides[0]};
  if (node.op == Op::linear) {
    auto m = device::driver::multiplication_of(x, {sizes, strides, w.dtype}, result);
    if (!m || operands == 2) return m;
    const Strided bias = tensors[2];
    if (bias.sizes.size() != 1 || bias.strides[0] != 1 || bias.dtype != x.dtype) return std::nullopt;
    m->has_bias = true;
    m->ends_in_gelu = node.has_attr("activation");
    return m;
  }
  for (const Strided& other : tensors.subspan(2, operands - 2))
    if (!std::ranges::equal(other.strides, w.strides) || other.dtype != w.dtype) return std::nullopt;
  const int64_t next = result.strides[0];
  result.sizes = result.sizes.subspan(1), result.strides = result.strides.subspan(1);
  auto m = device::driver::multiplication_of(x, {sizes, strides, w.dtype}, result);
  if (!m) return m;
  m->batch = static_cast<int64_t>(operands) - 1;
  m->result.next = next;
  return m;
}

}  // namespace

std::optional<Multiplication> multiplication_of(const loops::Plan& plan, const loops::Step& step,
                                                const std::function<Strided(int)>& lying) {
  const graph::Device on = plan.buffers[static_cast<size_t>(step.buffers.back())].type.device;
  if (!device::find(on.kind)->multiplies()) return std::nullopt;
  std::vector<Strided> tensors;
  std::ranges::transform(step.buffers, std::back_inserter(tensors), lying);
  auto m = in_usual_way(*step.node, tensors);
  if (m) m->way = static_cast<int>(step.node->attr_or<int64_t>("way", 0));
  return m;
}

std::optional<int64_t> distance_of(std::span<void* const> weights, int64_t element_bytes) {
  const auto place = [&](size_t i) { return reinterpret_cast<intptr_t>(weights[i]); };
  const intptr_t step = place(1) - place(0);
  if (step < 0 || step % element_bytes != 0) return std::nullopt;
  for (size_t i = 1; i < weights.size(); ++i)
    if (place(i) - place(i - 1) != step) return std::nullopt;
  return step / element_bytes;
}

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
  // Of halves with a wide result ATen has products where a library of the device does.
  if (!a.is_cuda()) return at::matmul(a.to(at::kFloat), b.to(at::kFloat));
  if (b.dim() == 3) return at::bmm(a, b, at::kFloat);
  std::vector<int64_t> sizes = a.sizes().vec();
  sizes.pop_back();
  const int64_t rows = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  sizes.push_back(b.size(1));
  return at::mm(a.reshape({rows, b.size(0)}), b, at::kFloat).view(sizes);
}

bool product_into(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias, const at::Tensor& out) {
  if (a.scalar_type() != out.scalar_type() || !out.is_contiguous() || a.dim() < 2 || out.numel() == 0)
    return false;
  const at::AutoDispatchBelowADInplaceOrView is_no_write_of_the_callers;
  at::Tensor to = out;
  if (b.dim() == 3 && a.dim() == 3 && a.size(0) == b.size(0) && !bias.defined()) {
    at::bmm_out(to, a, b);
    return true;
  }
  if (b.dim() != 2) return false;
  const int64_t rows = out.numel() / b.size(1);
  to = out.view({rows, b.size(1)});
  const at::Tensor flat = a.reshape({rows, b.size(0)});
  if (bias.defined())
    at::addmm_out(to, bias, flat, b);
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
    at::mm_out(part, flat, weights[i].t());
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

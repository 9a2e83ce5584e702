// run/products.cpp
#include "run/products.h"

#include <ATen/ops/_addmm_activation.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>

#include "device/device.h"
#include "loops/library_layout.h"

namespace bolt::run {

using device::driver::Multiplication;
using device::driver::Strided;

namespace {

/// x[..., K] as [rows, K].
at::Tensor by_rows(const at::Tensor& x) {
  return x.reshape({c10::multiply_integers(x.sizes().slice(0, x.dim() - 1)), x.size(-1)});
}

/// The sizes of x with `width` in the place of the last.
std::vector<int64_t> with_width(const at::Tensor& x, int64_t width) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = width;
  return sizes;
}

device::driver::SumEnd ending_of(const graph::Node& call) {
  using device::driver::SumEnd;
  if (!call.has_attr("activation")) return SumEnd::none;
  return call.attr<std::string>("activation") == "relu" ? SumEnd::relu : SumEnd::gelu;
}

std::optional<Multiplication> in_usual_way(const graph::Node& node, std::span<const Strided> tensors) {
  using graph::Op;
  if (node.op != Op::linear && node.op != Op::linears && node.op != Op::linear_of_parts &&
      node.op != Op::matmul)
    return std::nullopt;
  const size_t operands = tensors.size() - 1;
  Strided x = tensors[0], w = tensors[1], result = tensors[operands];
  if (node.op == Op::matmul) return device::driver::multiplication_of(x, w, result);
  const std::vector<int64_t> sizes{w.sizes[1], w.sizes[0]}, strides{w.strides[1], w.strides[0]};
  if (node.op == Op::linear_of_parts) {  // by the first part; who runs it multiplies by the other as well
    if (!std::ranges::equal(tensors[2].strides, w.strides) || tensors[2].dtype != w.dtype)
      return std::nullopt;
    std::vector<int64_t> first(result.sizes.begin(), result.sizes.end());
    first.back() = w.sizes[0];
    return device::driver::multiplication_of(x, {sizes, strides, w.dtype},
                                             {first, result.strides, result.dtype});
  }
  if (node.op == Op::linear) {
    auto m = device::driver::multiplication_of(x, {sizes, strides, w.dtype}, result);
    if (!m) return m;
    m->ending = ending_of(node);
    if (operands == 2) return m;
    const Strided bias = tensors[2];
    if (bias.sizes.size() != 1 || bias.strides[0] != 1 || bias.dtype != x.dtype) return std::nullopt;
    m->has_bias = true;
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

/// conv + bias + added of single pixels, each of which is a row, or the relu of that.
std::optional<Multiplication> of_pixels(const graph::Node& node, std::span<const Strided> tensors) {
  const auto with_channels_last = [](std::span<const int64_t> numbers) {
    return std::vector<int64_t>{numbers[0], numbers[2], numbers[3], numbers[1]};
  };
  const Strided &x = tensors[0], &w = tensors[1], &bias = tensors[2], &added = tensors[3],
                &result = tensors.back();
  const std::vector<int64_t> sizes[] = {
      with_channels_last(x.sizes), {w.sizes[1], w.sizes[0]}, with_channels_last(result.sizes)};
  const std::vector<int64_t> strides[] = {
      with_channels_last(x.strides), {w.strides[1], w.strides[0]}, with_channels_last(result.strides)};
  if (bias.sizes.size() != 1 || bias.strides[0] != 1 || bias.dtype != x.dtype) return std::nullopt;
  if (!std::ranges::equal(added.strides, result.strides) || added.dtype != result.dtype) return std::nullopt;
  auto m = device::driver::multiplication_of({sizes[0], strides[0], x.dtype}, {sizes[1], strides[1], w.dtype},
                                             {sizes[2], strides[2], result.dtype});
  if (!m) return m;
  m->has_bias = m->is_added = true;
  m->ending = ending_of(node);
  return m;
}

}  // namespace

std::optional<Multiplication> multiplication_of(const loops::Plan& plan, const loops::Step& step,
                                                const std::function<Strided(int)>& lying) {
  const graph::Device on = plan.buffers[static_cast<size_t>(step.buffers.back())].type.device;
  if (!device::find(on.kind)->multiplies()) return std::nullopt;
  std::vector<Strided> tensors;
  std::ranges::transform(step.buffers, std::back_inserter(tensors), lying);
  auto m = loops::multiplies_and_adds(*step.node) ? of_pixels(*step.node, tensors)
                                                  : in_usual_way(*step.node, tensors);
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
  return at::for_blob(weights[0].data_ptr(), {rows, weights[0].size(1)})
      .target_device(weights[0].device())
      .options(weights[0].options())
      .make_tensor();
}

at::Tensor wide_product(const at::Tensor& a, const at::Tensor& b) {
  // Of halves with a wide result ATen has products where a library of the device does.
  if (!a.is_cuda()) return at::matmul(a.to(at::kFloat), b.to(at::kFloat));
  if (b.dim() == 3) return at::bmm(a, b, at::kFloat);
  return at::mm(by_rows(a), b, at::kFloat).view(with_width(a, b.size(1)));
}

at::Tensor products_of(const at::Tensor& x, const std::vector<at::Tensor>& weights) {
  std::vector<int64_t> sizes = with_width(x, weights[0].size(0));
  sizes.insert(sizes.begin(), std::ssize(weights));
  const at::Tensor flat = by_rows(x);
  at::Tensor out = at::empty(sizes, x.options());
  for (size_t i = 0; i < weights.size(); ++i) {
    at::Tensor part = by_rows(out.select(0, static_cast<int64_t>(i)));
    at::mm_out(part, flat, weights[i].t());
  }
  return out;
}

at::Tensor linear_gelu(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  if (!bias) return at::gelu(at::linear(x, weight), "tanh");
  return at::_addmm_activation(*bias, by_rows(x), weight.t(), 1, 1, true).view(with_width(x, weight.size(0)));
}

}  // namespace bolt::run

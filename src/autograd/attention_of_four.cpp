// autograd/attention_of_four.cpp
#include "autograd/attention_of_four.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "device/host/host.h"
#include "graph/attention_heads.h"

namespace bolt::autograd {
namespace {

constexpr int64_t kRank = 4;

at::IntArrayRef outer(const at::Tensor& t) {
  return t.sizes().slice(0, static_cast<size_t>(t.dim() - graph::kWithinHead));
}

class Joining {
 public:
  explicit Joining(const std::vector<at::Tensor>& operands)
      : heads_(graph::heads_among(static_cast<int>(operands[0].dim()), [&](int heads) {
          return std::ranges::all_of(operands, [&](const at::Tensor& t) {
            return graph::are_one_as_they_lie(t.sizes(), t.strides(), heads);
          });
        })) {
    for (int d : graph::with_heads_last(static_cast<int>(operands[0].dim()), heads_)) order_.push_back(d);
  }

  at::Tensor joined(const at::Tensor& t) const {
    return heads_ < 0 ? t.unsqueeze(1) : permuted(t, order_).flatten(0, t.dim() - kRank);
  }
  at::Tensor joined_operand(const at::Tensor& t) const {
    const at::Tensor all = joined(t);
    return has_rows(all) ? all : all.contiguous();
  }
  /// As the fused kernels read them.
  static bool has_rows(const at::Tensor& t) { return t.stride(-1) == 1; }
  /// One for all, or with the dimensions of all.
  at::Tensor joined_mask(const at::Tensor& mask) const {
    if (mask.dim() == static_cast<int64_t>(order_.size()) && !is_for_all(mask)) return joined(mask);
    return mask.dim() > graph::kWithinHead ? mask.reshape({mask.size(-2), mask.size(-1)}) : mask;
  }
  static bool is_for_all(const at::Tensor& mask) {
    return mask.dim() <= graph::kWithinHead ||
           std::ranges::all_of(outer(mask), [](int64_t size) { return size == 1; });
  }

  /// As it was made of `queries`.
  at::Tensor parted(const at::Tensor& result, const at::Tensor& queries) const {
    if (heads_ < 0) return result.squeeze(1);
    std::vector<int64_t> sizes, back(order_.size());
    for (size_t i = 0; i < order_.size(); ++i) {
      sizes.push_back(queries.size(order_[i]));
      back[order_[i]] = static_cast<int64_t>(i);
    }
    sizes.back() = result.size(-1);
    return permuted(result.reshape(sizes), back);
  }

 private:
  static at::Tensor permuted(const at::Tensor& t, const std::vector<int64_t>& order) {
    return std::ranges::is_sorted(order) ? t : t.permute(order);
  }

  int heads_;
  std::vector<int64_t> order_;
};

}  // namespace

bool call_attention_of_four(const record::Entry& entry, torch::jit::Stack& stack) {
  if (entry.op.operator_name().name != "aten::scaled_dot_product_attention" || !entry.grad_mode) return false;
  // (query, key, value, attn_mask, dropout_p, is_causal, *, scale, enable_gqa)
  const std::vector<at::Tensor> operands{stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
  const at::Tensor& queries = operands[0];
  if (device::is_processor(queries.device()) || queries.dim() < kRank - 1) return false;
  if (queries.dim() == kRank && std::ranges::all_of(operands, Joining::has_rows)) return false;
  const auto followed = [](const at::Tensor& t) { return t.requires_grad(); };
  const auto has_batches = [&](const at::Tensor& t) {
    return t.dim() == queries.dim() && outer(t) == outer(queries) && t.numel() > 0;
  };
  if (std::ranges::none_of(operands, followed) || !std::ranges::all_of(operands, has_batches)) return false;
  auto mask = stack[3].toOptional<at::Tensor>();
  if (mask && !Joining::is_for_all(*mask) && outer(*mask) != outer(queries)) return false;
  if (stack[4].toDouble() != 0 || stack[7].toBool()) return false;
  const Joining joining(operands);
  if (mask) mask = joining.joined_mask(*mask);
  const at::Tensor result = at::scaled_dot_product_attention(
      joining.joined_operand(operands[0]), joining.joined_operand(operands[1]),
      joining.joined_operand(operands[2]), mask, 0.0, stack[5].toBool(), stack[6].toOptional<double>(),
      false);
  stack = {joining.parted(result, queries).contiguous()};
  return true;
}

}  // namespace bolt::autograd

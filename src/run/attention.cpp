// run/attention.cpp
#include "run/attention.h"

#include <ATen/Context.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/add.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "device/driver/driver.h"

namespace bolt::run {
namespace {

using graph::Node;
using Tensors = std::vector<at::Tensor>;
using std::optional;

constexpr int kFlashNeeds = 80, kEfficientNeeds = 50;  // compute capability
constexpr int64_t kWidestHead = 256;                   // of flash and cuDNN

/// One attention without a mask.
struct UnmaskedAttention {
  const at::Tensor &q, &k, &v;
  bool causal;
  optional<double> scale;

  bool is_half() const { return q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf; }
  /// [batch, heads, length, width] that the kernels read as they lie.
  bool is_plain() const {
    auto suits = [&](const at::Tensor& t) {
      return t.dim() == 4 && t.scalar_type() == q.scalar_type() && t.device() == q.device() &&
             t.size(0) == q.size(0) && t.stride(3) == 1 && t.numel() > 0;
    };
    // Of lengths that differ some kernels count what lies ahead from the other end.
    return q.is_cuda() && suits(q) && suits(k) && suits(v) && q.size(3) == k.size(3) &&
           k.size(1) == v.size(1) && q.size(1) % k.size(1) == 0 && k.size(2) == v.size(2) &&
           (!causal || q.size(2) == k.size(2));
  }
  bool has_even_heads() const {
    return q.size(3) % 8 == 0 && q.size(3) <= kWidestHead && v.size(3) == q.size(3);
  }
  bool runs_on(int capability) const { return device::driver::capability(q.device().index()) >= capability; }
};

// ---- the ways

struct AttentionWay {
  std::string_view name;
  bool (at::Context::*allowed)() const;
  bool (*takes)(const UnmaskedAttention&);
  at::Tensor (*run)(const UnmaskedAttention&);
};

bool flash_takes(const UnmaskedAttention& a) {
  return a.is_half() && a.is_plain() && a.has_even_heads() && a.runs_on(kFlashNeeds);
}
at::Tensor flash(const UnmaskedAttention& a) {
  return std::get<0>(at::_scaled_dot_product_flash_attention(a.q, a.k, a.v, 0.0, a.causal, false, a.scale));
}
at::Tensor cudnn(const UnmaskedAttention& a) {
  return std::get<0>(at::_scaled_dot_product_cudnn_attention(a.q, a.k, a.v, std::nullopt, false, 0.0,
                                                             a.causal, false, a.scale));
}
bool efficient_takes(const UnmaskedAttention& a) {
  return (a.is_half() || a.q.scalar_type() == at::kFloat) && a.is_plain() && a.q.size(1) == a.k.size(1) &&
         a.q.size(3) % 8 == 0 && a.v.size(3) % 8 == 0 && a.runs_on(kEfficientNeeds);
}
at::Tensor efficient(const UnmaskedAttention& a) {
  return std::get<0>(at::_scaled_dot_product_efficient_attention(a.q, a.k, a.v, std::nullopt, false, 0.0,
                                                                 a.causal, a.scale));
}

constexpr AttentionWay kWays[] = {
    {"flash", &at::Context::userEnabledFlashSDP, flash_takes, flash},
    {"cudnn", &at::Context::userEnabledCuDNNSDP, flash_takes, cudnn},
    {"efficient", &at::Context::userEnabledMemEfficientSDP, efficient_takes, efficient},
};

const AttentionWay* allowed_way(std::string_view name) {
  const auto* way = std::ranges::find(kWays, name, &AttentionWay::name);
  return way != std::end(kWays) && (at::globalContext().*way->allowed)() ? way : nullptr;
}

// ---- nodes

UnmaskedAttention attention_of(const Node& n, const Tensors& in) {
  optional<double> scale;
  if (n.has_attr("scale")) scale = n.attr<double>("scale");
  return {in[0], in[1], in[2], n.attr<bool>("causal"), scale};
}

/// As written out: a row of a mask that is all -inf gives NaN.
at::Tensor with_nan(const Node& n, const Tensors& in) {
  const double scale = n.attr_or<double>("scale", 1 / std::sqrt(static_cast<double>(in[0].size(-1))));
  at::Tensor scores = at::mul(at::matmul(in[0], in[1].transpose(-2, -1)), scale);
  if (in.size() > 3)
    scores = in[3].scalar_type() == at::kBool
                 ? at::where(in[3], scores, -std::numeric_limits<double>::infinity())
                 : at::add(scores, in[3]);
  return at::matmul(at::softmax(scores, -1), in[2]);
}

/// Between calls of the program.
bool lengths_differ(const Node& attention) {
  return std::ranges::any_of(attention.operands, [](const graph::Value* v) {
    return std::ranges::any_of(v->type.sizes, [](Sym size) { return !size.is_const(); });
  });
}

}  // namespace

std::vector<std::string> ways_of_attention(const Node& node, const Tensors& operands) {
  std::vector<std::string> names = {""};
  if (operands.size() > 3) return names;
  const UnmaskedAttention a = attention_of(node, operands);
  for (const AttentionWay& way : kWays)
    if (allowed_way(way.name) && way.takes(a)) names.emplace_back(way.name);
  return names;
}

at::Tensor attention(const Node& node, const Tensors& in) {
  if (node.has_attr("way")) return attention(node, in, node.attr<std::string>("way"));
  const bool any_length = in.size() == 3 && lengths_differ(node) && allowed_way("flash");
  return attention(node, in, any_length && flash_takes(attention_of(node, in)) ? "flash" : "");
}

at::Tensor attention(const Node& node, const Tensors& in, std::string_view name) {
  const UnmaskedAttention a = attention_of(node, in);
  if (const AttentionWay* way = allowed_way(name)) return way->run(a);
  if (node.attr<bool>("empty_rows_nan") && in.size() > 3) return with_nan(node, in);
  return at::scaled_dot_product_attention(a.q, a.k, a.v, in.size() > 3 ? optional(in[3]) : std::nullopt, 0.0,
                                          a.causal, a.scale, node.attr_or<bool>("enable_gqa", false));
}

}  // namespace bolt::run

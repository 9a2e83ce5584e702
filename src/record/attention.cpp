// record/attention.cpp: see attention.h.
#include "record/attention.h"

#include <ATen/Context.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>

#include "device/driver/driver.h"

namespace bolt::record {
namespace {

constexpr int kFlashNeeds = 80;  // compute capability
constexpr int64_t kWidestHead = 256;

bool has_flash(c10::Device device) {
  return device.is_cuda() && at::globalContext().userEnabledFlashSDP() &&
         device::driver::capability(device.index()) >= kFlashNeeds;
}

bool flash_takes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  if (!has_flash(q.device()) || (q.scalar_type() != at::kBFloat16 && q.scalar_type() != at::kHalf))
    return false;
  auto suits = [&](const at::Tensor& t) {
    return t.dim() == 4 && t.scalar_type() == q.scalar_type() && t.device() == q.device() &&
           t.size(3) == q.size(3) && t.size(0) == q.size(0) && t.stride(3) == 1 && t.numel() > 0;
  };
  const bool heads = k.dim() == 4 && v.dim() == 4 && k.size(1) == v.size(1) && k.size(1) > 0 &&
                     q.size(1) % k.size(1) == 0 && k.size(2) == v.size(2);
  // Of lengths that differ the flash kernel counts what lies ahead from the other end.
  return suits(q) && suits(k) && suits(v) && heads && q.size(3) % 8 == 0 && q.size(3) <= kWidestHead &&
         (!causal || q.size(2) == k.size(2));
}

}  // namespace

std::optional<at::Tensor> attention_of_any_length(const at::Tensor& q, const at::Tensor& k,
                                                  const at::Tensor& v, bool causal,
                                                  std::optional<double> scale) {
  if (!flash_takes(q, k, v, causal)) return std::nullopt;
  return std::get<0>(at::_scaled_dot_product_flash_attention(q, k, v, 0.0, causal, false, scale));
}

}  // namespace bolt::record

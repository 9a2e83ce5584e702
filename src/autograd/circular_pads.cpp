// autograd/circular_pads.cpp
#include "autograd/circular_pads.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <algorithm>

namespace bolt::autograd {

bool call_circular_pad(const record::Entry& entry, torch::jit::Stack& stack) {
  const std::string& name = entry.op.operator_name().name;
  const bool by_mode = name == "aten::pad" && stack[2].isString() && stack[2].toStringRef() == "circular";
  if (!by_mode && name != "aten::_pad_circular") return false;
  at::Tensor x = stack[0].toTensor();
  const std::vector<int64_t> amounts = stack[1].toIntVector();
  const auto sides = static_cast<int64_t>(amounts.size());
  if (!at::GradMode::is_enabled() || !x.requires_grad() || sides % 2 != 0 || sides / 2 > x.dim())
    return false;
  // What is taken away, or goes round more than once, is ATen's or an error.
  for (int64_t i = 0; i < sides; ++i)
    if (amounts[i] < 0 || amounts[i] > x.size(x.dim() - 1 - i / 2)) return false;

  for (int64_t i = 0; i < sides; i += 2) {
    const int64_t dim = x.dim() - 1 - i / 2, size = x.size(dim), before = amounts[i], behind = amounts[i + 1];
    std::vector<at::Tensor> parts{x};
    if (before != 0) parts.insert(parts.begin(), x.narrow(dim, size - before, before));
    if (behind != 0) parts.push_back(x.narrow(dim, 0, behind));
    if (parts.size() > 1) x = at::cat(parts, dim);
  }
  if (std::ranges::all_of(amounts, [](int64_t amount) { return amount == 0; })) x = x.clone();
  stack = {x.contiguous()};  // as what ATen copies into lies
  return true;
}

}  // namespace bolt::autograd

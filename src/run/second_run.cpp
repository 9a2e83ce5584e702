// run/second_run.cpp
#include "run/second_run.h"

#include <torch/csrc/autograd/autograd.h>

#include <utility>

namespace bolt::run {

using torch::autograd::variable_list;

variable_list SecondRun::differentiate(const Tensors& with_respect_to, const variable_list& tangents) const {
  Tensors from, of, with;
  for (const at::Tensor& t : with_respect_to)
    if (t.defined()) from.push_back(t);
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (!tangents[i].defined()) continue;
    const bool as_given = tangents[i].sizes() == results[i].sizes();
    TORCH_CHECK_NOT_IMPLEMENTED(
        as_given || (results[i].is_contiguous() && results[i].numel() == tangents[i].numel()),
        "torchbolt: gradients of gradients of a result that shows a part of what an operator made within");
    of.push_back(results[i]);
    with.push_back(as_given ? tangents[i] : tangents[i].reshape(results[i].sizes()));
  }
  variable_list all(with_respect_to.size());
  if (of.empty() || from.empty()) return all;
  variable_list found = torch::autograd::grad(of, from, with, true, true, true);
  auto next = found.begin();
  for (size_t i = 0; i < all.size(); ++i)
    if (with_respect_to[i].defined()) all[i] = std::move(*next++);
  return all;
}

}  // namespace bolt::run

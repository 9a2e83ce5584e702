// record/attention.h
// Which of ATen's kernels computes an attention whose lengths differ between calls.
//
// Left to itself ATen takes cuDNN's where it can, which makes a plan for every length it meets: a tenth of a
// second each, for every token of a sequence that grows. The flash kernel takes any length at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace bolt::record {

/// Nothing: the kernel does not take these, and ATen is to choose. No gradients are wanted.
std::optional<at::Tensor> attention_of_any_length(const at::Tensor& q, const at::Tensor& k,
                                                  const at::Tensor& v, bool causal,
                                                  std::optional<double> scale);

}  // namespace bolt::record

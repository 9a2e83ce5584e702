// device/cuda_results.h
// Sizes and strides -> memory on a CUDA device, as at::empty_strided gives it, from torch's allocator.
//
// A training step asks for hundreds of these, and a way through the dispatcher takes longer than what the
// allocator does at its end.
#pragma once

#include <ATen/core/Tensor.h>

namespace bolt::device {

at::Tensor new_cuda_result(c10::Device device, at::IntArrayRef sizes, at::IntArrayRef strides,
                           c10::ScalarType dtype);

/// Memory for work that is queued before this goes. Nothing for no bytes.
c10::DataPtr cuda_scratch(c10::Device device, int64_t bytes);

}  // namespace bolt::device

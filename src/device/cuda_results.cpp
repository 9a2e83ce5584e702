// device/cuda_results.cpp
#include "device/cuda_results.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/DeviceGuard.h>

namespace bolt::device {

at::Tensor new_cuda_result(c10::Device device, at::IntArrayRef sizes, at::IntArrayRef strides,
                           c10::ScalarType dtype) {
  const c10::DeviceGuard guard(device);
  return at::detail::empty_strided_generic(sizes, strides, c10::GetAllocator(c10::kCUDA),
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA), dtype);
}

c10::DataPtr cuda_scratch(c10::Device device, int64_t bytes) {
  if (bytes == 0) return {};
  const c10::DeviceGuard guard(device);
  return c10::GetAllocator(c10::kCUDA)->allocate(static_cast<size_t>(bytes));
}

}  // namespace bolt::device

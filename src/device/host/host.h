// device/host/host.h
// A tensor's place -> what it means to who is on the host. Folders below device/ ask here, and name no
// device: what they do differently by device they do for one of these reasons.
#pragma once

#include <ATen/core/Tensor.h>

namespace bolt::device {

/// Where the host computes by itself: an operator run there is over when its call returns.
constexpr c10::DeviceType kHost = c10::kCPU;

/// Are the kernels that eager takes for it the processor's? They keep other things for a backward pass than
/// those of other devices do, and lay their results out otherwise.
inline bool is_processor(c10::Device device) { return device.is_cpu(); }

/// May the host read its data where they lie, and without waiting?
inline bool is_on_host(const c10::TensorImpl& tensor) { return tensor.is_cpu(); }
inline bool is_on_host(const at::Tensor& tensor) { return is_on_host(*tensor.unsafeGetTensorImpl()); }

/// Is it one number, which operators take beside tensors of any device?
inline bool is_number_on_host(const at::Tensor& tensor) { return tensor.dim() == 0 && is_on_host(tensor); }

}  // namespace bolt::device

// device/cuda.h
// NVIDIA's devices, where torch was built with CUDA and the machine has a driver and NVRTC. All of that is
// looked for when the first region with CUDA tensors is compiled; nothing is linked.
#pragma once

#include <string>

#include "device/device.h"

namespace bolt::device {

/// Null: why_no_cuda() says what is missing.
const DeviceInterface* cuda();
std::string why_no_cuda();

}  // namespace bolt::device

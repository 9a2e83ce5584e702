// device/cpu_results.h
// Sizes and strides -> memory for a call's result.
//
// A large result in fresh memory costs a page fault for every 4 KB, several times what computing it does (64
// MB on a virtual machine: 28 ms to touch, 2 ms to write). So large blocks lie on huge pages where the system
// has them, and a block that the caller let go is kept for the next result of its size: a program called over
// and over gets the memory of the call before the last. What is kept is bounded (TORCHBOLT_RESULT_CACHE_MB),
// the oldest goes first. Smaller results come from torch's allocator, as eager's.
#pragma once

#include <ATen/core/Tensor.h>

namespace bolt::device {

/// The system gets what is kept.
void give_back_cpu_results();

at::Tensor new_cpu_result(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype);

}  // namespace bolt::device

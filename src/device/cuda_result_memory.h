// device/cuda_result_memory.h
// A private pool of torch's allocator, for the results of one recording (device.h).
//
// Blocks that are let go of go back to the pool, when the work that was announced to them (record_stream) is
// done. While all of them are there, the same requests in the same order get the same addresses: the
// allocator takes the smallest block that is large enough, and of several the lowest.
#pragma once

#include <memory>

#include "device/device.h"

namespace bolt::device {

std::unique_ptr<ResultMemory> cuda_result_memory(c10::Device device);

}  // namespace bolt::device

// codegen/cuda/emit.h
// (Kernel, Schedule) -> CUDA C++ text, and whole lists of kernels -> one translation unit for NVRTC.
//
//   extern "C" __global__ void bolt_<name>(buffers..., [i64* report,] size symbols...)
//
// buffers: pointers to the first element, in the kernel's order; report: only where the kernel has checks
// (loops/kernel.h); symbols: i64, in the kernel's order. The launch (blocks, threads) is the schedule's.
#pragma once

#include <string>
#include <vector>

#include "codegen/cuda/schedule.h"

namespace bolt::codegen::cuda {

/// The function's text, without the prelude. The kernel is normalised and not refused.
BOLT_API std::string emit_kernel(const loops::Kernel& kernel, const Schedule& schedule,
                                 const std::string& name);

struct Launch {
  std::string name;     // of the function
  std::string refused;  // why there is no function; else empty
  Schedule schedule;
};
struct Program {
  std::string text;
  std::vector<Launch> launches;  // one per kernel
};
/// Prelude and kernels. A kernel that is refused is a comment with the reason.
BOLT_API Program emit(const std::vector<loops::Kernel>& kernels, const Options& options = {});

}  // namespace bolt::codegen::cuda

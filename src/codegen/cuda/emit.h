// codegen/cuda/emit.h
// (Kernel, Schedule) -> CUDA C++ text, and whole lists of kernels -> one translation unit for NVRTC.
//
//   extern "C" __global__ void bolt_<name>(buffers..., [i64* report,] count, size symbols...)
//
// buffers: pointers to the first element, in the kernel's order; report: only where the
// kernel has checks (loops/kernel.h); count: Schedule::count, `unsigned` where the schedule is narrow, else
// i64; symbols: i64, in the kernel's order. The launch (blocks, threads) is the schedule's. That the
// outermost size is an argument makes kernels one which differ in it only.
#pragma once

#include <string>
#include <vector>

#include "codegen/cuda/schedule.h"

namespace bolt::codegen::cuda {

/// The function's text, without the prelude. The kernel is normalised and not refused. `most`: it takes the
/// arguments of so many launches (lists.h); 0: of one.
/// `numbers`, by buffer: it is given the bits of one number in place of a pointer. Empty: none is.
BOLT_API std::string emit_kernel(const loops::Kernel& kernel, const Schedule& schedule,
                                 const std::string& name, int most = 0,
                                 const std::vector<char>& numbers = {});

struct CudaSource {
  std::string text;
  std::vector<std::string> names;  // of the functions
};
/// Prelude and kernels, each in its parts (parts.h). A kernel that is refused is a comment with the reason.
BOLT_API CudaSource emit(const std::vector<loops::Kernel>& kernels, const ScheduleOptions& options = {});

}  // namespace bolt::codegen::cuda

// codegen/cuda/parts.h
// Kernel -> the kernels that are launched for it, one after the other: what one grid cannot do, or not well.
//
// Blocks of a grid do not wait for one another, so a reduction whose result every block needs ends a launch:
//
//   over different dimensions   each set of dimensions is reduced in a part of its own
//   few and long rows           one block a row would leave the device idle: the largest reduced dimension is
//                               cut into chunks; a part makes a partial result for each, and the next reduces
//                               those
//
//   space [4096 d0 reduce, 4096 d1]            first:  space [32 d0, 128 d1 reduce, 4096 d2]
//     %0 = load b0[4096*d0 + d1]                 %0 = load b0[4096*(128*d0 + d1) + d2]
//     %1 = reduce sum %0 over d0         =>      %1 = reduce sum %0 over d1
//     store b1[d1] = %1                          store b2[4096*d0 + d2] = %1
//                                              second: space [32 d0 reduce, 4096 d1]: b2 reduced over d0 ->
//                                              b1
//
// Results on their way from part to part lie in scratch memory (b2), which whoever launches provides. Stores
// are in the last part. But what is stored for each element of a reduction that is cut into chunks is stored
// while these are read: a kernel that reduces writes to no memory that it reads under another name
// (loops/in_place.h), so later parts read what was there. Every part is an ordinary kernel with the ordinary
// schedule; its sizes may be functions of a chunk's number. How many chunks there are depends on the kernel
// alone: one input gives the same bits on every device.
#pragma once

#include <vector>

#include "codegen/cuda/schedule.h"

namespace bolt::codegen::cuda {

/// Reductions of fewer elements stay whole: two launches take as long.
constexpr int64_t kWorthElements = 1 << 17;

struct Part {
  loops::Kernel kernel;  // normalised
  /// By its buffer: the whole kernel's buffer, or, from the number of those on, a scratch.
  std::vector<int> buffers;

  /// By its buffer what `of_whole` says of the whole kernel's; of a scratch 0.
  std::vector<char> by_buffer(const std::vector<char>& of_whole) const;
};

struct Scratch {
  DType dtype;
  Sym offset;  // bytes, a multiple of 256
};

struct Parts {
  std::vector<Part> list;
  std::vector<Scratch> scratch;
  Sym scratch_bytes = 0;
};

/// The kernel is normalised and not refused.
BOLT_API Parts parts(const loops::Kernel& kernel, const ScheduleOptions& options = {});

}  // namespace bolt::codegen::cuda

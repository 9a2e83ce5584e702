// codegen/cpu/split.h
// A reduction with few results -> two kernels that together keep every thread busy.
//
//   space [4096 d0 reduce, 4096 d1]            first:  space [64 d0, 64 d1 reduce, 4096 d2]
//     %0 = load b0[4096*d0 + d1]                 %0 = load b0[4096*(64*d0 + d1) + d2]
//     %1 = reduce sum %0 over d0         =>      %1 = reduce sum %0 over d1
//     store b1[d1] = %1                          store b2[4096*d0 + d2] = %1
//                                              second: space [64 d0 reduce, 4096 d1]
//                                                %0 = load b2[4096*d0 + d1], reduced over d0, stored to
//                                                b1[d1]
//
// The largest reduced dimension is cut into chunks; the first kernel makes a partial result for each, the
// second reduces these and does the rest of the work. b2 is scratch, the buffer after the kernel's own. How
// many chunks there are depends on the sizes alone: the same input gives the same bits on any number of
// threads. The chains of additions get shorter, too, so the result is closer to the exact sum.
//
// Both are ordinary kernels and go through the ordinary schedule and emitter. Only the size of the dimension
// inside a chunk may be what no kernel of loops/ has: where the chunks are not even, a function of the
// chunk's number.
//
// Left whole: kernels whose reductions need one another or whose results are spread over the reduced
// dimensions again (softmax), argmax, checks, and sizes that are not known.
#pragma once

#include <optional>

#include "codegen/cpu/jit.h"

namespace bolt::codegen::cpu {

struct SplitKernel {
  loops::Kernel first, second;
  int64_t scratch_bytes;
};

/// `kernel` is normalised. Nothing: it has enough work items, or cannot be split.
BOLT_API std::optional<SplitKernel> split_reduction(const loops::Kernel& kernel, const Target& target);

}  // namespace bolt::codegen::cpu

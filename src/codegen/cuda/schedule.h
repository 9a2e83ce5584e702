// codegen/cuda/schedule.h
// Kernel -> Schedule: how the iteration space maps to blocks, threads and vectors. Data only; the emitter
// takes (kernel, schedule) and adds nothing of its own.
//
//   pointwise    each thread computes `vector` consecutive points of the whole space
//   rows         the reduced dimensions are a row, the others count rows; `group` threads compute one row
//     group == 1        a thread: rows lie next to each other in memory (column sums), or are tiny
//     group == 32       a warp, several rows per block: short rows
//     group == threads  a block: long rows, and reductions of everything
//   vector       consecutive elements of dimension `inner` per access: up to 16 bytes of the narrowest dtype
//   held         vectors per thread that make up a whole row: values stay in registers from one reduction to
//                the next; 0: a later sweep computes them again
//   narrow       the whole space is below 2^31 points: positions are 32 bits wide, whose division is cheap
//
// Sizes of dimensions are at least 1 when a kernel is launched. A kernel may store over memory that it also
// reads under another buffer only as loops/in_place.h says, and only if each of its stores varies over the
// whole space: points run in no order.
#pragma once

#include <string>
#include <vector>

#include "loops/kernel.h"

namespace bolt::codegen::cuda {

struct Schedule {
  std::vector<int> outer, row;  // dimensions, outermost first; pointwise kernels have no row
  int inner = -1;               // of the vectors; -1: the space is one point
  int vector = 1;
  int threads = 256;  // per block
  int group = 1;
  int held = 0;
  bool narrow = false;
  Sym blocks = 1;
};

struct Options {
  /// Every buffer starts at a multiple of 16 bytes. Whoever launches knows; without it no access is wide.
  bool aligned = true;
};

/// Why there is no CUDA code for this kernel; empty when there is. The kernel is normalised.
BOLT_API std::string refusal(const loops::Kernel& kernel);

/// The kernel is normalised and not refused.
BOLT_API Schedule schedule(const loops::Kernel& kernel, const Options& options = {});

/// "one warp per row, ...": heads the kernel's text.
BOLT_API std::string print(const Schedule& s);

/// May `vector` elements from here on be one access?
bool is_wide(const loops::Kernel& k, const Schedule& s, Sym index,
             const std::vector<loops::GatherTerm>& gather, loops::ExprId mask);

}  // namespace bolt::codegen::cuda

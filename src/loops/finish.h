// loops/finish.h
// Expressions over atoms -> Kernel: merges atoms, orders dimensions, drops what is unused, names the kernel.
//
// Two atoms become one dimension when in every index the outer one's factor is the inner one's times its
// size, and both are reduced together or not at all. Dimensions stand in the order of the largest stored
// value's memory, those that it lacks (reduced only) last, in the order of the first load's memory.
#pragma once

#include <optional>

#include "loops/build.h"

namespace bolt::loops {

/// A kernel whose indices and dimension masks are still in atoms.
struct DraftKernel {
  std::vector<Expr> exprs;
  std::vector<Store> stores;
  std::vector<Buffer> buffers;
  std::vector<const graph::Value*> values;  // of the buffers
};

/// Nothing where no single kernel does it.
std::optional<BuiltKernel> finish(Space space, DraftKernel draft, const BuildInput& in, const Group& group);

}  // namespace bolt::loops

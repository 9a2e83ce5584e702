// loops/build.h
// Group of graph nodes -> one Kernel, on demand from its stored values.
//
// Every stored value is evaluated at its index in the group's Space (space.h): a view changes the index and
// is gone, a pointwise node evaluates its operands and adds scalar operations (scalar.h), a reduction
// evaluates its operand over the reduced atoms, cat, pad and slice_scatter choose between operands whose
// loads are masked, embedding and gather put a loaded number into the index. A scatter's result is stored at
// such an index, into what lies there. The walk ends at values that lie in memory, and at library results
// that the kernel finishes (`acc`).
//
// When an address still holds a division that splitting an atom removes, the atom is split and the group is
// built anew. At the end atoms that are contiguous in every access become one dimension, and dimensions are
// put in the order of the largest stored value's memory, dimensions that are only reduced last.
//
// Not done here: deciding what belongs together (fuse.h) or how it runs (the code generators' schedules).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loops/kernel.h"
#include "loops/space.h"

namespace bolt::loops {

struct BuildInput {
  const Usage& usage;
  const std::vector<Syms>& strides;  // by value id: how materialized values lie in memory
  bool rounds_as_eager;              // PlanOptions::rounds_as_eager
  /// A library's result that this kernel finishes while it is still in registers; the last dimension of its
  /// type is the kernel's last dimension, the others make the rows, in order.
  const graph::Value* acc = nullptr;
  int acc_column = -1;  // which dimension of acc is the column: the last, or a convolution's channels
};

struct BuiltKernel {
  Kernel kernel;
  std::vector<const graph::Value*> buffers;  // the value of each of the kernel's buffers
};

/// Nothing when the group cannot be one kernel: its space does not align or a reduction is used off its
/// place.
std::optional<BuiltKernel> build_kernel(const BuildInput& in, const Group& group);

}  // namespace bolt::loops

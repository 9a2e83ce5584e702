// codegen/cpu/emit.h
// (Kernel, LoopSchedule) -> one LLVM function of the ABI in jit.h.
//
// Structure. Loops form a stack of scopes: function, work item, then whatever reductions and stores need. An
// expression is emitted once, in the outermost scope in which everything it depends on is known, so
// invariants, partial index sums and reductions over inner loops are hoisted by construction. Values are
// memoised per scope and die with it.
//
// Every block under construction has its terminator from the start; a scope's insertion point is the
// terminator of its main line. That makes "emit into an outer scope while an inner loop is open" and "split
// here for a cold path" plain.
//
// Sub-vectors: with vec_dim open for `unroll` vectors and tile_dim for `tile` indices, an expression that
// varies over them has one value per (vector, tile index), all emitted together: independent chains for the
// machine to overlap.
//
// Sizes of dimensions are at least 1 when work is handed out (work is 0 otherwise), so invariant loads may be
// hoisted.
#pragma once

#include "codegen/cpu/machine.h"
#include "codegen/cpu/schedule.h"

namespace bolt::codegen::cpu {

/// Adds function `name` to `module`. The kernel is normalised.
void emit_kernel(const loops::Kernel& kernel, const LoopSchedule& schedule, const LlvmMachine& machine,
                 llvm::Module& module, const std::string& name);

}  // namespace bolt::codegen::cpu

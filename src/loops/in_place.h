// loops/in_place.h
// Plan -> Plan: kernels write where their result is wanted, and over what is wanted no more.
//
//   kernel b2 = f(b0)            kernel b0 = f(b0)        b0: the caller's, written by `x.mul_(2)`
//   copy b0 <- b2          =>
//
// 1. Write-backs. A temporary that is only copied into a mutated input is not made: its kernel stores into
//    the input. A temporary that is a copy of that input with elements scattered into it is not made either.
// 2. Dying operands. A temporary that no later step reads gives its place to the kernel's result: in the
//    arena, or where large temporaries lie apart (PlanOptions::bytes_apart) also what a library's call made.
//    There a library's call that may add to what lies in its result's place does so, too
//    (products_add_in_place).
//
// A kernel may store over memory that it reads when it has no reductions and each point reads that memory at
// no other place than where it stores. The caller's memory is written early only where nothing can fail
// afterwards: a kernel that finds an index out of range has the whole call run again by eager, on inputs that
// must be as they were. What is only replaced in them by the last kernel that can fail is replaced again.
#pragma once

#include "loops/plan.h"

namespace bolt::loops {

/// Whether running the step may end in an error.
BOLT_API bool can_fail(const Plan& plan, const Step& step);

/// The first step that writes to an input; how many steps there are, if none does. Before it all memory is
/// got, since that may fail, too.
BOLT_API int first_visible_write(const Plan& plan);

/// Takes a kernel that no step runs any more out of the plan.
void drop_unused(Plan& plan, int kernel);

/// After all steps are made, before lifetimes.
void write_in_place(Plan& plan, const PlanOptions& options);

}  // namespace bolt::loops

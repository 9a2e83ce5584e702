// codegen/cpu/compile_plan.h
// Plan -> machine code: every kernel and every contraction of a plan that runs on the processor, in one
// batch.
#pragma once

#include "codegen/cpu/gemm/contraction.h"
#include "loops/plan.h"

namespace bolt::codegen::cpu {

struct PlanFunctions {
  std::unique_ptr<Module> module;  // owns the code
  /// By kernel of the plan; of an epilogue, the contraction that ends in it. Other devices' stay empty.
  std::vector<CompiledKernel> kernels;
  /// By kernel of the plan, set for epilogues of products with weights: how Pack steps fill these.
  std::vector<std::optional<gemm::ScheduledContraction>> contractions;
};

/// Error(User) when the host cannot run the target's code.
BOLT_API PlanFunctions compile(const loops::Plan& plan, const Target& target = Target::host());
/// The same code, not loaded, on any host.
BOLT_API Assembled assemble(const loops::Plan& plan, const Target& target);
/// The planner's questions, answered for `target`.
BOLT_API loops::PlanOptions options_that_generate(const Target& target = Target::host());

}  // namespace bolt::codegen::cpu

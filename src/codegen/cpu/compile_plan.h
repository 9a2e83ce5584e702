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

/// A plan whose kernels are scheduled, and are still to be compiled.
class BOLT_API PlanCompilation {
 public:
  /// What it needs of the plan it takes now.
  explicit PlanCompilation(const loops::Plan& plan, const Target& target = Target::host());
  ~PlanCompilation();

  /// By kernel of the plan. All is known of them but their functions.
  const std::vector<CompiledKernel>& kernels() const;
  /// Once, on any thread. Error(User) when the host cannot run the target's code.
  PlanFunctions finish();

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

/// Compiles a plan's kernels and loads them: a PlanCompilation from beginning to end.
BOLT_API PlanFunctions compile(const loops::Plan& plan, const Target& target = Target::host());
/// The code that this would load, for a target that the host need not be able to run.
BOLT_API Assembled assemble(const loops::Plan& plan, const Target& target);
/// The planner's questions, answered for `target`.
BOLT_API loops::PlanOptions options_that_generate(const Target& target = Target::host());

}  // namespace bolt::codegen::cpu

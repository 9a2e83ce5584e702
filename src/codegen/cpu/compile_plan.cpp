// codegen/cpu/compile_plan.cpp
#include "codegen/cpu/compile_plan.h"

#include "codegen/cpu/batch.h"
#include "codegen/cpu/gemm/from_plan.h"
#include "codegen/cpu/schedule.h"
#include "support/log.h"

namespace bolt::codegen::cpu {

loops::PlanOptions plan_options(const Target& target) {
  loops::PlanOptions options;
  options.generates = [target](const loops::Call& call) { return gemm::generates(call, target); };
  options.accepts_epilogue = gemm::accepts_epilogue;
  return options;
}

PlanCode compile(const loops::Plan& plan, const Target& target) {
  PlanCode code;
  code.contractions.resize(plan.kernels.size());
  for (const auto* list : {&plan.steps, &plan.fold_steps})
    for (const loops::Step& s : *list)
      if (s.kind == loops::StepKind::Contraction)
        code.contractions[static_cast<size_t>(s.epilogue)] = gemm::contraction_of(plan, s, target);
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const loops::Kernel& k = plan.kernels[i];
    if (code.contractions[i]) {
      if (log_wanted("schedule"))
        log("schedule", k.name + ": " + gemm::print(code.contractions[i]->schedule));
      continue;
    }
    if (log_wanted("schedule")) log("schedule", k.name + ": " + print(schedule(normalise(k), target)));
    if (log_wanted("output_code")) log("output_code", emit_text(k, target, true));
  }
  std::vector<Job> jobs;
  for (size_t i = 0; i < plan.kernels.size(); ++i)
    jobs.push_back(code.contractions[i] ? gemm::contraction_job(*code.contractions[i])
                                        : kernel_job(plan.kernels[i], target));
  code.module = compile(jobs, target);
  return code;
}

}  // namespace bolt::codegen::cpu

// codegen/cpu/compile_plan.cpp
#include "codegen/cpu/compile_plan.h"

#include "codegen/cpu/attention/from_plan.h"
#include "codegen/cpu/batch.h"
#include "codegen/cpu/gemm/from_plan.h"
#include "codegen/cpu/schedule.h"
#include "support/log.h"

namespace bolt::codegen::cpu {
namespace {

using graph::Op;

std::optional<int64_t> generates(const loops::Call& call, const Target& target) {
  if (call.node.op == Op::sdpa)
    return attention::generates(call, target) ? std::optional<int64_t>(0) : std::nullopt;
  return gemm::generates(call, target);
}

bool accepts_epilogue(const loops::Call& call, const loops::Kernel& epilogue) {
  return call.node.op == Op::sdpa ? attention::accepts_epilogue(call, epilogue)
                                  : gemm::accepts_epilogue(call, epilogue);
}

}  // namespace

loops::PlanOptions plan_options(const Target& target) {
  loops::PlanOptions options;
  options.generates = [target](const loops::Call& call) { return cpu::generates(call, target); };
  options.accepts_epilogue = cpu::accepts_epilogue;
  return options;
}

PlanCode compile(const loops::Plan& plan, const Target& target) {
  PlanCode code;
  std::vector<char> ours(plan.kernels.size());
  code.contractions.resize(plan.kernels.size());
  std::vector<std::optional<Job>> contractions(plan.kernels.size());
  for (const auto* list : {&plan.steps, &plan.fold_steps})
    for (const loops::Step& s : *list) {
      if (loops::kernel_of(s) < 0 || s.device.kind != graph::DeviceKind::CPU) continue;
      ours[static_cast<size_t>(loops::kernel_of(s))] = 1;
      if (s.kind != loops::StepKind::Contraction) continue;
      const auto id = static_cast<size_t>(s.epilogue);
      if (contractions[id]) continue;  // steps of equal layers share their code
      if (s.node->op == Op::sdpa) {
        contractions[id] = attention::attention_job(attention::attention_of(plan, s, target));
      } else {
        code.contractions[id] = gemm::contraction_of(plan, s, target);
        contractions[id] = gemm::contraction_job(*code.contractions[id]);
      }
    }
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const loops::Kernel& k = plan.kernels[i];
    if (!ours[i]) continue;
    if (contractions[i]) {
      if (code.contractions[i] && log_wanted("schedule"))
        log("schedule", k.name + ": " + gemm::print(code.contractions[i]->schedule));
      continue;
    }
    if (log_wanted("schedule")) log("schedule", k.name + ": " + print(schedule(normalise(k), target)));
    if (log_wanted("output_code")) log("output_code", emit_text(k, target, true));
  }
  std::vector<Job> jobs;
  for (size_t i = 0; i < plan.kernels.size(); ++i)
    if (ours[i])
      jobs.push_back(contractions[i] ? std::move(*contractions[i]) : kernel_job(plan.kernels[i], target));
  code.module = compile(jobs, target);
  code.kernels.resize(plan.kernels.size());
  for (size_t i = 0, next = 0; i < ours.size(); ++i)
    if (ours[i]) code.kernels[i] = code.module->kernels()[next++];
  return code;
}

}  // namespace bolt::codegen::cpu

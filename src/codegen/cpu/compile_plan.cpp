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

std::optional<int64_t> generates(const loops::PlannedContraction& call, const Target& target) {
  if (call.node.op == Op::sdpa)
    return attention::generates(call, target) ? std::optional<int64_t>(0) : std::nullopt;
  return gemm::generates(call, target);
}

bool accepts_epilogue(const loops::PlannedContraction& call, const loops::Kernel& epilogue) {
  return call.node.op == Op::sdpa ? attention::accepts_epilogue(call, epilogue)
                                  : gemm::accepts_epilogue(call, epilogue);
}

}  // namespace

loops::PlanOptions options_that_generate(const Target& target) {
  loops::PlanOptions options;
  options.generates = [target](const loops::PlannedContraction& call) {
    return cpu::generates(call, target);
  };
  options.accepts_epilogue = cpu::accepts_epilogue;
  options.widens = [target](const graph::Node& contraction) {
    const graph::Type& type = contraction.out()->type;
    if (type.device.kind != graph::DeviceKind::CPU) return false;
    return type.dtype == DType::BF16 ? !target.avx512_bf16 : !target.avx512_fp16;
  };
  return options;
}

namespace {

/// What has to be compiled of a plan for this device.
struct PlanJobs {
  std::vector<Job> jobs;
  std::vector<size_t> kernels;                                          // of the plan, one for each job
  std::vector<std::optional<gemm::ScheduledContraction>> contractions;  // PlanFunctions::contractions
};

Job contraction_of_step(const loops::Plan& plan, const loops::Step& step, const Target& target,
                        std::optional<gemm::ScheduledContraction>& scheduled) {
  if (step.node->op == Op::sdpa) return attention::attention_job(attention::attention_of(plan, step, target));
  scheduled = gemm::contraction_of(plan, step, target);
  return gemm::contraction_job(*scheduled);
}

/// `own`: it is no epilogue of a contraction.
void log_kernel(const loops::Kernel& k, bool own,
                const std::optional<gemm::ScheduledContraction>& contraction, const Target& target) {
  if (contraction && log_wanted("schedule"))
    log("schedule", k.name + ": " + gemm::print(contraction->schedule));
  if (own && log_wanted("schedule")) log("schedule", k.name + ": " + print(schedule(normalise(k), target)));
  if (own && log_wanted("output_code")) log("output_code", emit_text(k, target, true));
}

PlanJobs work_of(const loops::Plan& plan, const Target& target) {
  PlanJobs work;
  work.contractions.resize(plan.kernels.size());
  std::vector<char> ours(plan.kernels.size());
  std::vector<std::optional<Job>> contractions(plan.kernels.size());
  for (const auto* list : {&plan.steps, &plan.fold_steps})
    for (const loops::Step& s : *list) {
      if (loops::kernel_of(s) < 0 || s.device.kind != graph::DeviceKind::CPU) continue;
      ours[loops::kernel_of(s)] = 1;
      if (s.kind != loops::StepKind::Contraction) continue;
      const auto id = static_cast<size_t>(s.epilogue);
      if (contractions[id]) continue;  // steps of equal layers share their code
      contractions[id] = contraction_of_step(plan, s, target, work.contractions[id]);
    }
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    if (!ours[i]) continue;
    const bool own = !contractions[i];
    log_kernel(plan.kernels[i], own, work.contractions[i], target);
    work.jobs.push_back(own ? kernel_job(plan.kernels[i], target) : std::move(*contractions[i]));
    work.kernels.push_back(i);
  }
  return work;
}

}  // namespace

class PlanCompilation::Work {
 public:
  Work(PlanJobs jobs, size_t kernels, const Target& target)
      : compilation_(std::move(jobs.jobs), target),
        place_(std::move(jobs.kernels)),
        contractions_(std::move(jobs.contractions)),
        kernels_(in_places(compilation_.kernels(), kernels)) {}
  const std::vector<CompiledKernel>& kernels() const { return kernels_; }

  PlanFunctions finish() {
    PlanFunctions code;
    code.module = compilation_.finish();
    code.kernels = in_places(code.module->kernels(), kernels_.size());
    code.contractions = std::move(contractions_);
    return code;
  }

 private:
  std::vector<CompiledKernel> in_places(const std::vector<CompiledKernel>& jobs, size_t count) const {
    std::vector<CompiledKernel> all(count);
    for (size_t i = 0; i < place_.size(); ++i) all[place_[i]] = jobs[i];
    return all;
  }

  JobCompilation compilation_;
  const std::vector<size_t> place_;  // of the plan's kernels, one for each job
  std::vector<std::optional<gemm::ScheduledContraction>> contractions_;
  const std::vector<CompiledKernel> kernels_;
};

PlanCompilation::PlanCompilation(const loops::Plan& plan, const Target& target)
    : work_(std::make_unique<Work>(work_of(plan, target), plan.kernels.size(), target)) {}
PlanCompilation::~PlanCompilation() = default;

const std::vector<CompiledKernel>& PlanCompilation::kernels() const { return work_->kernels(); }
PlanFunctions PlanCompilation::finish() { return work_->finish(); }

PlanFunctions compile(const loops::Plan& plan, const Target& target) {
  return PlanCompilation(plan, target).finish();
}

Assembled assemble(const loops::Plan& plan, const Target& target) {
  return assemble(work_of(plan, target).jobs, target);
}

}  // namespace bolt::codegen::cpu

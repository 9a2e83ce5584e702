// codegen/cpu/jit.cpp
// See jit.h. Kernels become jobs of a batch (batch.h): normalised and with symbols by place, so that equal
// ones are found equal.

#include "codegen/cpu/jit.h"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>

#include "codegen/cpu/batch.h"
#include "codegen/cpu/emit.h"
#include "codegen/cpu/machine.h"
#include "codegen/cpu/schedule.h"
#include "codegen/cpu/split.h"
#include "loops/normalise.h"
#include "support/symbols.h"

namespace bolt::codegen::cpu {

Module::~Module() = default;

namespace {

/// `passed`: what the caller calls the symbols. `whole`: what is verified before LLVM sees it; halves are no
/// kernels in that sense.
Job job_of(loops::Kernel kernel, const std::string& name, const Syms& passed, const Target& target,
           std::shared_ptr<const loops::Kernel> whole = nullptr) {
  auto normal = std::make_shared<const loops::Kernel>(std::move(kernel));
  auto plan = std::make_shared<const LoopSchedule>(schedule(*normal, target));
  Job job;
  job.name = name;
  job.key = loops::print(*normal);
  job.emit = [normal, plan, whole](const LlvmMachine& machine, llvm::Module& module,
                                   const std::string& symbol) {
    loops::verify(whole ? *whole : *normal);
    emit_kernel(*normal, *plan, machine, module, symbol);
  };
  job.work = renamed(plan->work, by_place(passed), passed);
  job.grain = plan->grain;
  job.reports = normal->has_checks();
  return job;
}

/// All of a kernel's functions, in a module of their own: "kernel" and, of a split one, "second".
std::unique_ptr<llvm::Module> emit_all(const loops::Kernel& kernel, const Target& target,
                                       const LlvmMachine& machine, llvm::LLVMContext& context) {
  auto module = machine.make_module(context, kernel.name);
  const Job job = kernel_job(kernel, target);
  job.emit(machine, *module, "kernel");
  if (job.second) job.second->emit(machine, *module, "second");
  return module;
}

}  // namespace

Job kernel_job(const loops::Kernel& kernel, const Target& target) {
  loops::Kernel normal = loops::with_symbols_by_place(normalise(kernel));
  std::optional<SplitKernel> split = split_reduction(normal, target);
  if (!split) return job_of(std::move(normal), kernel.name, kernel.symbols, target);
  auto whole = std::make_shared<const loops::Kernel>(std::move(normal));
  Job job = job_of(std::move(split->first), kernel.name, kernel.symbols, target, whole);
  job.second = std::make_shared<const Job>(
      job_of(std::move(split->second), kernel.name, kernel.symbols, target, whole));
  job.scratch_bytes = split->scratch_bytes;
  return job;
}

namespace {

std::vector<Job> jobs_of(const std::vector<loops::Kernel>& kernels, const Target& target) {
  std::vector<Job> jobs;
  for (const loops::Kernel& kernel : kernels) jobs.push_back(kernel_job(kernel, target));
  return jobs;
}

}  // namespace

std::unique_ptr<Module> compile(const std::vector<loops::Kernel>& kernels, const Target& target) {
  return JobCompilation(jobs_of(kernels, target), target).finish();
}

Assembled assemble(const std::vector<loops::Kernel>& kernels, const Target& target) {
  return assemble(jobs_of(kernels, target), target);
}

std::string emit_text(const loops::Kernel& kernel, const Target& target, bool optimised) {
  LlvmMachine machine(target);
  llvm::LLVMContext context;
  auto module = emit_all(kernel, target, machine, context);
  if (optimised) machine.optimise(*module);
  std::string text;
  llvm::raw_string_ostream out(text);
  module->print(out, nullptr);
  return text;
}

}  // namespace bolt::codegen::cpu

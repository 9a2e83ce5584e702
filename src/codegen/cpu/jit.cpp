// codegen/cpu/jit.cpp
// See jit.h. Kernels become jobs of a batch (batch.h): normalised, so that equal ones are found equal.

#include "codegen/cpu/jit.h"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>

#include "codegen/cpu/batch.h"
#include "codegen/cpu/emit.h"
#include "codegen/cpu/machine.h"
#include "codegen/cpu/schedule.h"

namespace bolt::codegen::cpu {

Module::~Module() = default;

Job kernel_job(const loops::Kernel& kernel, const Target& target) {
  auto normal = std::make_shared<loops::Kernel>(normalise(kernel));
  auto plan = std::make_shared<Schedule>(schedule(*normal, target));
  Job job;
  job.name = kernel.name;
  job.key = loops::print(*normal);
  job.emit = [normal, plan](const Machine& machine, llvm::Module& module, const std::string& symbol) {
    emit_kernel(*normal, *plan, machine, module, symbol);
  };
  job.work = plan->work;
  job.grain = plan->grain;
  job.reports = kernel.has_checks();
  return job;
}

std::unique_ptr<Module> compile(const std::vector<loops::Kernel>& kernels, const Target& target) {
  std::vector<Job> jobs;
  for (const loops::Kernel& kernel : kernels) jobs.push_back(kernel_job(kernel, target));
  return compile(jobs, target);
}

std::string emit_text(const loops::Kernel& kernel, const Target& target, bool optimised) {
  Machine machine(target);
  llvm::LLVMContext context;
  auto module = machine.make_module(context, kernel.name);
  const loops::Kernel normal = normalise(kernel);
  emit_kernel(normal, schedule(normal, target), machine, *module, "kernel");
  if (optimised) machine.optimise(*module);
  std::string text;
  llvm::raw_string_ostream out(text);
  module->print(out, nullptr);
  return text;
}

std::string disassemble(const loops::Kernel& kernel, const Target& target) {
  Machine machine(target);
  llvm::LLVMContext context;
  auto module = machine.make_module(context, kernel.name);
  const loops::Kernel normal = normalise(kernel);
  emit_kernel(normal, schedule(normal, target), machine, *module, "kernel");
  machine.optimise(*module);
  return machine.assembly(*module);
}

}  // namespace bolt::codegen::cpu

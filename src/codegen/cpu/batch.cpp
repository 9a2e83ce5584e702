// codegen/cpu/batch.cpp: see batch.h.

#include "codegen/cpu/batch.h"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <map>

namespace bolt::codegen::cpu {
namespace {

class CompiledModule final : public Module {
 public:
  const std::vector<CompiledKernel>& kernels() const override { return kernels_; }
  size_t code_bytes() const override {
    size_t total = 0;
    for (const std::shared_ptr<MachineCode>& c : codes_) total += c->bytes();
    return total;
  }
  bool from_cache() const override { return from_cache_; }

  std::vector<CompiledKernel> kernels_;
  std::vector<std::shared_ptr<MachineCode>> codes_;
  bool from_cache_ = true;
};

std::string object_of(const std::vector<const Job*>& jobs, const std::vector<NamedUnit>& units,
                      const Target& target) {
  LlvmMachine machine(target);
  llvm::LLVMContext context;
  auto module = machine.make_module(context, "kernels");
  for (const NamedUnit& u : units) jobs[u.unit]->emit(machine, *module, u.name);
  machine.optimise(*module);
  return machine.object(*module);
}

}  // namespace

Assembled assemble(const std::vector<Job>& jobs, const Target& target) {
  LlvmMachine machine(target);
  llvm::LLVMContext context;
  auto optimised = [&] {
    auto module = machine.make_module(context, "kernels");
    for (size_t i = 0; i < jobs.size(); ++i) {
      jobs[i].emit(machine, *module, "k" + std::to_string(i));
      if (jobs[i].second) jobs[i].second->emit(machine, *module, "k" + std::to_string(i) + "_second");
    }
    machine.optimise(*module);
    return module;
  };
  // Code generation uses a module up, so each form has one of its own.
  return {machine.object(*optimised()), machine.assembly(*optimised())};
}

std::unique_ptr<Module> compile(const std::vector<Job>& jobs, const Target& target) {
  std::vector<BatchUnit> units;
  std::vector<const Job*> job_of;  // by unit
  std::map<std::string, size_t> by_key;
  std::map<const Job*, size_t> unit_of;
  auto add = [&](const Job& job) {
    BatchUnit unit{job.key, nullptr, nullptr};
    auto [it, fresh] = by_key.try_emplace(unit.key, units.size());
    if (fresh) {
      units.push_back(std::move(unit));
      job_of.push_back(&job);
    }
    unit_of[&job] = it->second;
  };
  for (const Job& job : jobs) {
    add(job);
    if (job.second) add(*job.second);
  }
  auto module = std::make_unique<CompiledModule>();
  codegen::Batch batch(
      std::move(units),
      {"cpu " + target.key(), [&](const auto& part) { return object_of(job_of, part, target); },
       [&](const std::string& object) { return std::shared_ptr<MachineCode>(load_object(object, target)); }});
  module->from_cache_ = batch.compile();

  for (const BatchUnit& u : batch.units())
    if (std::find(module->codes_.begin(), module->codes_.end(), u.code) == module->codes_.end())
      module->codes_.push_back(u.code);
  auto function_of = [&](const Job& job) {
    return reinterpret_cast<KernelFn>(batch.units()[unit_of.at(&job)].function);
  };
  for (const Job& job : jobs) {
    CompiledKernel compiled;
    compiled.name = job.name;
    compiled.fn = function_of(job);
    compiled.work = job.work;
    compiled.grain = job.grain;
    compiled.reports = job.reports;
    compiled.scratch_bytes = job.scratch_bytes;
    if (job.second) {
      compiled.second_fn = function_of(*job.second);
      compiled.second_work = job.second->work;
      compiled.second_grain = job.second->grain;
    }
    module->kernels_.push_back(std::move(compiled));
  }
  return module;
}

}  // namespace bolt::codegen::cpu

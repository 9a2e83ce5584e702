// codegen/cpu/batch.cpp

#include "codegen/cpu/batch.h"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <map>
#include <optional>

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

class JobCompilation::Work {
 public:
  Work(std::vector<Job> jobs, const Target& target) : jobs_(std::move(jobs)), target_(target) {
    std::vector<BatchUnit> units;
    std::map<std::string, size_t> by_key;
    auto add = [&](const Job& job) {
      const auto [it, fresh] = by_key.try_emplace(job.key, units.size());
      if (fresh) {
        units.push_back({job.key, nullptr, nullptr});
        job_of_.push_back(&job);
      }
      unit_of_[&job] = it->second;
    };
    for (const Job& job : jobs_) {
      add(job);
      if (job.second) add(*job.second);
      kernels_.push_back(without_functions(job));
    }
    batch_.emplace(std::move(units),
                   Compiler{"cpu " + target_.key(),
                            [this](const auto& part) { return object_of(job_of_, part, target_); },
                            [this](const std::string& object) {
                              return std::shared_ptr<MachineCode>(load_object(object, target_));
                            }});
  }
  const std::vector<CompiledKernel>& kernels() const { return kernels_; }

  std::unique_ptr<Module> finish() {
    auto module = std::make_unique<CompiledModule>();
    module->from_cache_ = batch_->compile();
    for (const BatchUnit& u : batch_->units())
      if (std::find(module->codes_.begin(), module->codes_.end(), u.code) == module->codes_.end())
        module->codes_.push_back(u.code);
    for (size_t i = 0; i < jobs_.size(); ++i) {
      kernels_[i].fn = function_of(jobs_[i]);
      if (jobs_[i].second) kernels_[i].second_fn = function_of(*jobs_[i].second);
    }
    module->kernels_ = std::move(kernels_);
    return module;
  }

 private:
  static CompiledKernel without_functions(const Job& job) {
    CompiledKernel kernel;
    kernel.name = job.name;
    kernel.work = job.work;
    kernel.grain = job.grain;
    kernel.reports = job.reports;
    kernel.scratch_bytes = job.scratch_bytes;
    if (job.second) {
      kernel.second_work = job.second->work;
      kernel.second_grain = job.second->grain;
    }
    return kernel;
  }
  KernelFn function_of(const Job& job) const {
    return reinterpret_cast<KernelFn>(batch_->units()[unit_of_.at(&job)].function);
  }

  const std::vector<Job> jobs_;
  const Target target_;
  std::vector<const Job*> job_of_;  // by unit
  std::map<const Job*, size_t> unit_of_;
  std::vector<CompiledKernel> kernels_;
  std::optional<Batch> batch_;
};

JobCompilation::JobCompilation(std::vector<Job> jobs, const Target& target)
    : work_(std::make_unique<Work>(std::move(jobs), target)) {}
JobCompilation::~JobCompilation() = default;
JobCompilation::JobCompilation(JobCompilation&&) noexcept = default;

const std::vector<CompiledKernel>& JobCompilation::kernels() const { return work_->kernels(); }
std::unique_ptr<Module> JobCompilation::finish() { return work_->finish(); }

}  // namespace bolt::codegen::cpu

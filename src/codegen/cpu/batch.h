// codegen/cpu/batch.h
// Jobs, each of which emits one function -> a Module: what kernels, contractions and attention share. Which
// of them must be compiled, where and when, is codegen/common's, by their keys and the target: code is only
// ever found for what it was compiled for.
#pragma once

#include <functional>
#include <memory>

#include "codegen/cpu/machine.h"

namespace bolt::codegen::cpu {

struct Job {
  std::string name;  // for reports
  /// All that the code depends on but the target: equal keys are one function. So symbols stand in it by
  /// their places, and `emit` has it from the same.
  std::string key;
  /// Adds function `symbol` to the module. Runs on any thread; what it adds is the same each time.
  std::function<void(const LlvmMachine& machine, llvm::Module& module, const std::string& symbol)> emit;
  Sym work;  // over the symbols of whoever asked for the job
  int64_t grain = 1;
  bool reports = false;  // CompiledKernel::reports
  /// What runs after it over its own range: CompiledKernel::second_fn.
  std::shared_ptr<const Job> second;
  int64_t scratch_bytes = 0;
};

/// Jobs whose code is wanted, and is still to be compiled.
class JobCompilation {
 public:
  JobCompilation(std::vector<Job> jobs, const Target& target);
  ~JobCompilation();
  JobCompilation(JobCompilation&&) noexcept;

  /// One per job, in their order. All is known of them but their functions.
  const std::vector<CompiledKernel>& kernels() const;
  /// Once, on any thread: they have them. Error(User) when the host cannot run the target's code.
  std::unique_ptr<Module> finish();

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

/// All of the jobs' functions in one object, on any host; neither looked up nor kept.
Assembled assemble(const std::vector<Job>& jobs, const Target& target);

/// The job of a kernel.
Job kernel_job(const loops::Kernel& kernel, const Target& target);

}  // namespace bolt::codegen::cpu

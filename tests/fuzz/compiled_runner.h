// tests/fuzz/compiled_runner.h
// Plan and its machine code -> results, on host memory: kernels, contractions and packing as the program runs
// them, library calls by the reference. Work is done in two ranges, the later one first, as threads might.
#pragma once

#include "codegen/cpu/compile_plan.h"
#include "tests/loops/plan_runner.h"

namespace bolt::fuzz {

class CompiledRunner : public loops::testing::PlanRunner {
 public:
  CompiledRunner(const loops::Plan& plan, const codegen::cpu::PlanFunctions& code,
                 const std::vector<graph::HostTensor>& inputs)
      : PlanRunner(plan, inputs), code_(code) {}

 private:
  void kernel(const loops::Step& s) override { launch(s, s.kernel); }
  void contraction(const loops::Step& s) override { launch(s, s.epilogue); }

  void launch(const loops::Step& s, int which) {
    const codegen::cpu::CompiledKernel& k = code_.module->kernels()[static_cast<size_t>(which)];
    std::vector<void*> pointers;
    for (int b : s.buffers) pointers.push_back(base_[static_cast<size_t>(b)]);
    int64_t report = 0;
    if (k.reports) pointers.push_back(&report);
    if (k.scratch_bytes > 0) pointers.push_back(rubbish(k.scratch_bytes));
    const std::vector<int64_t> syms = values(p_.kernels[static_cast<size_t>(which)].symbols);
    auto run = [&](codegen::cpu::KernelFn fn, int64_t work) {
      fn(pointers.data(), syms.data(), work / 2, work);
      fn(pointers.data(), syms.data(), 0, work / 2);
    };
    run(k.fn, value(k.work));
    if (k.second_fn) run(k.second_fn, value(k.second_work));
    BOLT_CHECK(!report, "kernel @", k.name, " met an index out of range");
  }

  void pack(const loops::Step& s) override {
    const auto& item = *code_.contractions[static_cast<size_t>(s.epilogue)];
    const auto& from = p_.buffers[static_cast<size_t>(s.buffers[0])];
    codegen::cpu::gemm::pack_weights(item.contraction, item.schedule, floats(s.buffers[0]),
                                     values(from.type.strides), floats(s.buffers[1]));
  }
  float* floats(int buffer) const { return reinterpret_cast<float*>(base_[static_cast<size_t>(buffer)]); }

  const codegen::cpu::PlanFunctions& code_;
};

}  // namespace bolt::fuzz

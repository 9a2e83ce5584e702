// codegen/cpu/attention/attention.h
// attention + epilogue -> machine code; the door to this folder for the stages after it
//
// Buffers of the kernel: its operands, then the epilogue's from `first_buffer` on. No LLVM and no torch in
// this header.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codegen/cpu/attention/schedule.h"
#include "codegen/cpu/jit.h"
#include "loops/kernel.h"

namespace bolt::codegen::cpu {
struct Job;
}

namespace bolt::codegen::cpu::attention {

struct Attention {
  AttentionKernel kernel;
  AttentionSchedule schedule;
  loops::Kernel epilogue;  ///< gemm/loops_epilogue.h
  int first_buffer = 3;
};

/// Is the epilogue over the result's space: all rows in any number of dimensions, then one of columns?
BOLT_API bool fits(const Attention& attention);
Job attention_job(const Attention& attention);
BOLT_API std::unique_ptr<Module> compile(const std::vector<Attention>& attentions, const Target& target);

}  // namespace bolt::codegen::cpu::attention
